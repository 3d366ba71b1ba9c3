"""The shell code that all jobs share: the environment, the attempt, and the call of ipulaunch."""

from __future__ import annotations

import signal
from typing import List, Optional, Sequence

from ipulaunch.configs.errors import StoppedError, UsageError
from ipulaunch.configs.runs.directory import INSIDE
from ipulaunch.configs.sites import JOB_ID
from ipulaunch.launcher.schedulers.job import ClusterJob
from ipulaunch.launcher.schedulers.names import Expression, Word, one_line, plain, quoted

# Beside the script and the record of the job: the run itself makes its directory.
_RUN = f"$run/{INSIDE}"
_BY_USR1 = 128 + signal.SIGUSR1  # the exit code in a shell
_STOPPED = StoppedError.exit_code
_WITH_JOB_ID = ("--vipu-partition", "--vipu-allocation", "--vipu-cluster")


def about(job: ClusterJob) -> str:
    """The comment that describes a script."""
    arithmetic = job.plan.division if job.program else job.plan.formula  # a program has batches of its own
    return f"# {job.plan.workload} on {job.plan.system}, written by ipulaunch: {arithmetic}"


# Before the first command, so that it is for the whole file.
CHECKER = """\
# What is sourced lies on the cluster, and a $ between quotes is meant as it is.
# shellcheck disable=SC1090,SC1091,SC2016"""


def require_plain_places(job: ClusterJob) -> None:
    """Refuse directories with characters that schedulers do not take, before they become options."""
    plain("path", job.work_dir, "the working directory")
    plain("path", job.run, "the run directory")


def environment(job: ClusterJob) -> List[str]:
    """The set-up lines of the site and the user."""
    site = job.site.environment
    lines = [f"module load {plain('module', name, 'the module')}" for name in site.modules]
    # The shell replaces a tilde, and nothing else in such a path.
    lines += [f"source {plain('file', path, 'the file to source')}" for path in site.enable]
    lines += [one_line(line, "the line of the site") for line in site.lines]
    lines += [one_line(line, "--setup") for line in job.wishes.setup]
    return ["# The environment.", *lines, ""] if lines else []


def choice(job: ClusterJob, hosts: Optional[Word], job_id: Optional[str]) -> List[str]:
    """The call of ipulaunch as the arguments of the shell; `job_id` is what {job_id} stands for.

    A job that is started again finds its run and continues it.
    """
    more = [hosts] if hosts else []
    first = [job.command, *job.first, *more, Expression(f'--run-dir="{_RUN}"')]
    # A program knows by itself how to continue.
    where = "" if job.program else " at its newest checkpoint"
    again = ["resume", Expression(f'"{_RUN}"'), *job.again, *more]
    return [
        "set -u",
        f"run={quoted(job.run)}",
        f'if [ -e "{_RUN}/{job.record}" ]; then',
        f"  # Started again: the run continues{where}.",
        *_folded(job, again, job_id),
        "else",
        *_folded(job, first, job_id, job.program),
        "fi",
        "",
    ]


def waiting(job: ClusterJob, requeue: Sequence[str], timer: Sequence[str] = ()) -> List[str]:
    """The call in the background, so that this shell can forward signals and read the exit code."""
    # A scheduler that sends TERM cancels the job, or requeues it by itself. A program may also stop of its own accord.
    asks_again = '[ "$stop" != TERM ]' if job.program else '[ "$stop" = USR1 ]'
    return [
        "stop=",
        "woken=0",
        "launcher=",
        "# TERM reaches every process of the job by itself; USR1 comes to this shell alone.",
        'trap \'stop=USR1 woken=1; [ -z "$launcher" ] || kill -USR1 "$launcher"\' USR1',
        "trap 'stop=TERM woken=1' TERM",
        "",
        *timer,
        '"$@" &',
        "launcher=$!",
        "# It may have come before there was a launcher.",
        '[ "$stop" != USR1 ] || kill -USR1 "$launcher"',
        "",
        "# A signal ends the waiting, not the launcher.",
        "while true; do",
        "  woken=0 code=0",
        '  wait "$launcher" || code=$?',
        '  if [ "$woken" -eq 0 ]; then break; fi',
        "done",
        "# It ends by the signal itself where it has not begun to listen yet.",
        f'if [ "$code" -eq {_BY_USR1} ] && [ "$stop" = USR1 ]; then code={_STOPPED}; fi',
        f'if [ "$code" -eq {_STOPPED} ] && {asks_again}; then',
        *(f"  {line}" for line in requeue),
        "fi",
        'exit "$code"',
    ]


def _in_container(job: ClusterJob) -> List[Word]:
    image = job.wishes.image
    return [*job.site.container.command, plain("image", image, "--container-image")] if image else []


def _with_id(word: Word, job_id: Optional[str]) -> Word:
    name, _, value = word.partition("=")
    if name not in _WITH_JOB_ID or JOB_ID not in value:
        return word
    if job_id is None:
        raise UsageError(f"{word}: jobs of this scheduler have no number", hint="write a name without it")
    return Expression(f'{name}="{value.replace(JOB_ID, job_id)}"')


def _folded(job: ClusterJob, words: Sequence[Word], job_id: Optional[str], program: Sequence[Word] = ()) -> List[str]:
    """The arguments of a call, with an option on each line, and a program on the last."""
    call = [quoted(_with_id(word, job_id)) for word in (*_in_container(job), "ipulaunch", *words)]
    start = next((index for index, word in enumerate(call) if word.startswith("--")), len(call))
    lines = ["  set -- " + " ".join(call[:start]), *(f"    {word}" for word in call[start:])]
    if program:
        one_line(" ".join(program), "the program")  # also secrets that are a word after their option
        lines.append("    -- " + " ".join(map(quoted, program)))
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
