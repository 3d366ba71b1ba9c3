"""The last record of an instance: done.json, stopped.json or error.json, whichever tells how it ended.

Programs of users leave none of these. Who waits for them writes exited.json.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Mapping, Optional, Union

from ipulaunch.configs.errors import JobError, StoppedError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.untrusted import parse_json, read_text


@dataclass(frozen=True)
class Done:
    """The instance has done its part; the summary of the run is the same on all."""

    time_ns: int
    summary: Mapping[str, Any]

    def to_json(self) -> Dict[str, Any]:
        return {"time_ns": self.time_ns, **self.summary}


@dataclass(frozen=True)
class Stopped:
    """The instance has stopped on request."""

    time_ns: int
    message: str

    def to_json(self) -> Dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Failed:
    """The instance has failed."""

    time_ns: int
    type: str
    message: str
    hint: str
    exit_code: int
    traceback: str

    def to_json(self) -> Dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def first_line(self) -> str:
        """As much of the message as fits a headline."""
        return next((line for line in self.message.splitlines() if line.strip()), "")


@dataclass(frozen=True)
class Exited:
    """The program of a user has ended."""

    time_ns: int
    exit_code: int
    signal: int = 0  # that ended it

    def to_json(self) -> Dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def has_failed(self) -> bool:
        return bool(self.exit_code or self.signal)

    @property
    def asks_to_continue(self) -> bool:
        """Whether it asks for another start."""
        return self.exit_code == StoppedError.exit_code


LastRecord = Union[Done, Stopped, Failed, Exited]


def path_of(record: LastRecord, run: RunDirectory, instance: int) -> Path:
    """The file of a last record."""
    if isinstance(record, Done):
        return run.done(instance)
    if isinstance(record, Exited):
        return run.exited(instance)
    return run.stopped(instance) if isinstance(record, Stopped) else run.error(instance)


def to_text(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=1) + "\n"


def read_stopped(run: RunDirectory, instance: int) -> Stopped:
    """The record of an instance that has stopped; anybody may have written it, and what it lacks is made up for."""
    fields = _fields(run.stopped(instance)) or {}
    return Stopped(_time_ns(fields), str(fields.get("message", "stopped on request")))


def read_failed(run: RunDirectory, instance: int) -> Optional[Failed]:
    """The record of an instance that has failed, if it is a record at all; what it lacks is made up for."""
    fields = _fields(run.error(instance))
    if fields is None:
        return None
    code = fields.get("exit_code")
    return Failed(
        _time_ns(fields),
        str(fields.get("type", "an error")),
        str(fields.get("message", "")),
        str(fields.get("hint", "")),
        code if isinstance(code, int) and code else JobError.exit_code,
        str(fields.get("traceback", "")),
    )


def read_exited(run: RunDirectory, instance: int) -> Optional[Exited]:
    """The record of a program that has ended, if it is a record at all."""
    fields = _fields(run.exited(instance))
    if fields is None:
        return None
    code, number = fields.get("exit_code"), fields.get("signal", 0)
    if not isinstance(code, int) or not isinstance(number, int):
        return None
    return Exited(_time_ns(fields), code, number)


def asks_to_continue(run: RunDirectory, instances: Iterable[int]) -> Optional[int]:
    """An instance whose program has ended with the exit code that asks for another start."""
    records = ((instance, read_exited(run, instance)) for instance in instances)
    return next((instance for instance, record in records if record and record.asks_to_continue), None)


def _fields(path: Path) -> Optional[Dict[str, Any]]:
    try:
        fields = parse_json(read_text(path))
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) else None


def _time_ns(fields: Mapping[str, Any]) -> int:
    time_ns = fields.get("time_ns")
    return time_ns if isinstance(time_ns, int) else 0
