"""One launch, from its plan to the command that would run. A dry run is stopping here."""

from __future__ import annotations

from pathlib import Path
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.messages import Message, note, warning
from ipulaunch.configs.runs.job import Job, set_options
from ipulaunch.configs.settings.sections import Survival
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.engines.engine import CommandRequest, Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.environment import about_secrets, refuse_secrets, variables_to_forward
from ipulaunch.launcher.launch.program import Program
from ipulaunch.topology.planning.solver import Solution


class Launch(NamedTuple):
    """Everything decided: what runs where, and the command for it."""

    engine: Engine
    solution: Solution
    command: Command
    job: Optional[Job]  # None for a user's own program
    messages: Tuple[Message, ...] = ()  # also those of the solution
    options: LaunchOptions = LaunchOptions()  # what it was planned from
    origins: Mapping[str, str] = {}  # where each setting came from; of a run that continues, its directory knows
    program: Optional[Program] = None  # of the user's own; None for a workload

    @property
    def survival(self) -> Survival:
        """What happens when it fails, hangs, or is asked to stop."""
        if self.job is not None:
            return self.job.settings.survival
        return self.program.survival if self.program is not None else Survival()


def launch_planned(
    solution: Solution, resolved: Resolved, options: LaunchOptions, engine: Engine, run_dir: Optional[Path]
) -> Launch:
    """The launch of a workload that has a plan; with a run directory, the instances take their job from there."""
    workload, settings = resolved.workload, resolved.settings
    if engine.is_here and run_dir is not None:  # what is only printed may be for a machine that has the data
        from ipulaunch.launcher.launch.needs import require_data, require_python

        require_data(workload, settings)
        require_python(engine.python(options))
    elif settings.data.is_unnamed:
        text = f"{workload} needs its images, and the command names none: give {settings.data.option}"
        solution = solution._replace(messages=(*solution.messages, warning(text)))
    if settings.data.has_images and not (settings.data.is_synthetic or engine.is_rehearsal):
        from ipulaunch.launcher.launch.capacity_check import starving  # other launches do without

        solution = solution._replace(messages=(*solution.messages, *starving(workload, settings, solution.plan)))
    worker = engine.worker(workload, options)
    if run_dir is not None:  # which has the plan and the job
        worker = [*worker, "--run-dir", str(run_dir)]
    else:
        is_small = ["--rehearsal"] if resolved.rehearsal else []
        worker = [*worker, *engine.plan_words(solution.plan), *is_small, *set_options(resolved)]
    launch = _launch(engine, solution, options, worker, Job(workload, engine.backend, settings))
    return launch._replace(origins=resolved.origins)


def launch_again(solution: Solution, job: Job, options: LaunchOptions, engine: Engine, run_dir: Path) -> Launch:
    """The launch of a run that has its job in its directory already."""
    worker = [*engine.worker(job.workload, options), "--run-dir", str(run_dir)]
    return _launch(engine, solution, options, worker, job)


def launch_program(
    solution: Solution,
    program: Program,
    options: LaunchOptions,
    engine: Engine,
    run_dir: Optional[Path] = None,
    attempt: int = 1,
) -> Launch:
    """The launch of a user's own PopDist program, which has a plan already; in a run, it knows which attempt it is."""
    words, messages = engine.program(program.words, options, run_dir)
    told = program.told(attempt) if run_dir is not None else {}
    launch = _launch(engine, solution, options, words, None, told)
    return launch._replace(messages=(*launch.messages, *messages), program=program)


def _launch(
    engine: Engine,
    solution: Solution,
    options: LaunchOptions,
    program: Sequence[str],
    job: Optional[Job],
    told: Mapping[str, str] = {},
) -> Launch:
    messages: List[Message] = []
    if job is not None and job.settings.device.compile_only:
        options, messages = engine.offline(options)
    forward, env = variables_to_forward(options.env)
    refuse_secrets(options)
    request = CommandRequest(solution.plan, tuple(program), options, (*forward, *told), {**env, **told})
    if job is None:
        messages = about_secrets(program, forward, is_here=engine.is_here)
    else:
        survival = job.settings.survival
        request = request._replace(stall_timeout_s=survival.stall_timeout_s)
        if survival.elastic_hosts and not survival.max_restarts:
            text = "for restarts, without effect as there are none: --elastic-hosts; see --max-restarts"
            messages = [note(text), *messages]
    command, said = engine.command(request)
    return Launch(engine, solution, command, job, (*said, *messages, *solution.messages), options)
