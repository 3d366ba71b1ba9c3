"""Calling the commands of a scheduler: a list of words, no shell, and their own words when they refuse."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import NamedTuple, NoReturn, Sequence

from ipulaunch.configs.errors import JobError, NotReadyError

SUBMIT_ELSEWHERE = "submit where the scheduler's commands are, or print the job with --dry-run"
_ELSEWHERE = "do this where the scheduler's commands are"
_TIMEOUT_S = 120
# The words of Slurm, PBS and kubectl.
_UNREACHABLE = (
    r"unable to contact|establish a configuration source|(cannot|failed to|unable to) connect|was refused"
    r"|connection refused|no such host|i/o timeout"
)


class NoAnswer(NotReadyError):
    """A command that did not end: what it was asked to do may be done all the same."""


class UnknownJob(JobError):
    """The scheduler has a job, or may have, and did not say which."""


class Answer(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What it said of itself, in one line."""
        lines = self.err.strip().splitlines() or self.out.strip().splitlines()
        return " / ".join(lines) or f"exit code {self.code}"


def ask(argv: Sequence[str], hint: str = _ELSEWHERE) -> Answer:
    """Run a command of the scheduler to its end."""
    try:
        done = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace",
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise NotReadyError(f"there is no {argv[0]} here", hint=hint) from None
    except OSError as error:
        raise NotReadyError(f"{argv[0]} does not start: {error}") from error
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{argv[0]} does not answer within {_TIMEOUT_S} s", hint="try again later") from None
    return Answer(done.returncode, done.stdout, done.stderr)


def must(argv: Sequence[str], doing: str, hint: str = _ELSEWHERE) -> str:
    """What a command prints; a refusal is an error with its own words."""
    answer = ask(argv, hint)
    if answer.code:
        refuse(argv[0], doing, answer)
    return answer.out


def show(argv: Sequence[str], doing: str) -> None:
    """Let a command write to our own stdout; a refusal is an error with its own words."""
    try:
        done = subprocess.run(list(argv), stderr=subprocess.PIPE, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise NotReadyError(f"{argv[0]} does not start: {error}") from error
    if done.returncode not in (0, -signal.SIGPIPE):  # nobody reads any more, as after `| head`
        refuse(argv[0], doing, Answer(done.returncode, "", done.stderr))


def refuse(command: str, doing: str, answer: Answer) -> NoReturn:
    """Say in the words of a command that it did not do something."""
    if re.search(_UNREACHABLE, answer.words, re.IGNORECASE):
        hint = "is its server up, and may this host ask it?"
        raise NotReadyError(f"{command} does not reach its server: {answer.words}", hint=hint)
    raise JobError(f"{command} refused {doing}: {answer.words}")
