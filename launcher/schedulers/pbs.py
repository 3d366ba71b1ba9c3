"""PBS: a script for qsub, and what qstat says."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence

from ipulaunch.configs.errors import JobError, UsageError
from ipulaunch.launcher.schedulers import script, time_limit
from ipulaunch.launcher.schedulers.job import STOPPED as STOPPED_CODE
from ipulaunch.launcher.schedulers.job import ClusterJob
from ipulaunch.launcher.schedulers.names import Expression, plain, quoted
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.scheduler import (
    CANCELLED,
    DONE,
    ENDING,
    FAILED,
    RUNNING,
    STOPPED,
    UNKNOWN,
    WAITING,
    JobState,
    Scheduler,
)
from ipulaunch.launcher.schedulers.tools import ask, must

STATES = {
    "Q": WAITING,
    "H": WAITING,
    "W": WAITING,
    "T": WAITING,
    "M": WAITING,
    "R": RUNNING,
    "S": RUNNING,
    "U": RUNNING,
    "B": RUNNING,
    "E": ENDING,
}
_ENDED = ("F", "C", "X")
_EXITS = {"0": DONE, str(STOPPED_CODE): STOPPED, "271": CANCELLED, "265": CANCELLED}  # 256 + the signal of qdel
_MAIL = {"BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "NONE": "n"}


def render(job: ClusterJob) -> str:
    """The script for qsub."""
    # The file names a host once for each mpiproc that was asked for, which is one.
    hosts = Expression('--hostfile="$PBS_NODEFILE"') if job.hosts > 1 else None
    timer: List[str] = []
    if job.wishes.time_s is not None:
        before = max(1, job.wishes.time_s - job.wishes.lead_s)
        timer = [
            "# PBS sends nothing before the limit of time.",
            f'(sleep {before} && kill -USR1 "$$") >/dev/null 2>&1 &',
            "",
        ]
    lines = [
        "#!/bin/bash",
        *(f"#PBS {directive}" for directive in _directives(job)),
        script.about(job),
        script.CHECKER,
        "",
        f"cd {quoted(plain('path', job.work_dir, 'the working directory'))} || exit 4",
        "",
        *script.environment(job),
        *script.choice(job, hosts, "${PBS_JOBID%%.*}"),
        # Only operators may put a job into the queue again, so it says what its owner can do.
        *script.waiting(['echo "stopped with a checkpoint; to continue: qsub $run/job.sh"'], timer),
    ]
    return "\n".join(lines) + "\n"


def _directives(job: ClusterJob) -> List[str]:
    wishes, found = job.wishes, [f"-N {plain('name', job.plan.workload, 'the name of the job')}"]

    def add(option: str, kind: str, value: Optional[str]) -> None:
        if value is not None:
            found.append(f"{option} {plain(kind, value, option)}")

    add("-A", "name", wishes.account)
    add("-q", "name", wishes.partition)
    cores = job.plan.instances_per_host * job.cores_per_instance
    found.append(f"-l select={job.hosts}:ncpus={cores}:mpiprocs=1")
    found.append("-l place=scatter" if job.is_rehearsal else "-l place=scatter:excl")
    if wishes.time_s is not None:
        found.append(f"-l walltime={time_limit.for_pbs(wishes.time_s)}")
    found.append("-j oe")
    add("-o", "path", f"{job.run}/scheduler.log")
    if wishes.requeue is not None:
        found.append("-r y" if wishes.requeue else "-r n")
    add("-M", "mail", wishes.mail_user)
    if wishes.mail_types:
        found.append(f"-m {_mail(wishes.mail_types)}")
    return [*found, *(plain("directive", text, "--directive") for text in wishes.directives)]


def _mail(types: Sequence[str]) -> str:
    for name in types:
        if name not in _MAIL:
            raise UsageError(f"PBS sends no mail at {name}", hint=f"use {', '.join(_MAIL)}")
    letters = sorted(set("".join(_MAIL[name] for name in types)))
    return "".join(letters) if letters == ["n"] else "".join(letter for letter in letters if letter != "n")


def submit(path: str) -> Mapping[str, str]:
    """Hand the script over."""
    printed = must(["qsub", path], "the job").strip()
    if not re.fullmatch(r"\d+(\[\])?(\.[\w.-]+)?", printed, re.ASCII):
        raise JobError(f"qsub took the job and said {printed!r}, which is no job id", hint="look for it with qstat")
    return {"id": printed}


def look(jobs: Sequence[Submitted]) -> Dict[str, JobState]:
    """The jobs, those that have ended among them."""
    text = ask(["qstat", "-x", "-f", *(job.id for job in jobs)]).out.replace("\n\t", "")
    found: Dict[str, JobState] = {}
    for part in re.split(r"^Job Id: *", text, flags=re.MULTILINE)[1:]:
        number, _, rest = part.partition("\n")
        fields = dict(re.findall(r"^ +(\w+) = (.*)$", rest, re.MULTILINE))
        state, code = fields.get("job_state", ""), fields.get("Exit_status", "")
        if state in _ENDED:
            found[number.strip()] = JobState(_EXITS.get(code, FAILED), f"{state} (exit status {code or 'unknown'})")
        else:
            where = ",".join(dict.fromkeys(re.findall(r"([\w.-]+)/\d", fields.get("exec_host", ""))))
            found[number.strip()] = JobState(STATES.get(state, UNKNOWN), state, where)
    return {job.id: found[job.id] for job in jobs if job.id in found}


def cancel(job: Submitted) -> None:
    """End the job; PBS asks it with TERM first."""
    must(["qdel", job.id], f"to delete job {job.id}")


def log_argv(job: Submitted, follow: bool) -> List[str]:
    """Logs are files in the run directory."""
    return []


SCHEDULER = Scheduler("job.sh", render, submit, look, cancel, log_argv)
