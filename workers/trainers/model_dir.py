"""The directory of an Estimator's checkpoints: the newest one, and whether it is of the same training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.checkpoints import checkpoints_of
from ipulaunch.configs.runs.directory import RunDirectory, write_whole
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.topology.planning.identity import require_long_enough, require_same
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.progress import Progress

_NOTES = "ipulaunch.json"


class Newest(NamedTuple):
    """The newest checkpoint: where it is, and how many updates it has made."""

    path: str
    update: int


class ModelDir:
    """The directory that instance 0 writes to; the others have one of their own that points to its checkpoints."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.path = checkpoints_of(instance.run, instance.job).resolve()

    def newest(self) -> Optional[Newest]:
        """What instance 0 finds, on all."""
        found = tf.train.latest_checkpoint(str(self.path)) if self.instance.writes and self.path.is_dir() else None
        path = self.instance.backend.collective.first(found or "")
        return self.newest_of(path) if path else None

    def newest_of(self, path: str) -> Newest:
        """A checkpoint by its path, whose name ends with its step."""
        step = path.rpartition("-")[2]
        if not (step.isascii() and step.isdigit()):
            raise self._unknown(f"{Path(path).name} does not tell its step")
        return Newest(path, int(step) // self.instance.batch.accumulation)

    def _unknown(self, why: str) -> DataError:
        return DataError(
            f"{self.path} has checkpoints that are not known to be of this training: {why}",
            hint="name another --model-dir, or the one of a training that ipulaunch has begun",
        )

    def prepared(self, newest: Optional[Newest]) -> str:
        """The directory this instance's Estimator begins in, at the newest checkpoint."""
        if self.instance.writes:
            self.path.mkdir(parents=True, exist_ok=True)
            return str(self.path)
        own = self.instance.run.instance(self.instance.index) / "estimator"
        own.mkdir(parents=True, exist_ok=True)
        if newest is not None:
            tf.compat.v1.train.update_checkpoint_state(str(own), newest.path)
        return str(own)

    def check(self, identity: Dict[str, Any], newest: Optional[Newest], total_updates: int) -> Dict[str, Any]:
        """Refuse to continue another training than ours; returns what was noted of that."""
        if newest is None:
            if self.instance.writes:
                self.path.mkdir(parents=True, exist_ok=True)
                self._write(identity)
            return {}
        try:
            known = notes_of(self.path)
        except (OSError, ValueError, TypeError) as error:
            raise self._unknown(str(error)) from error
        hint = "continue with the settings it was begun with, or name another --model-dir"
        require_same(identity, known, str(self.path), hint)
        hint = "give a larger --num-epochs, or evaluate it with --test-only"
        require_long_enough(newest.path, newest.update, total_updates, hint)
        if known.get("update") != newest.update:  # it ended between the two writes, or a checkpoint was removed
            known["since_log"] = {"updates": 0, "sums": {}}
        return known

    def metrics_of(self, known: Dict[str, Any]) -> Path:
        """What was measured before the newest checkpoint: in the run that its notes name, or in this one."""
        own = self.instance.run
        is_named = self.instance.settings.estimator_run.model_dir is not None
        writer = RunDirectory(Path(str(known.get("run", own.path) if is_named else own.path)))
        return writer.metrics if writer.metrics.is_file() else own.metrics

    def note(self, identity: Dict[str, Any], progress: Progress) -> None:
        """Write down which training the checkpoints are of, and what it has made until the newest."""
        position = {"run": str(self.instance.run.path.absolute()), "update": progress.updates}
        self._write({**identity, **position, **progress.facts})

    def _write(self, notes: Dict[str, Any]) -> None:
        write_whole(self.path / _NOTES, json.dumps(notes, indent=1) + "\n")


def notes_of(directory: Path) -> Dict[str, Any]:
    """What was written down beside an Estimator's checkpoints. Raises OSError, ValueError or TypeError."""
    return dict(parse_json(read_text(directory / _NOTES)))
