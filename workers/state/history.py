"""What a training has measured, in three forms: metrics.jsonl, TensorBoard's event files, history.csv."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Tuple

import tensorflow as tf

from ipulaunch.configs.runs.directory import RunDirectory, write_whole
from ipulaunch.configs.runs.untrusted import parse_json, read_text

# What tf.summary.scalar() would write; it needs TensorBoard, which TensorFlow 2.21 does not bring any more.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"), data_class="DATA_CLASS_SCALAR"
)
_NOT_MEASURED = ("update", "epoch", "checkpoint")
_MOST = 1 << 30  # bytes; five million rows


class History:
    """The rows of one run; instance 0 writes them."""

    def __init__(self, run: RunDirectory, log: Callable[[Mapping[str, Any]], None] = lambda row: None) -> None:
        self.run, self.log = run, log  # which gets every row as well
        self.rows: List[Dict[str, Any]] = []
        self.writer: Any = None  # until the history begins

    def begin(self, earlier: Optional[Path] = None, update: int = 0, again: Collection[str] = ()) -> None:
        """Start with the rows of the training that is continued, up to an update; all else in the run is forgotten.

        `again` are the checkpoints that will be validated again: their rows will come then.
        """
        self.rows = _rows_until(earlier, update, again) if earlier else []
        write_whole(self.run.metrics, "".join(json.dumps(row) + "\n" for row in self.rows))
        for path in self.run.tensorboard.glob("events.out.tfevents.*"):  # TensorBoard shows all that lie there
            path.unlink()
        self.writer = tf.summary.create_file_writer(str(self.run.tensorboard))
        for row in self.rows:
            self._draw(row)
            self.log(row)
        self.writer.flush()

    def add(self, row: Dict[str, Any]) -> None:
        """One row: an update, and what was measured there."""
        if self.writer is None:
            self.begin()
        self.rows.append(row)
        with self.run.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._draw(row)
        self.log(row)
        self.writer.flush()

    def _draw(self, row: Dict[str, Any]) -> None:
        with self.writer.as_default():
            for name, value in row.items():
                if name not in _NOT_MEASURED:
                    tf.summary.write(name, tf.constant(float(value), tf.float32), row["update"], _SCALAR)

    def close(self) -> None:
        """Write history.csv, a line per update; validation stands beside the training it belongs to."""
        if self.writer is not None:
            self.writer.close()
        lines: Dict[int, Dict[str, Any]] = {}
        for row in self.rows:
            lines.setdefault(row["update"], {}).update(row)
        columns = list(dict.fromkeys(name for line in lines.values() for name in line))
        text = io.StringIO()
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(lines[update] for update in sorted(lines))
        write_whole(self.run.history, text.getvalue())


def _rows_until(path: Path, last_update: int, without: Collection[str]) -> List[Dict[str, Any]]:
    """The rows up to an update, without those of some checkpoints; what cannot be read is missing in the curve."""
    rows: List[Dict[str, Any]] = []
    with contextlib.suppress(OSError):
        for line in read_text(path, _MOST).splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # half a line of a full disk
                row = parse_json(line)
                is_ours = 0 < row["update"] <= last_update and row.get("checkpoint") not in without
                if type(row["update"]) is int and is_ours and all(map(_is_value, row.items())):
                    rows.append(row)
    return rows


def _is_value(item: Tuple[str, object]) -> bool:
    name, value = item
    return type(value) is str if name == "checkpoint" else type(value) in (int, float)
