"""What a training has measured, in three forms: metrics.jsonl, TensorBoard's event files, history.csv."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, Dict, List

import tensorflow as tf

from ipulaunch.configs.run_directory import RunDirectory, write_whole

# What tf.summary.scalar() would write; it needs TensorBoard, which TensorFlow 2.21 does not bring any more.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"), data_class="DATA_CLASS_SCALAR"
)
_NOT_MEASURED = ("update", "epoch", "checkpoint")


class History:
    """The rows of one run; instance 0 writes them."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.rows: List[Dict[str, Any]] = []
        self.writer = tf.summary.create_file_writer(str(run.tensorboard))

    def add(self, row: Dict[str, Any]) -> None:
        """One row: an update, and what was measured there."""
        self.rows.append(row)
        with self.run.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._draw(row)

    def _draw(self, row: Dict[str, Any]) -> None:
        with self.writer.as_default():
            for name, value in row.items():
                if name not in _NOT_MEASURED:
                    tf.summary.write(name, tf.constant(value, tf.float32), row["update"], _SCALAR)
        self.writer.flush()

    def carry_over(self, earlier: Path, last_update: int) -> None:
        """Begin with the rows of the run that this one continues."""
        try:
            lines = earlier.read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        rows = [row for row in map(json.loads, lines) if row["update"] <= last_update and "checkpoint" not in row]
        self.rows = rows
        write_whole(self.run.metrics, "".join(json.dumps(row) + "\n" for row in rows))
        for row in rows:
            self._draw(row)

    def close(self) -> None:
        """Write history.csv, a line per update; validation stands beside the training it belongs to."""
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
