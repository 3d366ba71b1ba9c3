"""The records of instances, read in bounded time: of very large files, pieces that are spread evenly."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import BinaryIO, Dict, Iterator, List, Optional

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import (
    CheckpointWritten,
    Event,
    Log,
    Resumed,
    Started,
    Times,
    Training,
    Update,
    Validation,
    WarningEvent,
    read_event,
)
from ipulaunch.configs.runs.untrusted import open_regular, parse_json

_PIECES = 32
_AT_ONCE = 1 << 22  # bytes
_LONGEST_LINE = 1 << 20  # bytes
_MOST_MOMENTS = 500  # checkpoints and validations of an attempt; the file names all of them
_MOST_WARNINGS = 50
# Most lines are updates and logs, of which only the last one counts here; the curves are in metrics.jsonl.
_SELDOM_PARSED = (b'{"event": "update"', b'{"event": "log"')
_NEVER_PARSED = (b'{"event": "validating"', b'{"event": "indexing"', b'{"event": "staging"')
_TIME = b'"time_ns": '


@dataclass
class Moment:
    """Something that happened at a time."""

    time_s: float
    kind: str
    update: int


@dataclass
class InstanceRecords:
    """What an instance has recorded."""

    instance: int
    started: Optional[Started] = None
    training: Optional[Training] = None
    resumed: Optional[Resumed] = None
    last: Optional[Event] = None  # an Update or a Log
    seconds: Dict[str, float] = field(default_factory=dict)  # of each part of its work
    moments: List[Moment] = field(default_factory=list)
    warnings: Dict[str, int] = field(default_factory=dict)  # how often each was given
    first_s: float = 0.0
    last_s: float = 0.0
    silence_s: float = 0.0  # the longest, and when it began
    silent_from_s: float = 0.0
    is_sampled: bool = False

    @property
    def host(self) -> str:
        return self.started.host if self.started else ""

    @property
    def update(self) -> int:
        reached = self.last.update if isinstance(self.last, (Update, Log)) else 0
        return max(reached, self.resumed.update if self.resumed else 0)

    @property
    def samples_per_s(self) -> Optional[float]:
        return self.last.samples_per_s if isinstance(self.last, (Update, Log)) else None


def read_records(run: RunDirectory, instance: int, most_bytes: int) -> InstanceRecords:
    """The records of one instance; of a file that is larger than so many bytes, a sample."""
    found = InstanceRecords(instance)
    try:
        file = open_regular(run.events(instance))
    except OSError:
        return found
    last_line, before_s = b"", 0.0
    with file:
        size = os.fstat(file.fileno()).st_size
        found.is_sampled = size > most_bytes
        for lines in _sampled(file, size, most_bytes) if found.is_sampled else _all_lines(file):
            before_s = 0.0 if found.is_sampled else before_s  # what is between two pieces is not silence
            for line in lines:
                now_s = _time_of(line)
                if now_s:
                    _note_time(found, before_s, now_s)
                    before_s = now_s
                if line.startswith(_SELDOM_PARSED):
                    last_line = line
                elif not line.startswith(_NEVER_PARSED):
                    _take(found, line, now_s)
    if last_line:
        _take(found, last_line, 0.0)
    return found


def _all_lines(file: BinaryIO) -> Iterator[List[bytes]]:
    """The whole lines of a file, many at once."""
    rest = b""
    while True:
        data = file.read(_AT_ONCE)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        rest = rest if len(rest) <= _LONGEST_LINE else b"?"  # which is no record, whatever follows
        yield lines


def _sampled(file: BinaryIO, size: int, most_bytes: int) -> Iterator[List[bytes]]:
    """The whole lines of pieces of a file, its first and its last ones among them."""
    length = most_bytes // _PIECES
    for number in range(_PIECES):
        begin = (size - length) * number // (_PIECES - 1)
        file.seek(begin)
        lines = file.read(length).split(b"\n")
        yield lines[1 if begin else 0 : -1]


def _time_of(line: bytes) -> float:
    at = line.find(_TIME)
    digits = line[at + len(_TIME) : at + len(_TIME) + 19]
    return int(digits) / 1e9 if at >= 0 and digits.isdigit() else 0.0


def _note_time(found: InstanceRecords, before_s: float, now_s: float) -> None:
    found.first_s = min(found.first_s or now_s, now_s)
    found.last_s = max(found.last_s, now_s)
    if before_s and now_s - before_s > found.silence_s:
        found.silence_s, found.silent_from_s = now_s - before_s, before_s


def _take(found: InstanceRecords, line: bytes, now_s: float) -> None:
    try:
        event = read_event(parse_json(line))
    except ValueError:
        return
    if isinstance(event, Times):
        for part, seconds in event.seconds.items():
            found.seconds[part] = found.seconds.get(part, 0.0) + seconds
    elif isinstance(event, Started):
        found.started = event
    elif isinstance(event, Training):
        found.training = event
    elif isinstance(event, Resumed):
        found.resumed = event
    elif isinstance(event, (Update, Log)):
        found.last = event
    elif isinstance(event, (CheckpointWritten, Validation)) and len(found.moments) < _MOST_MOMENTS:
        found.moments.append(Moment(now_s, event.kind, event.update))
    elif isinstance(event, WarningEvent) and len(found.warnings) < _MOST_WARNINGS:
        found.warnings[event.message] = found.warnings.get(event.message, 0) + 1
