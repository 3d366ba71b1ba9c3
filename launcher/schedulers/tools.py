"""Calls the commands of a scheduler: a list of words, no shell, and their own messages on errors."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import NamedTuple, NoReturn, Sequence

from ipulaunch.configs.errors import JobError, NotReadyError

SUBMIT_ELSEWHERE = "submit where the scheduler's commands are, or print the job with --dry-run"
_ELSEWHERE = "do this where the scheduler's commands are"
_TIMEOUT_S = 120
# Messages of Slurm, PBS and kubectl.
_UNREACHABLE = (
    r"unable to contact|establish a configuration source|(cannot|failed to|unable to) connect|was refused"
    r"|connection refused|no such host|i/o timeout"
)


class NoAnswer(NotReadyError):
    """A command did not end in time; it may still have done its work."""


class UnknownJob(JobError):
    """The scheduler has the job, or may have it, but did not report its id."""


class Answer(NamedTuple):
    """The output of a command."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Its message, in one line."""
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
    """The output of a command; an error with its own message if it fails."""
    answer = ask(argv, hint)
    if answer.code:
        refuse(argv[0], doing, answer)
    return answer.out


def show(argv: Sequence[str], doing: str) -> None:
    """Let a command write to our stdout; an error with its own message if it fails."""
    try:
        done = subprocess.run(list(argv), stderr=subprocess.PIPE, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise NotReadyError(f"{argv[0]} does not start: {error}") from error
    if done.returncode not in (0, -signal.SIGPIPE):  # the reader has gone, as after `| head`
        refuse(argv[0], doing, Answer(done.returncode, "", done.stderr))


def refuse(command: str, doing: str, answer: Answer) -> NoReturn:
    """Raise an error with the message of a command that failed."""
    if re.search(_UNREACHABLE, answer.words, re.IGNORECASE):
        hint = "check that its server is up and that this host may use it"
        raise NotReadyError(f"{command} does not reach its server: {answer.words}", hint=hint)
    raise JobError(f"{command} refused {doing}: {answer.words}")
