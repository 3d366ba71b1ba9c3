"""Submits a job: its run directory, its script, and the record of its id."""

from __future__ import annotations

import shutil

from ipulaunch.configs.errors import IpulaunchError, JobError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory, write_whole
from ipulaunch.configs.runs.job import to_yaml
from ipulaunch.configs.text import utc
from ipulaunch.launcher.launch import program_record
from ipulaunch.launcher.launch.remembered import remember
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.scheduler import scheduler_of
from ipulaunch.launcher.schedulers.submission import Submission
from ipulaunch.launcher.schedulers.tools import NoAnswer, UnknownJob
from ipulaunch.topology.planning.plan import to_json


def hand_over(submission: Submission, *, is_made: bool = False) -> Submitted:
    """Make the run directory, or use an empty one, submit the job and record its id."""
    scheduler = scheduler_of(submission.scheduler)
    run = RunDirectory(submission.path)
    script = submission.path / scheduler.file_name
    try:
        submission.path.parent.mkdir(parents=True, exist_ok=True)
        submission.path.mkdir(mode=0o700, exist_ok=is_made)
    except OSError as error:
        raise UsageError(f"the run directory {submission.path} cannot be made: {error.strerror}") from error
    try:
        write_whole(run.plan, to_json(submission.launch.solution.plan))
        if submission.launch.job is not None:
            write_whole(run.job, to_yaml(submission.launch.job))
        if submission.launch.program is not None:
            backend = submission.launch.engine.backend
            write_whole(run.program, program_record.to_json(submission.launch.program, backend))
        write_whole(script, submission.text)
        names = scheduler.submit(str(script))
    except OSError as error:
        shutil.rmtree(submission.path, ignore_errors=True)
        raise UsageError(f"{submission.path} cannot be written: {error.strerror}") from error
    except NoAnswer as error:
        hint = f"look for it in the queue; its directory {submission.path} is kept"
        raise UnknownJob(f"{error.message}, and may have taken the job", hint=hint) from error
    except UnknownJob as error:
        raise UnknownJob(error.message, hint=f"{error.hint}; its directory {submission.path} is kept") from error
    except IpulaunchError:  # nobody will start this run
        shutil.rmtree(submission.path, ignore_errors=True)
        raise
    workload = submission.job.plan.workload
    job = Submitted(scheduler=submission.scheduler, script=script.name, submitted=utc(), workload=workload, **names)
    try:
        record.write(submission.path, job)
    except OSError as error:
        raise JobError(
            f"{job.scheduler} has the job as {job.id}, which cannot be recorded: {error.strerror}"
        ) from error
    if not is_made:  # it lies where the user wants it
        remember(submission.path)
    return job
