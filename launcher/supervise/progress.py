"""Following the events that instances record while they run."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import BinaryIO, Dict, List, Mapping, NamedTuple, Optional, Set

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import (
    CheckpointWritten,
    Event,
    Joining,
    Loading,
    Log,
    Resumed,
    Started,
    Times,
    Training,
    Update,
    Validating,
    Working,
    read_event,
)
from ipulaunch.configs.runs.last_records import asks_to_continue
from ipulaunch.configs.runs.times import longest_wait
from ipulaunch.configs.runs.untrusted import open_regular, parse_json

TRAINING = "training"
_MOST_OF_END = 1 << 20  # bytes; five events a second take half an hour for that
_MOST_PER_LOOK = 1 << 20  # bytes; the rest waits for the next look, so that no instance can hold up the display


class Recorded(NamedTuple):
    """An event, and which instance recorded it when."""

    instance: int
    time_ns: int
    event: Event


class Phase(NamedTuple):
    """What a run does, and the words for it."""

    name: str
    text: str


@dataclass
class RunProgress:
    """How far a run is, from the events of its instances."""

    instances: int
    updates: Dict[int, int] = field(default_factory=dict)
    rates: Dict[int, float] = field(default_factory=dict)
    joining: Set[int] = field(default_factory=set)  # who waits for the others before the training
    started: Dict[int, Started] = field(default_factory=dict)
    resumed: int = 0  # the update after which this attempt continues the training
    kept: int = 0  # the update of the last checkpoint that this attempt has written
    total_updates: int = 0
    metrics: Dict[str, float] = field(default_factory=dict)
    times: Dict[int, Mapping[str, float]] = field(default_factory=dict)  # of each instance, since its last row
    preparing: str = ""  # what the first instance does besides training: it stages, indexes or validates
    is_loading: bool = False  # the device loads the program
    samples_per_update: float = 0.0

    @property
    def update(self) -> int:
        """The last update of this attempt. Instances move together, so the last event of any of them shows it."""
        return max(self.updates.values(), default=0)

    @property
    def position(self) -> int:
        """The update that the training has reached, in this attempt or before it."""
        return max(self.update, self.resumed)

    @property
    def phase(self) -> Phase:
        """What the run does now."""
        if self.preparing:
            return Phase(self.preparing.partition(":")[0], self.preparing)
        if len(self.started) < self.instances and not self.total_updates:
            ready = len(self.started) + len(self.joining)
            count = f": {ready} of {self.instances} instances are ready" if self.instances > 1 else ""
            return Phase("importing", f"importing TensorFlow{count}")
        if self.is_loading:
            return Phase("loading", "loading the program")
        if not self.total_updates:
            return Phase("making", "making the network")
        if self.position >= self.total_updates:
            return Phase("ending", "all updates are made")
        if self.update:
            return Phase(TRAINING, f"update {self.position}/{self.total_updates}")
        on_ipus = any(event.backend == "ipu" for event in self.started.values())
        compiling = "compiling the program, or loading it from the cache"
        return Phase("building", compiling if on_ipus else "building the first update")

    @property
    def left_s(self) -> Optional[float]:
        """How long the updates that are left will take, at the rate of the last ones."""
        if not self.samples_per_s or not self.samples_per_update:
            return None
        return (self.total_updates - self.position) * self.samples_per_update / self.samples_per_s

    @property
    def samples_per_s(self) -> float:
        return sum(self.rates.values())

    @property
    def waiting(self) -> float:
        """The part of the time since the last row in which the instance that waits longest has waited for data."""
        return longest_wait(self.times.values())

    def take(self, instance: int, event: Event) -> None:
        """Learn from an event of an instance."""
        if isinstance(event, Joining):
            self.joining.add(instance)
        elif isinstance(event, Started):
            self.joining.discard(instance)
            self.started[instance] = event
        elif isinstance(event, Working) and instance == 0:
            self.preparing = event.amount if isinstance(event, Validating) or event.done < event.total else ""
        elif isinstance(event, Loading):
            self.is_loading = True
        elif isinstance(event, Training):
            self.total_updates, self.preparing, self.is_loading = event.total_updates, "", False
            self.samples_per_update = (event.samples - event.left_out) / max(1, event.updates_per_epoch)
        elif isinstance(event, (Update, Log)):
            self.updates[instance], self.rates[instance] = event.update, event.samples_per_s
            self.metrics.update(event.metrics)
        elif isinstance(event, Times):
            self.times[instance] = event.seconds
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

    def asks_to_continue(self) -> bool:
        """Whether a program of the user's own has ended that asks for another start."""
        return asks_to_continue(self.run, range(self.instances)) is not None

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


def last_times(run: RunDirectory, instances: int) -> List[Mapping[str, float]]:
    """What instances did before their last rows: of each one that has recorded it, from the ends of their events."""
    found: List[Mapping[str, float]] = []
    for instance in range(instances):
        with contextlib.suppress(OSError), open_regular(run.events(instance)) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_OF_END))
            lines = (line for line in reversed(file.read(_MOST_OF_END).split(b"\n")) if b'"times"' in line)
            recorded = (_recorded(instance, line) for line in lines)
            times = (each.event.seconds for each in recorded if each is not None and isinstance(each.event, Times))
            found += [seconds for seconds in [next(times, None)] if seconds is not None]
    return found


def _recorded(instance: int, line: bytes) -> Optional[Recorded]:
    try:
        record = parse_json(line)
        event, time_ns = read_event(record), record.get("time_ns")
    except ValueError:
        return None
    return Recorded(instance, time_ns, event) if isinstance(time_ns, int) else None
