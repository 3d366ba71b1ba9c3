"""PBS: a script for qsub, and the states in qstat's output."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence

from ipulaunch.configs.errors import JobError, StoppedError, UsageError
from ipulaunch.launcher.schedulers import scheduler, script, time_limit
from ipulaunch.launcher.schedulers.job import ClusterJob
from ipulaunch.launcher.schedulers.names import Expression, plain, quoted
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.tools import SUBMIT_ELSEWHERE, UnknownJob, ask, must

STATES = {
    "Q": scheduler.WAITING,
    "H": scheduler.WAITING,
    "W": scheduler.WAITING,
    "T": scheduler.WAITING,
    "M": scheduler.WAITING,
    "R": scheduler.RUNNING,
    "S": scheduler.RUNNING,
    "U": scheduler.RUNNING,
    "B": scheduler.RUNNING,
    "E": scheduler.ENDING,
}
_ENDED = ("F", "C", "X")
# 256 + the signal of qdel
_EXITS = {
    "0": scheduler.DONE,
    str(StoppedError.exit_code): scheduler.STOPPED,
    "271": scheduler.CANCELLED,
    "265": scheduler.CANCELLED,
}
_MAIL = {"BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "NONE": "n"}


def render(job: ClusterJob) -> str:
    """The script for qsub."""
    # The file lists each host once per mpiproc, and we request one.
    hosts = Expression('--hostfile="$PBS_NODEFILE"') if job.hosts > 1 else None
    timer: List[str] = []
    if job.wishes.asked_after_s is not None:
        timer = [
            "# PBS sends nothing before the limit of time.",
            "(",
            "  trap 'kill \"$!\"; exit' TERM",
            f"  sleep {job.wishes.asked_after_s} &",
            '  wait "$!" && kill -USR1 "$$"',
            ") >/dev/null 2>&1 &",
            "timer=$!",
            "trap 'kill \"$timer\" 2>/dev/null' EXIT",
            "",
        ]
    lines = [
        "#!/bin/bash",
        *(f"#PBS {directive}" for directive in _directives(job)),
        script.about(job),
        script.CHECKER,
        "",
        f"cd {quoted(job.work_dir)} || exit 4",
        "",
        *script.environment(job),
        *script.choice(job, hosts, "${PBS_JOBID%%.*}"),
        # Only operators may requeue a job, so it prints what its owner can do.
        *script.waiting(job, ['echo "stopped; to continue: qsub $run/job.sh"'], timer),
    ]
    return "\n".join(lines) + "\n"


def _directives(job: ClusterJob) -> List[str]:
    script.require_plain_places(job)
    wishes, found = job.wishes, [f"-N {plain('name', job.plan.workload, 'the name of the job')}"]

    def add(option: str, kind: str, value: Optional[str], flag: str) -> None:
        if value is not None:
            found.append(f"{option} {plain(kind, value, flag)}")

    add("-A", "name", wishes.account, "--account")
    add("-q", "name", wishes.partition, "--partition")
    found.append(f"-l select={job.hosts}:ncpus={job.cores_per_host}:mpiprocs=1")
    found.append("-l place=scatter" if job.is_rehearsal else "-l place=scatter:excl")
    if wishes.time_s is not None:
        found.append(f"-l walltime={time_limit.for_pbs(wishes.time_s)}")
    found += ["-j oe", f"-o {job.run}/scheduler.log"]
    if wishes.requeue is not None:
        found.append("-r y" if wishes.requeue else "-r n")
    if wishes.sent:  # a PBS job starts with an empty environment; qsub looks up the values
        found.append(f"-v {','.join(wishes.sent)}")
    add("-M", "mail", wishes.mail_user, "--mail-user")
    if wishes.mail_types:
        found.append(f"-m {_mail(wishes.mail_types)}")
    return [*found, *(plain("directive", text, "--directive") for text in wishes.directives)]


def _mail(types: Sequence[str]) -> str:
    for name in types:
        if name not in _MAIL:
            raise UsageError(f"PBS sends no mail for {name}", hint=f"use {', '.join(_MAIL)}")
    letters = sorted(set("".join(_MAIL[name] for name in types)))
    return "".join(letters) if letters == ["n"] else "".join(letter for letter in letters if letter != "n")


def submit(path: str) -> Mapping[str, str]:
    """Submit the script."""
    printed = must(["qsub", path], "the job", SUBMIT_ELSEWHERE).strip()
    number = printed.rpartition("\n")[2].strip()
    if not re.fullmatch(r"\d+(\[\])?(\.[\w.-]+)?", number, re.ASCII):
        raise UnknownJob(
            f"qsub took the job and printed {printed!r}, which is not a job id", hint="look for it with qstat"
        )
    return {"id": number}


def observe(jobs: Sequence[Submitted]) -> scheduler.Observation:
    """The states of the jobs, including ended ones."""
    answer = ask(["qstat", "-x", "-f", *(job.id for job in jobs)])
    if answer.code and "Unknown Job" not in answer.err:  # PBS has forgotten the job
        raise JobError(f"qstat does not answer: {answer.words}")
    text = answer.out.replace("\n\t", "")
    found: Dict[str, scheduler.JobState] = {}
    for part in re.split(r"^Job Id: *", text, flags=re.MULTILINE)[1:]:
        number, _, rest = part.partition("\n")
        fields = dict(re.findall(r"^ +(\w+) = (.*)$", rest, re.MULTILINE))
        state, code = fields.get("job_state", ""), fields.get("Exit_status", "")
        if state in _ENDED:
            found[number.strip()] = scheduler.JobState(
                _EXITS.get(code, scheduler.FAILED), f"{state} (exit status {code or 'unknown'})"
            )
        else:
            where = ",".join(dict.fromkeys(re.findall(r"([\w.-]+)/\d", fields.get("exec_host", ""))))
            found[number.strip()] = scheduler.JobState(STATES.get(state, scheduler.UNKNOWN), state, where)
    return scheduler.Observation({job.id: found[job.id] for job in jobs if job.id in found})


def cancel(job: Submitted) -> None:
    """End the job; PBS sends it TERM first."""
    must(["qdel", job.id], f"to delete job {job.id}")


SCHEDULER = scheduler.Scheduler("job.sh", render, submit, observe, cancel, submits="qsub")
