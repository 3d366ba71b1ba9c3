"""What a training has measured, in three forms: metrics.jsonl, TensorBoard's event files, history.csv."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, Dict, List

import tensorflow as tf

from ipulaunch.configs.run_directory import RunDirectory, write_whole

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
        with self.writer.as_default():
            for name, value in row.items():
                if name not in _NOT_MEASURED:
                    tf.summary.scalar(name, value, step=row["update"])
        self.writer.flush()

    def carry_over(self, earlier: Path, last_update: int) -> None:
        """Begin with the rows of the run that this one continues."""
        try:
            lines = earlier.read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        for row in map(json.loads, lines):
            if row["update"] <= last_update and "checkpoint" not in row:
                self.add(row)

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
