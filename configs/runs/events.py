"""The events of an instance: what each one holds, its line in events.jsonl, and its words for people."""

from __future__ import annotations

import dataclasses
import reprlib
from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple, Type, get_type_hints

from ipulaunch.configs.runs.event_fields import EXPECTED, is_number
from ipulaunch.configs.text import counted, duration

# Numbers in a row that are not metrics.
_NO_METRICS = ("event", "time_ns", "instance", "update", "epoch", "epochs", "samples", "samples_per_s", "checkpoint")


@dataclass(frozen=True)
class Event:
    """Something that happened in an instance. A field with a default may be missing in a line."""

    kind: ClassVar[str]

    def to_json(self) -> Dict[str, Any]:
        """The fields of the event's line; read_event() gives back an equal event."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        metrics = values.pop("metrics", {})
        return {"event": self.kind, **values, **metrics}

    @property
    def text(self) -> str:
        """One line for people; nothing for events that only count."""
        return ""


@dataclass(frozen=True)
class Joining(Event):
    """The instance has loaded TensorFlow, and waits for the others. Until they come, it may show no signs of life."""

    kind = "joining"


@dataclass(frozen=True)
class Started(Event):
    """The instance has found its place and its cores, and has loaded TensorFlow."""

    kind = "started"
    host: str
    pid: int = 0
    backend: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    binding: Mapping[str, Any] = field(default_factory=dict)
    threads: Mapping[str, Any] = field(default_factory=dict)
    tensorflow: str = ""
    python: str = ""

    @property
    def cpus(self) -> str:
        return str(self.binding.get("cpus", ""))

    @property
    def text(self) -> str:
        instance, instances = self.place.get("instance"), self.place.get("instances")
        return (
            f"instance {instance} of {instances} on {self.host}: process {self.pid},"
            f" CPUs {self.cpus}, TensorFlow {self.tensorflow}, Python {self.python}"
        )


@dataclass(frozen=True)
class Working(Event):
    """How much of something other than training is done."""

    done: int
    total: int
    left_s: float = 0.0  # for the rest, at the rate so far; 0: not known
    unit: ClassVar[str] = "files"
    shift: ClassVar[int] = 0  # of the numbers, in bits

    @property
    def amount(self) -> str:
        """What is done, how much of it, and how long the rest will take."""
        left = f", about {duration(self.left_s)} left" if self.left_s else ""
        return f"{self.kind}: {self.done >> self.shift} of {self.total >> self.shift} {self.unit}{left}"


@dataclass(frozen=True)
class Staging(Working):
    """The instance copies its share of the files, in bytes."""

    kind = "staging"
    unit, shift = "MiB", 20


@dataclass(frozen=True)
class Indexing(Working):
    """The instance looks for the records in files."""

    kind = "indexing"


@dataclass(frozen=True)
class Validating(Working):
    """The instance evaluates a checkpoint."""

    kind = "validating"
    unit = "micro-batches"


PREPARING: Mapping[str, Type[Working]] = {Staging.kind: Staging, Indexing.kind: Indexing}


@dataclass(frozen=True)
class Loading(Event):
    """The device loads the program."""

    kind = "loading"

    @property
    def text(self) -> str:
        return "loading the program, before the clock starts"


@dataclass(frozen=True)
class Training(Event):
    """The training begins."""

    kind = "training"
    samples: int
    epochs: int
    updates_per_epoch: int
    first_update: int
    left_out: int  # samples of an epoch
    updates_per_call: int = 0
    api: str = ""
    batch: str = ""
    preparation: str = ""  # of a set that is not as published
    shares: int = 1  # of the samples, each shuffled by itself

    @property
    def total_updates(self) -> int:
        return self.epochs * self.updates_per_epoch

    @property
    def text(self) -> str:
        left_out = f"; {counted(self.left_out, 'sample')} left out per epoch" if self.left_out else ""
        updates = counted(self.updates_per_epoch, "weight update")
        prepared = f"; a prepared set: {self.preparation}" if self.preparation else ""
        shared = f"; samples shuffled within {self.shares} shares" if self.shares > 1 else ""
        return f"training: {counted(self.epochs, 'epoch')} of {updates}{left_out}{prepared}{shared}"


@dataclass(frozen=True)
class Resumed(Event):
    """The training continues from a checkpoint."""

    kind = "resumed"
    path: str
    update: int

    @property
    def text(self) -> str:
        return f"resumed after update {self.update}: {self.path}"


@dataclass(frozen=True)
class Update(Event):
    """The training has made an update; events for all of them would be too many."""

    kind = "update"
    update: int
    samples_per_s: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Log(Event):
    """The means of the metrics since the last log."""

    kind = "log"
    epochs: int
    samples_per_s: float
    update: int
    epoch: float
    metrics: Mapping[str, float]

    @property
    def text(self) -> str:
        return f"epoch {self.epoch}/{self.epochs}: {metrics_text(self.metrics)}"


@dataclass(frozen=True)
class Times(Event):
    """What an instance did since its last such event, or since its work began: seconds by part, which add up."""

    kind = "times"
    update: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class CheckpointWritten(Event):
    """A new checkpoint is complete."""

    kind = "checkpoint"
    path: str
    update: int
    epoch: Optional[float] = None

    def to_json(self) -> Dict[str, Any]:
        return _without_none(super().to_json(), "epoch")

    @property
    def text(self) -> str:
        return f"checkpoint of update {self.update}: {self.path}"


@dataclass(frozen=True)
class Validation(Event):
    """The metrics of a checkpoint, or of the weights as they are."""

    kind = "validation"
    samples: int
    update: int
    epoch: Optional[float]
    metrics: Mapping[str, float]
    checkpoint: Optional[str] = None

    def to_json(self) -> Dict[str, Any]:
        return _without_none(super().to_json(), "checkpoint")

    @property
    def text(self) -> str:
        return f"validation of {self.checkpoint or 'the weights'}: {metrics_text(self.metrics)}"


@dataclass(frozen=True)
class TimeToTrain(Event):
    """The training has ended, and its validation with it."""

    kind = "time_to_train"
    seconds: float

    @property
    def text(self) -> str:
        return f"time to train: {self.seconds:.1f} s, with validation"


@dataclass(frozen=True)
class Replacement(Event):
    """The instance has taken another sample in place of one that it cannot read."""

    kind = "replacement"
    sample: int
    by: int
    message: str = ""


@dataclass(frozen=True)
class Replaced(Event):
    """At the end: a sample or a file that the instance could not read."""

    kind = "replaced"
    message: str


@dataclass(frozen=True)
class WarningEvent(Event):
    """The user should know something."""

    kind = "warning"
    message: str

    @property
    def text(self) -> str:
        return f"warning: {self.message}"


@dataclass(frozen=True)
class UnknownEvent(Event):
    """An event of another version."""

    kind = ""


_KINDS: Dict[str, Type[Event]] = {
    event.kind: event
    for event in (
        *(Joining, Started, Staging, Indexing, Validating, Loading, Training, Resumed, Update, Log, Times),
        *(CheckpointWritten, Validation, TimeToTrain, Replacement, Replaced, WarningEvent),
    )
}


def _fields(event: Type[Event]) -> List[Tuple[str, Any, bool]]:
    """Name and type of each field of an event, and whether a line must have it."""
    types, missing = get_type_hints(event), dataclasses.MISSING
    return [
        (each.name, types[each.name], each.default is missing and each.default_factory is missing)
        for each in dataclasses.fields(event)
    ]


# Resolved when this module is imported, before anybody's lines are read: it evaluates the annotations.
_FIELDS = {kind: _fields(event) for kind, event in _KINDS.items()}


def read_event(record: Any) -> Event:
    """The event in a parsed line, which anybody may have written; a ValueError says what is wrong with it."""
    if not isinstance(record, dict):
        raise ValueError(f"{reprlib.repr(record)}, expected an event: a JSON object")
    kind = record.get("event")
    if not isinstance(kind, str):
        raise ValueError(f"the kind of an event is {reprlib.repr(kind)}, expected a word")
    if kind not in _KINDS:
        return UnknownEvent()
    event, values = _KINDS[kind], {}
    for name, wanted, is_needed in _FIELDS[kind]:
        if name == "metrics":
            values[name] = measured(record)
        elif name in record or is_needed:
            values[name] = _read(record, kind, name, wanted)
    return event(**values)


def _read(record: Mapping[str, Any], kind: str, name: str, wanted: Any) -> Any:
    value = record.get(name)
    is_so, expected = EXPECTED[wanted]
    if name not in record or not is_so(value):
        raise ValueError(f"{name} of the event {kind} is {reprlib.repr(value)}, expected {expected}")
    return value


def _without_none(fields: Dict[str, Any], name: str) -> Dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name or value is not None}


def measured(row: Mapping[str, Any]) -> Dict[str, float]:
    """The metrics in a row."""
    return {name: value for name, value in row.items() if name not in _NO_METRICS and is_number(value)}


def metrics_text(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
