"""What a run has measured, from its metrics.jsonl: a curve for each measure, and what follows from several."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.untrusted import open_regular, parse_json
from ipulaunch.launcher.report.curve import Curve

_MOST_CURVES = 40  # a run has some ten; a file may claim any number
_LONGEST_LINE = 1 << 16  # bytes of a row
_AT_ONCE = 1 << 18  # bytes of rows that are parsed together, which halves the time
_LAST_UPDATE = 1 << 53
THROUGHPUT, SINCE_LAST, SECONDS, EPOCHS = "samples_per_s", "samples_per_s since the last log", "train_s", "epoch"
LEARNING_RATE = "learning_rate"
VALIDATION = "val_"  # begins the names of what validation measures

_ASIDE = ("update", "checkpoint", EPOCHS, SECONDS, THROUGHPUT, SINCE_LAST, LEARNING_RATE)


class Measures(NamedTuple):
    """The curves of a run by the names of its measures."""

    curves: Dict[str, Curve]
    rows: int
    left_out: int  # values of measures beyond those that are kept

    def named(self, name: str) -> Curve:
        return self.curves.get(name) or Curve()

    @property
    def names(self) -> List[str]:
        """What was measured, each name once for training and validation: loss, accuracy."""
        names = (name[len(VALIDATION) :] if name.startswith(VALIDATION) else name for name in self.curves)
        return [name for name in dict.fromkeys(names) if name not in _ASIDE]


class _Reader:
    """Takes rows, many at once."""

    def __init__(self, batch: Optional[int]) -> None:
        self.batch = batch
        self.curves: Dict[str, Curve] = {}
        self.rows = self.left_out = 0
        self.before: Optional[Tuple[int, float]] = None  # update and seconds of the last log

    def take(self, rows: Sequence[Dict[str, Any]]) -> None:
        for names, group in itertools.groupby(filter(_is_row, rows), key=tuple):
            alike = list(group)
            self.rows += len(alike)
            updates = [row["update"] for row in alike]
            for name in names:
                if name not in ("update", "checkpoint"):
                    self._extend(name, updates, [row[name] for row in alike])
            if self.batch and SECONDS in names:
                self._rates(self.batch, updates, [row[SECONDS] for row in alike])

    def _extend(self, name: str, updates: Sequence[int], values: Sequence[Any]) -> None:
        if not set(map(type, values)) <= {int, float}:
            numbers = [(update, value) for update, value in zip(updates, values) if type(value) in (int, float)]
            updates, values = [update for update, _ in numbers], [value for _, value in numbers]
        if values and name not in self.curves and len(self.curves) >= _MOST_CURVES:
            self.left_out += len(values)
        elif values:
            self.curves.setdefault(name, Curve()).extend(updates, values)

    def _rates(self, batch: int, updates: Sequence[int], seconds: Sequence[Any]) -> None:
        """The throughput between one log and the next."""
        found: List[Tuple[int, float]] = []
        for update, now in zip(updates, seconds):
            if type(now) not in (int, float):
                continue
            if self.before is not None and update > self.before[0] and now > self.before[1]:
                found.append((update, (update - self.before[0]) * batch / (now - self.before[1])))
            self.before = update, now
        self._extend(SINCE_LAST, [update for update, _ in found], [rate for _, rate in found])


def read_measures(run: RunDirectory, batch: Optional[int]) -> Measures:
    """The curves of a run; with its global batch also the throughput between one log and the next."""
    reader = _Reader(batch)
    with contextlib.suppress(OSError), open_regular(run.metrics) as file:
        for lines in _batches(file):
            reader.take(_parsed(lines))
    return Measures(reader.curves, reader.rows, reader.left_out)


def _batches(file: BinaryIO) -> Iterator[List[bytes]]:
    """The lines of a file, many at once; one that is too long to be a row is left out."""
    rest = b""
    while True:
        data = file.read(_AT_ONCE)
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            rest = b"?"  # what follows up to the end of the line is no row either
        yield lines if data else [rest]
        if not data:
            return


def _parsed(lines: Sequence[bytes]) -> List[Any]:
    lines = [line for line in lines if line and len(line) <= _LONGEST_LINE]
    try:
        rows: List[Any] = parse_json(b"[" + b",".join(lines) + b"]")
        return rows
    except ValueError:  # half a line, of a full disk or of a run that goes on
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                found.append(parse_json(line))
        return found


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and type(row.get("update")) is int and 0 <= row["update"] < _LAST_UPDATE
