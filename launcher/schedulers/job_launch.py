"""The launch of a job: planned here, once, for the hosts of a cluster."""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.messages import Message, note
from ipulaunch.configs.sites import Site
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.schedulers.job import Wishes, variables_of
from ipulaunch.launcher.schedulers.pinned import again_words, at_site, first_words
from ipulaunch.launcher.schedulers.task import Task
from ipulaunch.topology.planning.solver import Solution


class JobWords(NamedTuple):
    """The options of the ipulaunch commands in a script."""

    first: List[str]  # that starts the run
    again: List[str]  # that continues it


def with_layout(options: LaunchOptions, site: Site, scheduler: str) -> LaunchOptions:
    """The options with the cores of the site's hosts; a Pod has as many as its limit says."""
    layout: Optional[str] = site.hosts.layout
    if layout is None and scheduler == "kubernetes" and site.kubernetes.cpu is not None:
        layout = f"1x{site.kubernetes.cpu}"
    return options._replace(host_layout=options.host_layout or layout)


def launch_job(
    solution: Solution,
    task: Task,
    options: LaunchOptions,
    engine: Engine,
    scheduler: str,
    site: Site,
    wishes: Wishes,
) -> Tuple[Launch, JobWords, Wishes]:
    """The launch of a planned job, the words of its script, and the wishes, completed by its variables."""
    messages: List[Message] = []
    hosts = len(solution.plan.hosts)
    if options.host_layout is None and engine.is_rehearsal and hosts == 1 and wishes.nodelist is None:
        messages.append(note("planned for a host like this one; --host-layout or a site says what others have"))
    options = at_site(options, site, hosts, engine)
    has_setup = _has_setup(wishes, site)
    if scheduler == "pbs" and not has_setup and not wishes.image:
        text = "PBS jobs start with a new environment: --setup or a site says how they find ipulaunch and the SDK"
        messages.append(note(text))
    variables = variables_of(options.env, scheduler, os.environ, has_setup=has_setup)
    options = options._replace(env=variables.env)
    # The job itself looks up variables that are forwarded by name.
    values_alone = options._replace(env=tuple(text for text in options.env if "=" in text))
    launch = task.launch(solution, values_alone, engine)
    if wishes.image and hosts > 1 and scheduler != "kubernetes":
        raise UsageError(f"--container-image on {hosts} hosts: MPI would start the others outside the image")
    launch = launch._replace(messages=(*messages, *launch.messages))
    plan = solution.plan
    words = JobWords(first_words(task.words(solution), options, engine, plan), again_words(options, engine, plan))
    return launch, words, wishes._replace(sent=variables.sent, secrets=variables.secrets)


def _has_setup(wishes: Wishes, site: Site) -> bool:
    return bool(wishes.setup or site.environment.modules or site.environment.enable or site.environment.lines)
