"""Slurm: a script for sbatch, and the states in the output of squeue and sacct."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence

from ipulaunch.configs.errors import JobError, NotReadyError, StoppedError, UsageError
from ipulaunch.launcher.schedulers import scheduler, script, time_limit
from ipulaunch.launcher.schedulers.job import ClusterJob
from ipulaunch.launcher.schedulers.names import Expression, plain
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.tools import SUBMIT_ELSEWHERE, UnknownJob, ask, must

STATES = {
    "PENDING": scheduler.WAITING,
    "CONFIGURING": scheduler.WAITING,
    "REQUEUED": scheduler.WAITING,
    "REQUEUE_FED": scheduler.WAITING,
    "REQUEUE_HOLD": scheduler.WAITING,
    "RESV_DEL_HOLD": scheduler.WAITING,
    "SPECIAL_EXIT": scheduler.WAITING,
    "RUNNING": scheduler.RUNNING,
    "RESIZING": scheduler.RUNNING,
    "SIGNALING": scheduler.RUNNING,
    "SUSPENDED": scheduler.RUNNING,
    "STOPPED": scheduler.RUNNING,
    "COMPLETING": scheduler.ENDING,
    "STAGE_OUT": scheduler.ENDING,
    "COMPLETED": scheduler.DONE,
    "CANCELLED": scheduler.CANCELLED,
    "REVOKED": scheduler.CANCELLED,
    "PREEMPTED": scheduler.STOPPED,
    "BOOT_FAIL": scheduler.FAILED,
    "DEADLINE": scheduler.FAILED,
    "FAILED": scheduler.FAILED,
    "NODE_FAIL": scheduler.FAILED,
    "OUT_OF_MEMORY": scheduler.FAILED,
    "TIMEOUT": scheduler.FAILED,
}
_STOPPED = f"{StoppedError.exit_code}:0"  # as sacct writes it, with the signal
_LONGEST_LEAD_S = 65535


def render(job: ClusterJob) -> str:
    """The script for sbatch."""
    hosts = Expression('--hosts="$SLURM_JOB_NODELIST"') if job.hosts > 1 else None
    # Slurm requeues a job that it preempts, if allowed, but not one that reaches its time limit.
    again = (
        ['scontrol requeue "$SLURM_JOB_ID"']
        if job.wishes.requeue
        else ['echo "stopped; to continue: sbatch $run/job.sh"']
    )
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {directive}" for directive in _directives(job)),
        script.about(job),
        script.CHECKER,
        "",
        *script.environment(job),
        *script.choice(job, hosts, "${SLURM_JOB_ID}"),
        *script.waiting(job, again),
    ]
    return "\n".join(lines) + "\n"


def _directives(job: ClusterJob) -> List[str]:
    script.require_plain_places(job)
    wishes, found = job.wishes, [f"--job-name={plain('name', job.name, 'the name of the run directory')}"]

    def add(option: str, kind: str, value: Optional[str]) -> None:
        if value is not None:
            found.append(f"{option}={plain(kind, value, option)}")

    add("--account", "name", wishes.account)
    add("--partition", "list", wishes.partition)
    if wishes.time_s is not None:
        found.append(f"--time={time_limit.for_slurm(wishes.time_s)}")
    found.append(f"--nodes={job.hosts}")
    if wishes.nodelist is not None:
        found.append(f"--nodelist={wishes.nodelist}")
    found += _resources(job)
    found += [f"--chdir={job.work_dir}", f"--output={job.run}/scheduler.log", "--open-mode=append"]
    if wishes.time_s is not None:
        if wishes.lead_s > _LONGEST_LEAD_S:
            raise UsageError(
                f"the job is asked to stop {wishes.lead_s} s before its limit, and Slurm takes"
                f" {_LONGEST_LEAD_S} s at most",
                hint="use a shorter --signal-lead, or a shorter --grace",
            )
        found.append(f"--signal=B:USR1@{wishes.lead_s}")
    if wishes.requeue is not None:
        found.append("--requeue" if wishes.requeue else "--no-requeue")
    add("--mail-user", "mail", wishes.mail_user)
    add("--mail-type", "list", ",".join(wishes.mail_types) or None)
    return [*found, *(plain("directive", text, "--directive") for text in wishes.directives)]


def _resources(job: ClusterJob) -> List[str]:
    ask_for = job.site.slurm.ask_for or ("cores" if job.is_rehearsal else "hosts")
    if ask_for == "ipus" and not job.is_rehearsal:
        if job.plan.ipus & (job.plan.ipus - 1):
            raise UsageError(f"--ipus {job.plan.ipus}: Slurm's plugin makes partitions of 1, 2, 4, 8 ... IPUs")
        return [f"--ipus={job.plan.ipus}"]
    if ask_for == "hosts":
        return ["--exclusive"]
    # Where a core has two hardware threads, Slurm counts two CPUs; with the hint it counts cores, as plans do.
    # --ntasks-per-core=1 would not do: a task of several CPUs still gets both threads of its cores.
    count = [f"--ntasks-per-node={job.plan.instances_per_host}", f"--cpus-per-task={job.cores_per_instance}"]
    return [*count, "--hint=nomultithread"]


def submit(path: str) -> Mapping[str, str]:
    """Submit the script; returns the job's id."""
    printed = must(["sbatch", "--parsable", path], "the job", SUBMIT_ELSEWHERE).strip()
    match = re.fullmatch(r"(\d+)(?:;([\w.-]+))?", printed.rpartition("\n")[2], re.ASCII)
    if not match:
        raise UnknownJob(
            f"sbatch took the job and printed {printed!r}, which is not a job id", hint="look for it with squeue"
        )
    return {"id": match.group(1), "cluster": match.group(2) or ""}


def observe(jobs: Sequence[Submitted]) -> scheduler.Observation:
    """The states of the jobs, from the queue and, for those that have left it, the accounting; one call for all."""
    found: Dict[str, scheduler.JobState] = {}
    notes: List[str] = []
    for cluster in sorted({job.cluster for job in jobs}):
        ids = [job.id for job in jobs if job.cluster == cluster]
        where = [f"--clusters={cluster}"] if cluster else []
        try:
            found.update(_queue(where, ids))
            missing = [job for job in ids if job not in found]
            found.update(_accounting(where, missing) if missing else {})
        except (JobError, NotReadyError) as error:  # the states of the other clusters are still known
            notes.append(error.message)
    return scheduler.Observation(found, tuple(notes))


def _queue(where: List[str], ids: Sequence[str]) -> Dict[str, scheduler.JobState]:
    queue = ask(["squeue", *where, "--noheader", "--states=all", f"--jobs={','.join(ids)}", "--format=%i|%T|%N|%r"])
    if queue.code and "Invalid job id" not in queue.err:  # Slurm has forgotten the job
        raise JobError(f"squeue does not answer: {queue.words}")
    return _parsed(queue.out)


def _accounting(where: List[str], ids: Sequence[str]) -> Dict[str, scheduler.JobState]:
    """Empty if the cluster has no accounting: sacct fails then."""
    fields = "--format=JobID,State,NodeList,ExitCode"
    argv = ["sacct", *where, "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(ids)}", fields]
    return _parsed(ask(argv).out)


def _parsed(text: str) -> Dict[str, scheduler.JobState]:
    found: Dict[str, scheduler.JobState] = {}
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) == 4 and fields[0].isdigit():
            number, said, where, more = fields
            state = said.split(" ")[0].rstrip("+")  # CANCELLED by 1000
            word = scheduler.STOPPED if state == "FAILED" and more == _STOPPED else STATES.get(state, scheduler.UNKNOWN)
            reason = f"{said} ({more})" if more not in ("", "None", "0:0") else said
            found[number] = scheduler.JobState(word, reason, "" if where.startswith("None") else where)
    return found


def cancel(job: Submitted) -> None:
    """End the job; Slurm sends it TERM first."""
    must(["scancel", *([f"--clusters={job.cluster}"] if job.cluster else []), job.id], f"to cancel job {job.id}")


SCHEDULER = scheduler.Scheduler("job.sh", render, submit, observe, cancel, submits="sbatch")
