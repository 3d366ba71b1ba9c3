"""How long a job will take, by the newest run here of the same job."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import List, Optional, Tuple

from ipulaunch.configs.errors import IpulaunchError
from ipulaunch.configs.runs.directory import RUNS, RunDirectory, records_of
from ipulaunch.configs.runs.job import Job, job_of
from ipulaunch.configs.runs.untrusted import read_text
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.text import counted, duration
from ipulaunch.launcher.launch.earlier_runs import all_runs, modified
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.runs.run_files import read_summary
from ipulaunch.topology.planning.plan import Plan, from_json
from ipulaunch.topology.planning.solver import Fact, Solution

_MOST = 20  # runs that are looked at


def expected_duration(job: Job, plan: Plan, runs_dir: Path) -> List[Fact]:
    """Facts about the job, if a run here tells them: the same job on as many instances, perhaps for other epochs.

    On IPUs, energy follows from the duration.
    """
    if not job.settings.training.training or job.settings.training.resume is not None:
        return []
    try:
        runs = all_runs(runs_dir)[:_MOST]
    except IpulaunchError:  # only others may look there
        return []
    found = (_told_by(path, job, plan) for path in runs)
    told = next(filter(None, found), None)
    if told is None:
        return []
    seconds, text = told
    if job.is_rehearsal:
        return [Fact("duration", text)]
    from ipulaunch.topology.capacity.energy import energy_in  # most plans know no duration

    return [Fact("duration", text), Fact("energy", energy_in(seconds, plan).text, in_plan_only=True)]


def with_expected_duration(launch: Launch, runs_dir: Path) -> Launch:
    """The launch with that fact, if there is one."""
    job, solution = launch.job, launch.solution
    found = expected_duration(job, solution.plan, runs_dir) if job is not None else []
    return launch._replace(solution=solution._replace(training=(*solution.training, *found)))


def solution_with_duration(solution: Solution, workload: str, backend: str, settings: WorkloadSettings) -> Solution:
    """What was planned, with that fact by the runs that lie here."""
    found = expected_duration(Job(workload, backend, settings), solution.plan, Path(RUNS))
    return solution._replace(training=(*solution.training, *found))


def _told_by(path: Path, job: Job, plan: Plan) -> Optional[Tuple[float, str]]:
    run = records_of(path)
    if run.attempts.exists() or not _is_like(run, job, plan):  # of several attempts, the last tells a part
        return None
    earlier, summary = job_of(run), read_summary(run)
    if earlier is None or earlier.backend != job.backend or earlier.workload != job.workload:
        return None
    if _lasting(earlier.settings) != _lasting(job.settings):
        return None
    took_s = modified(run.summary) - modified(run.plan)
    try:
        in_training_s = float(summary.get("time_to_train_s", summary["train_s"]))
    except (KeyError, TypeError, ValueError):
        return None
    before, now = earlier.settings.training.num_epochs, job.settings.training.num_epochs
    expected_s = took_s + (now - before) * in_training_s / max(1, before)
    if not 0 < expected_s < float("inf"):
        return None
    epochs = "" if now == before else f" for {counted(before, 'epoch')}"
    return expected_s, f"about {duration(expected_s)}: {path.name} took {duration(took_s)}{epochs}"


def _is_like(run: RunDirectory, job: Job, plan: Plan) -> bool:
    try:
        other = from_json(read_text(run.plan))
    except (OSError, IpulaunchError):
        return False
    cores = [[placement.cores for placement in each.placements] for each in (plan, other)]
    return (other.batch, other.instances) == (plan.batch, plan.instances) and cores[0] == cores[1]


def _lasting(settings: WorkloadSettings) -> WorkloadSettings:
    """The settings without those that hardly change how long an epoch takes."""
    training = dataclasses.replace(
        settings.training, num_epochs=1, seed=0, resume=None, checkpoint_output_dir=None, target_accuracy=None
    )
    survival, logging = type(settings.survival)(), type(settings.logging)()
    return dataclasses.replace(settings, training=training, survival=survival, logging=logging)
