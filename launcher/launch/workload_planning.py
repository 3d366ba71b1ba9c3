"""From the settings of a workload and the launch options to the plan, with the checks of both, and to the launch."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Optional

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.examination import examine
from ipulaunch.launcher.launch.launch import Launch, launch_planned
from ipulaunch.launcher.launch.order_facts import order_facts
from ipulaunch.launcher.launch.planning import UnnamedHosts, plan_for, require_names
from ipulaunch.topology.planning.refusals import check_pipeline, refuse_before_sdk
from ipulaunch.topology.planning.solver import Solution


def plan_workload(
    resolved: Resolved, options: LaunchOptions, engine: Engine, *, unnamed: UnnamedHosts = require_names
) -> Solution:
    """The plan of a workload, examined; the IPUs of a replica follow from its pipeline stages."""
    settings, origins = resolved.settings, dict(resolved.origins)
    check_pipeline(settings)
    if not engine.is_rehearsal:
        refuse_before_sdk(settings, lambda: options.sdk or discovery.sdk_here(os.environ))
    if settings.launch.ipus_per_replica is None and settings.pipeline.splits:
        origins["launch.ipus_per_replica"] = origins["pipeline.splits"]
    launch = dataclasses.replace(settings.launch, ipus_per_replica=settings.ipus_per_replica)
    if not settings.training.training and launch.validation_num_replicas is not None:
        if launch.num_replicas not in (None, launch.validation_num_replicas):
            raise SettingsError(
                f"{launch.num_replicas} replicas are asked for, and {launch.validation_num_replicas} to validate with:"
                " without training there are no others",
                hint="leave --num-replicas out",
            )
        launch = dataclasses.replace(launch, num_replicas=launch.validation_num_replicas)
        origins["launch.num_replicas"] = origins["launch.validation_num_replicas"]
    if options.pod is None and options.ipus is None and (launch.single or launch.num_replicas):
        options = options._replace(ipus=(launch.num_replicas or 1) * settings.ipus_per_replica)
        origins["ipus"] = "computed"
    solution = plan_for(
        resolved.workload,
        options,
        engine,
        launch,
        settings.training,
        origins,
        micro_batches_per_turn=settings.micro_batches_per_turn,
        least_accumulation=settings.least_accumulation,
        unnamed=unnamed,
    )
    if settings.training.resume is not None:
        from ipulaunch.launcher.launch.continuation import require_continuable  # other launches do without

        require_continuable(resolved, solution.plan)
    facts, messages = examine(resolved, solution.plan, engine.is_rehearsal)
    facts += order_facts(settings, len(solution.plan.hosts))
    return solution._replace(training=tuple(facts), messages=(*solution.messages, *messages))


def launch_workload(resolved: Resolved, options: LaunchOptions, engine: Engine, run_dir: Optional[Path]) -> Launch:
    """The launch of one of our workloads."""
    return launch_planned(plan_workload(resolved, options, engine), resolved, options, engine, run_dir)
