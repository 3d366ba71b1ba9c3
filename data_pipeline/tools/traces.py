"""What the instances of a run have left of the samples they took, in all of its attempts."""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.run_directory import RunDirectory

COLUMNS = ("epoch", "update", "step", "replica", "sample")
_AFTER_AN_UPDATE = ("resumed", "update", "log", "checkpoint")  # events that say how many were made


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
    last_update: int  # that an event tells of; the trace may go further
    is_done: bool
    replacements: Set[Tuple[int, int]]  # a sample that could not be read, and the one taken instead

    @property
    def instances(self) -> int:
        return len(self.begun)

    @property
    def first_update(self) -> int:
        return self.begun[0].first_update


def read_attempts(run: RunDirectory, instances: int) -> List[Attempt]:
    """The attempts that something is left of, in their order; the present one has so many instances.

    Each begins after the one before it. One that did not begin to train, or that a later one began before, is left out.
    """
    numbers = sorted(int(path.name) for path in run.attempts.glob("*") if path.name.isdecimal())
    found = []
    for number in numbers:
        directory = RunDirectory(run.attempts / str(number))
        count = sum(1 for _ in directory.path.glob("instance-*"))
        found.append(_read_attempt(f"attempt {number}: ", directory, count))
    attempts = [attempt for attempt in [*found, _read_attempt("", run, instances)] if attempt is not None]
    if not attempts:
        raise DataError(
            f"{run.path}: the run did not begin to train", hint="events.jsonl of an instance does not say so"
        )
    firsts = [attempt.first_update for attempt in attempts]
    return [attempt for n, attempt in enumerate(attempts) if firsts[n] < min(firsts[n + 1 :], default=firsts[n] + 1)]


def _read_attempt(name: str, directory: RunDirectory, instances: int) -> Optional[Attempt]:
    begun = [_read_begun(directory.events(instance)) for instance in range(instances)]
    all_begun = tuple(each for each in begun if each is not None)
    if not instances or len(all_begun) < instances:
        return None
    events = [event for instance in range(instances) for event in _events(directory.events(instance))]
    told = [event.get("update") for event in events if event.get("event") in _AFTER_AN_UPDATE]
    replaced = [(e.get("sample"), e.get("by")) for e in events if e.get("event") == "replacement"]
    return Attempt(
        name,
        directory,
        all_begun,
        max([update for update in told if isinstance(update, int)], default=0),
        all(directory.done(instance).exists() for instance in range(instances)),
        {(sample, by) for sample, by in replaced if isinstance(sample, int) and isinstance(by, int)},
    )


def _read_begun(events: Path) -> Optional[Begun]:
    said = [event for event in _events(events) if event.get("event") == "training"]
    if not said:
        return None
    try:
        return Begun(*(int(said[-1][name]) for name in Begun._fields))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{events}: the event of the training does not say {', '.join(Begun._fields)}") from error


def _events(path: Path) -> Iterator[Dict[str, Any]]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the last line of a run that was killed
                yield json.loads(line)


def read_trace(path: Path) -> np.ndarray:
    """The samples that an instance took, a row for each; a last line that was not written to its end is left out."""
    try:
        head, _, body = path.read_text(encoding="ascii").partition("\n")
    except (OSError, UnicodeDecodeError) as error:
        hint = "samples are traced when a run is started with --trace-samples"
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}", hint=hint) from error
    if head.split(",") != list(COLUMNS):
        raise DataError(f"{path} starts with {head[:60]!r}, expected {','.join(COLUMNS)}")
    body = body[: body.rfind("\n") + 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy stops at what is no number; the count tells
        try:
            values = np.fromstring(body.replace("\n", ","), np.int64, sep=",")
        except ValueError:
            values = np.empty(0, np.int64)
    if len(values) != body.count("\n") * len(COLUMNS):
        raise DataError(f"{path}: not every line has {len(COLUMNS)} numbers", hint="was it changed?")
    return values.view([(name, np.int64) for name in COLUMNS]).reshape(-1)
