"""The traces of the samples that the instances of a run took, in all of its attempts."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import (
    CheckpointWritten,
    Event,
    Log,
    Replacement,
    Resumed,
    Training,
    Update,
    read_event,
)
from ipulaunch.configs.runs.untrusted import open_regular, parse_json

COLUMNS = ("epoch", "update", "step", "replica", "sample")
_HEAD = ",".join(COLUMNS).encode()
_ROW = re.compile(rb"[0-9]+(,[0-9]+){4}")
_AT_ONCE = 1 << 20  # bytes; a trace may have thousands of millions
_LONGEST_LINE = 1 << 20  # bytes


class Begun(NamedTuple):
    """What an instance said when it began to train."""

    samples: int
    epochs: int
    updates_per_epoch: int
    first_update: int

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self._asdict().items())


class Attempt(NamedTuple):
    """What the instances of one attempt have recorded."""

    name: str  # for messages
    directory: RunDirectory
    begun: Tuple[Begun, ...]  # by instance
    last_update: int  # of the last event; the trace may go further
    is_done: bool
    replacements: Set[Tuple[int, int]]  # a sample that could not be read, and the one taken instead

    @property
    def instances(self) -> int:
        return len(self.begun)

    @property
    def first_update(self) -> int:
        return self.begun[0].first_update


def read_attempts(run: RunDirectory, instances: int) -> List[Attempt]:
    """The attempts that left records, in their order; `instances` is the number for the latest one.

    Each begins after the one before it. An attempt that did not train, or that a later one repeats, is left out.
    """
    found = []
    for number in run.earlier_attempts():
        earlier = run.attempt(number)
        found.append(_read_attempt(f"attempt {number}: ", earlier, len(earlier.instances())))
    attempts = [attempt for attempt in [*found, _read_attempt("", run, instances)] if attempt is not None]
    if not attempts:
        raise DataError(
            f"{run.path}: the run did not begin to train", hint="events.jsonl of an instance does not say so"
        )
    firsts = [attempt.first_update for attempt in attempts]
    return [attempt for n, attempt in enumerate(attempts) if firsts[n] < min(firsts[n + 1 :], default=firsts[n] + 1)]


def _read_attempt(name: str, directory: RunDirectory, instances: int) -> Optional[Attempt]:
    said = [_read_events(directory.events(instance)) for instance in range(instances)]
    begun = tuple(each.begun for each in said if each.begun is not None)
    if not instances or len(begun) < instances:
        return None
    return Attempt(
        name,
        directory,
        begun,
        max(each.last_update for each in said),
        all(directory.done(instance).exists() for instance in range(instances)),
        set().union(*(each.replacements for each in said)),
    )


class _Said(NamedTuple):
    """What the events of an instance say."""

    begun: Optional[Begun]
    last_update: int
    replacements: Set[Tuple[int, int]]


def _read_events(path: Path) -> _Said:
    said = _Said(None, 0, set())
    for event in _events(path):
        if isinstance(event, Training):
            begun = Begun(event.samples, event.epochs, event.updates_per_epoch, event.first_update)
            said = said._replace(begun=begun)
        elif isinstance(event, Replacement):
            said.replacements.add((event.sample, event.by))
        elif isinstance(event, (Resumed, Update, Log, CheckpointWritten)):  # which say how many updates were made
            said = said._replace(last_update=max(said.last_update, event.update))
    return said


def _events(path: Path) -> Iterator[Event]:
    """The events of an instance; empty if it recorded nothing."""
    try:
        for number, lines in _whole_lines(path):
            for at, line in enumerate(lines.split(b"\n")[:-1], number):
                where = f"{path}, line {at}"
                try:
                    record = parse_json(line)
                except ValueError as error:
                    raise DataError(f"{where} is not JSON: {error}") from error
                try:
                    yield read_event(record)
                except ValueError as error:
                    raise DataError(f"{where}: {error}") from error
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error


def read_trace(path: Path) -> np.ndarray:
    """The samples that an instance took, a row for each; an incomplete last line is left out."""
    parts: List[np.ndarray] = []
    try:
        for number, lines in _whole_lines(path):
            if number == 1:
                head, _, lines = lines.partition(b"\n")
                if head != _HEAD:
                    raise DataError(f"{path} starts with {_shown(head)}, expected {_HEAD.decode()}")
                number = 2
            parts.append(_numbers(path, number, lines))
    except OSError as error:
        hint = "samples are traced when a run is started with --trace-samples"
        raise DataError(f"{path}: {error.strerror}", hint=hint) from error
    if not parts:
        raise DataError(f"{path} has no whole line, expected {_HEAD.decode()}")
    return np.concatenate(parts).view([(name, np.int64) for name in COLUMNS]).reshape(-1)


def _numbers(path: Path, number: int, lines: bytes) -> np.ndarray:
    count = lines.count(b"\n")
    if lines.translate(None, b"0123456789") == b",,,,\n" * count:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # numpy stops at an empty field; the count tells
            try:
                values = np.fromstring(lines.replace(b"\n", b","), np.int64, sep=",")
            except ValueError:
                values = np.empty(0, np.int64)
        if len(values) == count * len(COLUMNS):
            return values
    wrong = ((at, line) for at, line in enumerate(lines.split(b"\n"), number) if not _ROW.fullmatch(line))
    at, line = next(wrong)
    raise DataError(f"{path}, line {at}: {_shown(line)}, expected {len(COLUMNS)} numbers", hint="was it changed?")


def _whole_lines(path: Path) -> Iterator[Tuple[int, bytes]]:
    """Parts of a file that end with a line, and the number of their first; an incomplete last line is left out.

    Anything but a regular file is an OSError: a pipe or a device may be endless.
    """
    number, rest = 1, b""
    with open_regular(path) as file:
        for data in iter(lambda: file.read(_AT_ONCE), b""):
            lines, end, rest = (rest + data).rpartition(b"\n")
            if end:
                yield number, lines + end
                number += lines.count(b"\n") + 1
            if len(rest) > _LONGEST_LINE:
                raise DataError(f"{path}, line {number} has more than {_LONGEST_LINE} bytes", hint="was it changed?")


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("ascii", "backslashreplace"))
