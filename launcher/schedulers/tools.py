"""Calling the commands of a scheduler: a list of words, no shell, and their own words when they refuse."""

from __future__ import annotations

import subprocess
from typing import NamedTuple, Sequence

from ipulaunch.configs.errors import JobError, NotReadyError

_TIMEOUT_S = 120


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


def ask(argv: Sequence[str], text: str = "") -> Answer:
    """Run a command of the scheduler to its end."""
    try:
        done = subprocess.run(
            list(argv), input=text, capture_output=True, encoding="utf-8", errors="replace", timeout=_TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except FileNotFoundError:
        hint = "submit where the scheduler's commands are, or print the job with --dry-run"
        raise NotReadyError(f"there is no {argv[0]} here", hint=hint) from None
    except OSError as error:
        raise NotReadyError(f"{argv[0]} does not start: {error}") from error
    except subprocess.TimeoutExpired:
        raise NotReadyError(f"{argv[0]} does not answer within {_TIMEOUT_S} s", hint="try again later") from None
    return Answer(done.returncode, done.stdout, done.stderr)


def must(argv: Sequence[str], doing: str) -> str:
    """What a command prints; a refusal is an error with its own words."""
    answer = ask(argv)
    if answer.code:
        raise JobError(f"{argv[0]} refused {doing}: {answer.words}")
    return answer.out
