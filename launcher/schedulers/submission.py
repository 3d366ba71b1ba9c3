"""From settings and options to a job: the plan, the command and the scheduler's options, all decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, NamedTuple, Tuple

from ipulaunch.configs.messages import Message, note
from ipulaunch.configs.sites import Site
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.schedulers.job import ClusterJob
from ipulaunch.launcher.schedulers.job_launch import launch_job, with_layout
from ipulaunch.launcher.schedulers.nodes import plan_on_nodes
from ipulaunch.launcher.schedulers.scheduler import scheduler_of
from ipulaunch.launcher.schedulers.task import Task
from ipulaunch.launcher.schedulers.wishes import name_and_place, refuse_useless, wishes_from


class Submission(NamedTuple):
    """A job to print or to submit: a dry run stops here."""

    scheduler: str
    job: ClusterJob
    text: str
    launch: Launch
    path: Path  # the run directory here
    messages: Tuple[Message, ...]  # also those of the launch


def prepare(
    task: Task,
    options: LaunchOptions,
    engine: Engine,
    scheduler: str,
    site: Site,
    given: Mapping[str, Any],
    path: Path,
    *,
    verbose: bool = False,
) -> Submission:
    """The whole job, decided and rendered; `given` are the scheduler's options. Writes and calls nothing."""
    in_pods = scheduler == "kubernetes"
    wishes = wishes_from(given, site, task.grace_s)
    options = with_layout(options, site, scheduler)
    solution, nodelist = plan_on_nodes(task, options, engine, site, wishes.nodes)
    wishes = wishes._replace(nodelist=nodelist)
    refuse_useless(wishes, scheduler, given["signal_lead"])
    messages = task.messages(in_pods=in_pods)
    launch, words, wishes = launch_job(solution, task, options, engine, scheduler, site, wishes)
    name, run = name_and_place(path, scheduler, wishes)
    if in_pods and not wishes.volumes:
        messages.append(note("without --volume the run and its checkpoints are lost with the Pod"))
    more = ["--verbose"] if verbose else []
    job = ClusterJob(
        name=name,
        run=run,
        work_dir=str(Path.cwd()),
        plan=solution.plan,
        is_rehearsal=engine.is_rehearsal,
        command=task.command,
        program=task.program,
        record=task.record,
        first=(*words.first, *more),
        again=(*words.again, *more),
        wishes=wishes,
        site=site,
    )
    text = scheduler_of(scheduler).render(job)
    if options.host_layout is None and in_pods and not engine.is_rehearsal:
        cores = f"the Pod asks for {job.cores_per_host} cores, planned for a host of a POD"
        messages.append(note(f"{cores}; --host-layout, or kubernetes.cpu of a site, says what yours have"))
    return Submission(scheduler, job, text, launch, path, (*messages, *launch.messages))
