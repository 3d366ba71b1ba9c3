"""Following the records that instances write while they run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, BinaryIO, Dict, List, Optional

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.milestones import measured
from ipulaunch.configs.runs.untrusted import open_regular, parse_json

_MOST_PER_LOOK = 1 << 20  # bytes; the rest waits for the next look, so that no instance can hold up the display


@dataclass
class Progress:
    """What is known of a run from its records."""

    instances: int
    updates: Dict[int, int] = field(default_factory=dict)
    rates: Dict[int, float] = field(default_factory=dict)
    started: Dict[int, Dict[str, Any]] = field(default_factory=dict)
    resumed: int = 0  # the update after which this attempt took up the training
    total_updates: int = 0
    metrics: Dict[str, float] = field(default_factory=dict)
    preparing: str = ""  # what the first instance does besides training: its share of the files, the index, validation

    @property
    def update(self) -> int:
        """The last update that this attempt has made: instances move together, so any one's last record tells."""
        return max(self.updates.values(), default=0)

    @property
    def position(self) -> int:
        """The update that the training has reached, whoever made it."""
        return max(self.update, self.resumed)

    @property
    def waiting(self) -> str:
        """What there is to wait for before the first update."""
        if self.total_updates:
            return "the first update is being built"
        return f"{len(self.started)} of {self.instances} instances have started"

    @property
    def samples_per_s(self) -> float:
        return sum(self.rates.values())

    def take(self, instance: int, record: Dict[str, Any]) -> bool:
        """Whether the record says what a record of its kind says; others change nothing."""
        try:
            self._take(instance, record)
        except (KeyError, TypeError, ValueError, OverflowError):
            return False
        return True

    def _take(self, instance: int, record: Dict[str, Any]) -> None:
        kind = record["event"]
        if kind == "started":
            self.started[instance] = record
        elif kind in ("staging", "indexing", "validating"):
            done, total = _whole(record["done"]), _whole(record["total"])
            if instance == 0:
                noun = "micro-batches" if kind == "validating" else "files"
                amount = f"{done >> 20} of {total >> 20} MiB" if kind == "staging" else f"{done} of {total} {noun}"
                self.preparing = f"{kind}: {amount}"
        elif kind == "training":
            epochs, updates, _ = (_whole(record[name]) for name in ("epochs", "updates_per_epoch", "left_out"))
            self.total_updates = epochs * updates
        elif kind in ("update", "log"):
            update, rate = _whole(record["update"]), _number(record["samples_per_s"])
            if kind == "log":
                _ = _number(record["epoch"]), _whole(record["epochs"])
            self.updates[instance], self.rates[instance] = update, rate
            self.metrics.update(measured(record))
        elif kind == "validation":
            _whole(record["update"])
            _ = record["epoch"]
        elif kind == "warning":
            _text(record["message"])
        elif kind == "checkpoint":
            _ = _text(record["path"]), _whole(record["update"])
        elif kind == "resumed":
            _, self.resumed = _text(record["path"]), _whole(record["update"])


class Follower:
    """Reads what was added to every instance's events.jsonl since the last look."""

    def __init__(self, run: RunDirectory, instances: int) -> None:
        self.run, self.instances = run, instances
        self.files: Dict[int, BinaryIO] = {}
        self.rest: Dict[int, bytes] = {}
        self.progress = Progress(instances)

    def look(self) -> List[Dict[str, Any]]:
        """The new records, each with its instance, in the order they happened."""
        found: List[Dict[str, Any]] = []
        for instance in range(self.instances):
            for line in self._lines(instance):
                record = _record(line)
                if record is not None and self.progress.take(instance, record):
                    found.append({**record, "instance": instance})
        return sorted(found, key=lambda record: record["time_ns"])

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
        self.rest[instance] = rest if len(rest) <= _MOST_PER_LOOK else b""  # a line without an end is no record
        return lines


def _record(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("time_ns"), int) else None


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r} is not a number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value
