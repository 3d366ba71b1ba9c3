"""Following the events that instances record while they run."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import BinaryIO, Dict, List, NamedTuple, Optional

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import (
    CheckpointWritten,
    Event,
    Log,
    Resumed,
    Started,
    Training,
    Update,
    Working,
    read_event,
)
from ipulaunch.configs.runs.untrusted import open_regular, parse_json

_MOST_PER_LOOK = 1 << 20  # bytes; the rest waits for the next look, so that no instance can hold up the display


class Recorded(NamedTuple):
    """An event, and which instance recorded it when."""

    instance: int
    time_ns: int
    event: Event


@dataclass
class RunProgress:
    """How far a run is, from the events of its instances."""

    instances: int
    updates: Dict[int, int] = field(default_factory=dict)
    rates: Dict[int, float] = field(default_factory=dict)
    started: Dict[int, Started] = field(default_factory=dict)
    resumed: int = 0  # the update after which this attempt continues the training
    kept: int = 0  # the update of the last checkpoint that this attempt has written
    total_updates: int = 0
    metrics: Dict[str, float] = field(default_factory=dict)
    preparing: str = ""  # what the first instance does besides training: it stages, indexes or validates

    @property
    def update(self) -> int:
        """The last update of this attempt. Instances move together, so the last event of any of them shows it."""
        return max(self.updates.values(), default=0)

    @property
    def position(self) -> int:
        """The update that the training has reached, in this attempt or before it."""
        return max(self.update, self.resumed)

    @property
    def waiting(self) -> str:
        """What the run waits for before its first update."""
        if self.total_updates:
            return "the first update is being built"
        return f"{len(self.started)} of {self.instances} instances have started"

    @property
    def samples_per_s(self) -> float:
        return sum(self.rates.values())

    def take(self, instance: int, event: Event) -> None:
        """Learn from an event of an instance."""
        if isinstance(event, Started):
            self.started[instance] = event
        elif isinstance(event, Working) and instance == 0:
            self.preparing = event.amount
        elif isinstance(event, Training):
            self.total_updates = event.total_updates
        elif isinstance(event, (Update, Log)):
            self.updates[instance], self.rates[instance] = event.update, event.samples_per_s
            self.metrics.update(event.metrics)
        elif isinstance(event, CheckpointWritten):
            self.kept = max(self.kept, event.update)
        elif isinstance(event, Resumed):
            self.resumed = event.update


class Follower:
    """Reads what every instance has added to its events.jsonl since the last look."""

    def __init__(self, run: RunDirectory, instances: int) -> None:
        self.run, self.instances = run, instances
        self.files: Dict[int, BinaryIO] = {}
        self.rest: Dict[int, bytes] = {}
        self.progress = RunProgress(instances)

    def look(self) -> List[Recorded]:
        """The new events, in the order in which they happened. Lines of the wrong shape are left out."""
        found: List[Recorded] = []
        for instance in range(self.instances):
            for line in self._lines(instance):
                recorded = _recorded(instance, line)
                if recorded is not None:
                    self.progress.take(instance, recorded.event)
                    found.append(recorded)
        return sorted(found, key=lambda recorded: recorded.time_ns)

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def _lines(self, instance: int) -> List[bytes]:
        if instance not in self.files:
            try:
                self.files[instance] = open_regular(self.run.events(instance))
            except OSError:
                return []
        *lines, rest = (self.rest.get(instance, b"") + self.files[instance].read(_MOST_PER_LOOK)).split(b"\n")
        self.rest[instance] = rest if len(rest) <= _MOST_PER_LOOK else b""  # a line without an end is not an event
        return lines


def progress_of(run: RunDirectory) -> RunProgress:
    """How far a run is by all events of instance 0, which writes the checkpoints and makes the same updates as all."""
    with contextlib.closing(Follower(run, 1)) as follower:
        while follower.look():
            pass
        return follower.progress


def _recorded(instance: int, line: bytes) -> Optional[Recorded]:
    try:
        record = parse_json(line)
        event, time_ns = read_event(record), record.get("time_ns")
    except ValueError:
        return None
    return Recorded(instance, time_ns, event) if isinstance(time_ns, int) else None
