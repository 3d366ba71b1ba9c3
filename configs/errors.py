"""Everything that can go wrong, each kind with the exit code it ends the program with.

IpulaunchError
├── UsageError          2
├── PlanError           3
├── NotReadyError       4
├── DataError           5
├── SettingsError       6
├── JobError            7
└── StoppedError       75
"""

from __future__ import annotations

from typing import Iterable

EXIT_CODES = {
    0: "done",
    2: "usage: the command line is wrong",
    3: "plan impossible: the POD, the hosts and the job do not fit together",
    4: "environment not ready: something this engine needs is missing here",
    5: "data: missing, damaged or of the wrong shape",
    6: "settings: a key or a value is wrong",
    7: "the job failed; the first failure is shown",
    75: "stopped by TERM, USR1, USR2 or HUP; started again, it continues from its newest checkpoint, if there is one",
    130: "interrupted by Ctrl-C or ipulaunch cancel; ipulaunch resume continues it",
}

INTERRUPTED = 130


class IpulaunchError(Exception):
    """An error a user can act on: what is wrong, why, and what to do next."""

    exit_code = 7

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(IpulaunchError):
    """The command line is wrong."""

    exit_code = 2


class PlanError(IpulaunchError):
    """The POD, the hosts and the job do not fit together."""

    exit_code = 3


class NotReadyError(IpulaunchError):
    """Something this engine needs is missing here."""

    exit_code = 4


class DataError(IpulaunchError):
    """The data is missing, damaged or of the wrong shape."""

    exit_code = 5


class SettingsError(IpulaunchError):
    """A key or a value of the settings is wrong."""

    exit_code = 6


class JobError(IpulaunchError):
    """The job was started and failed."""

    exit_code = 7


class StoppedError(IpulaunchError):
    """The job was asked to stop."""

    exit_code = 75


def near_miss(word: str, known: Iterable[str]) -> str:
    """What the user most likely meant, as a hint; the whole list when nothing is near."""
    choices = sorted(known)
    return nearest(word, choices) or f"known: {', '.join(choices)}"


def nearest(word: str, known: Iterable[str]) -> str:
    """What the user most likely meant, in any case of letters, as a hint; empty when nothing is near."""
    import difflib

    choices = {choice.lower(): choice for choice in known}
    close = difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.6)
    return f"did you mean {choices[close[0]]}?" if close else ""
