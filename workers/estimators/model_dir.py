"""The directory of an Estimator's checkpoints: the newest one, and whether it is of the same training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

import tensorflow as tf

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.run_directory import write_whole
from ipulaunch.workers.instance import Instance

_IDENTITY = "ipulaunch.json"


class Newest(NamedTuple):
    """The newest checkpoint: where it is, and how many updates it has made."""

    path: str
    update: int


class ModelDir:
    """The directory that instance 0 writes to; the others have one of their own that points to its checkpoints."""

    def __init__(self, at: Instance) -> None:
        self.at = at
        self.path = Path(at.job.settings.estimator.model_dir or at.run.checkpoints).resolve()

    def newest(self) -> Optional[Newest]:
        """What instance 0 finds, on all."""
        found = tf.train.latest_checkpoint(str(self.path)) if self.at.writes and self.path.is_dir() else None
        path = self.at.backend.collective.first(found or "")
        if not path:
            return None
        return Newest(path, int(path.rpartition("-")[2]) // self.at.batch.accumulation)

    def prepared(self, newest: Optional[Newest]) -> str:
        """The directory this instance's Estimator begins in, at the newest checkpoint."""
        if self.at.writes:
            self.path.mkdir(parents=True, exist_ok=True)
            return str(self.path)
        own = self.at.run.instance(self.at.place.instance) / "estimator"
        own.mkdir(parents=True, exist_ok=True)
        if newest is not None:
            tf.compat.v1.train.update_checkpoint_state(str(own), newest.path)
        return str(own)

    def check(self, identity: Dict[str, Any], newest: Optional[Newest], total_updates: int) -> None:
        """Refuse to continue another training than ours; note which one ours is."""
        file = self.path / _IDENTITY
        if newest is None:
            if self.at.writes:
                self.path.mkdir(parents=True, exist_ok=True)
                write_whole(file, json.dumps(identity, indent=1) + "\n")
            return
        try:
            known = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self.path} has checkpoints that are not known to be of this training: {error}",
                hint="name another --model-dir, or the one of a training that ipulaunch has begun",
            ) from error
        for name, value in identity.items():
            if known.get(name) != value:
                raise SettingsError(
                    f"{self.path} was trained with {name.replace('_', ' ')} {known.get(name)}, this job has {value}",
                    hint="continue with the settings it was begun with, or name another --model-dir",
                )
        if newest.update > total_updates:
            raise SettingsError(
                f"{newest.path} has made {newest.update} updates, and this training is {total_updates} long",
                hint="give a larger --num-epochs, or evaluate it with --test-only",
            )
