"""Following the records that instances write while they run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Dict, List, Mapping, Optional

from ipulaunch.configs.run_directory import RunDirectory

_MOST_PER_LOOK = 1 << 20  # bytes; the rest waits for the next look, so that no instance can hold up the display


# Records that the display tells of as they are, and what they must have.
_SHOWN = {"validation": ("update", "epoch"), "warning": ("message",), "resumed": ("path", "update")}
_ASIDE = ("event", "time_ns", "instance", "update", "epoch", "samples_per_s", "checkpoint")


def measured(record: Mapping[str, Any]) -> Dict[str, float]:
    """The metrics in a record."""
    return {name: value for name, value in record.items() if name not in _ASIDE}


@dataclass
class Progress:
    """What is known of a run from its records."""

    instances: int
    updates: Dict[int, int] = field(default_factory=dict)
    rates: Dict[int, float] = field(default_factory=dict)
    started: Dict[int, Dict[str, Any]] = field(default_factory=dict)
    total_updates: int = 0
    epochs: int = 0
    epoch: float = 0
    left_out: int = 0
    metrics: Dict[str, float] = field(default_factory=dict)
    checkpoint: str = ""

    @property
    def update(self) -> int:
        """Updates all instances have made: they move together, so any instance's last record tells."""
        return max(self.updates.values(), default=0)

    @property
    def samples_per_s(self) -> float:
        return sum(self.rates.values())

    def take(self, instance: int, record: Dict[str, Any]) -> bool:
        """Whether the record says what a record of its kind says; others change nothing."""
        try:
            self._take(instance, record)
        except (KeyError, TypeError):
            return False
        return True

    def _take(self, instance: int, record: Dict[str, Any]) -> None:
        kind = record["event"]
        if kind == "started":
            self.started[instance] = record
        elif kind == "training":
            self.total_updates = record["epochs"] * record["updates_per_epoch"]
            self.epochs, self.left_out = record["epochs"], record["left_out"]
        elif kind in ("update", "log"):
            update, rate = int(record["update"]), float(record["samples_per_s"])
            self.epoch = record.get("epoch", self.epoch)
            self.updates[instance], self.rates[instance] = update, rate
            self.metrics.update(measured(record))
        elif kind == "checkpoint":
            self.checkpoint = record["path"]
        elif kind in _SHOWN:
            _ = [record[name] for name in _SHOWN[kind]]


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
                    found.append({"instance": instance, **record})
        return sorted(found, key=lambda record: record["time_ns"])

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def _lines(self, instance: int) -> List[bytes]:
        if instance not in self.files:
            try:
                self.files[instance] = self.run.events(instance).open("rb")
            except FileNotFoundError:
                return []
        *lines, self.rest[instance] = (self.rest.get(instance, b"") + self.files[instance].read(_MOST_PER_LOOK)).split(
            b"\n"
        )
        return lines


def _record(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("time_ns"), int) else None
