"""The hosts of a job: those that the user names, else as many as the job needs."""

from __future__ import annotations

import math
from typing import Optional, Tuple

from ipulaunch.configs.errors import PlanError, UsageError
from ipulaunch.configs.sites import Site
from ipulaunch.configs.text import counted
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.planning import UnnamedHosts, hosts_needed, named_hosts, numbered_hosts
from ipulaunch.launcher.schedulers.task import Task
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.machines.pods import System
from ipulaunch.topology.planning.solver import Solution


def plan_on_nodes(
    task: Task, options: LaunchOptions, engine: Engine, site: Site, nodes: Optional[int]
) -> Tuple[Solution, Optional[str]]:
    """The plan of a job, and the hosts to request by name; None where any will do."""
    names = named_hosts(options)
    if names and nodes not in (None, len(names)):
        raise UsageError(f"--nodes {nodes}, and {counted(len(names), 'host')} named", hint="leave --nodes out")
    solution = task.plan(options, engine, _unnamed(site, nodes))
    return solution, hostlist.render(names) if names else None


def _unnamed(site: Site, nodes: Optional[int]) -> UnnamedHosts:
    def hosts(engine: Engine, system: System, ipus: int) -> Tuple[str, ...]:
        if not engine.spreads_over_pod:
            return numbered_hosts(nodes or 1)
        needed, need = hosts_needed(system, ipus)
        if nodes is not None and nodes < needed:
            raise PlanError(f"--nodes {nodes}, and {need}", hint=f"use --nodes {needed} or leave it out")
        if nodes is None and site.hosts.ipus_per_host is not None:
            return numbered_hosts(math.ceil(ipus / site.hosts.ipus_per_host))
        return numbered_hosts(nodes or needed)

    return hosts
