"""Keeping checkpoints: where they go, whose they are, and which of them stay."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional

from ipulaunch.configs.errors import NotReadyError, SettingsError
from ipulaunch.configs.runs.checkpoints import checkpoints_of, found_in
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import CheckpointWritten, Resumed, read_event
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.state import checkpoints
from ipulaunch.workers.state.training_state import TrainingState


class Keeper:
    """Writes checkpoints, on instance 0 or if asked on all, and removes those that are not to be kept."""

    def __init__(self, instance: Instance, state: TrainingState, identity: Dict[str, Any]) -> None:
        training = instance.settings.training
        self.instance, self.state, self.identity = instance, state, identity
        self.writes = instance.writes or training.ckpt_all_instances
        self.shared = checkpoints_of(instance.run, instance.job)
        # Those of instance 0 are where they always are: resuming and validation read no others.
        self.directory = self.shared if instance.writes else self.shared / f"rank{instance.index}"
        self.run = str(instance.run.path.absolute())
        self.is_elsewhere = training.checkpoint_output_dir is not None
        if self.writes and self.is_elsewhere:
            _require_writable(self.directory)
        elif self.writes and not instance.writes:
            self.shared.mkdir(exist_ok=True)
        if instance.writes and self.is_elsewhere:
            self._require_own()
        self.there = found_in(self.directory) if self.writes else []
        self.keep: Optional[int] = training.keep_checkpoints
        # Those of an earlier attempt at the same run count as well.
        self.saved: List[Path] = self.there if self.resumes_itself else []
        self.losses: Dict[Path, float] = {path: checkpoints.loss_of(path) for path in self.saved}
        if self.writes and not self.is_elsewhere:  # elsewhere others may be writing
            checkpoints.sweep(self.directory)

    @property
    def resumes_itself(self) -> bool:
        """Whether the run that is continued is the one that we write to."""
        resume = self.instance.settings.training.resume
        return resume is not None and Path(resume) in (self.instance.run.path, self.shared)

    def _require_own(self) -> None:
        """Refuse a place with checkpoints of another run, unless that is the one that is continued."""
        writers = [checkpoints.run_of(path) for path in found_in(self.directory)]
        others = [run for run in writers if run != self.run]
        if others and not (self._continues_there and (self.run in writers or not _was_kept_out(self.instance.run))):
            raise SettingsError(
                f"{self.directory} holds checkpoints of another run{f', {others[-1]}' if others[-1] else ''}",
                hint=f"choose another --checkpoint-output-dir, or continue that run with --resume {self.directory}",
            )

    @property
    def _continues_there(self) -> bool:
        resume = self.instance.settings.training.resume
        continued = found_in(Path(resume)) if resume else []
        return any(path.parent.resolve() == self.directory.resolve() for path in continued)

    def _require_alone(self) -> None:
        """Refuse to write where another run has begun to write since this one started."""
        for path in found_in(self.directory):
            if path in self.there or path in self.saved:
                continue
            run = checkpoints.run_of(path)
            if run != self.run:
                raise SettingsError(
                    f"another run{f', {run},' if run else ''} has begun to write checkpoints to {self.directory}",
                    hint="choose another --checkpoint-output-dir for one of them",
                )

    def save(self, progress: Progress) -> None:
        if not self.writes:
            return
        self.instance.records.require_current()
        if self.is_elsewhere:
            self._require_alone()
        position = {"update": progress.updates, "epoch": progress.epoch, "run": self.run}
        facts = {**position, **progress.facts, **self.identity}
        path = self.state.save(self.directory, facts)
        self.saved = [*(other for other in self.saved if other < path), path]
        self.losses[path] = checkpoints.mean_loss(facts)
        if self.keep is not None:
            best = min(self.saved, key=self.losses.__getitem__)
            self.saved = checkpoints.prune(self.saved, self.keep, best)
        if self.instance.writes:
            self.instance.records.event(CheckpointWritten(self.newest, progress.updates, progress.epoch))

    def clean(self) -> None:
        """Remove the checkpoints of this run, and their directory if nothing else is in it; all instances together."""
        if not self.instance.writes:
            self._remove()
        self.instance.backend.collective.first("removed")  # what is inside the directory of instance 0
        if self.instance.writes:
            self._remove()

    def _remove(self) -> None:
        self.saved = checkpoints.prune(self.saved, 0, None)
        with contextlib.suppress(OSError):  # it holds something of others, or was never made
            self.directory.rmdir()

    @property
    def newest(self) -> str:
        """The newest checkpoint, from the run directory where it is in it."""
        if not self.saved:
            return ""
        with contextlib.suppress(ValueError):
            return str(self.saved[-1].relative_to(self.instance.run.path))
        return str(self.saved[-1])


def _was_kept_out(run: RunDirectory) -> bool:
    """Whether earlier attempts at a run have neither read nor written a checkpoint.

    The launcher lets every further attempt continue from where its checkpoints go, also if those that lie there are the
    reason why the first one was refused.
    """
    paths = [run.attempt(number).events(0) for number in run.earlier_attempts()]
    try:
        texts = [read_text(path) for path in paths if path.exists()]
        events = (read_event(parse_json(line)) for text in texts for line in text.splitlines())
        used = any(isinstance(event, (CheckpointWritten, Resumed)) for event in events)
    except (OSError, ValueError):  # what cannot be read keeps nobody from continuing
        return False
    return run.attempts.is_dir() and not used


def _require_writable(directory: Path) -> None:
    """Make a place for checkpoints, and refuse now one that would take none after hours."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=directory):
            pass
    except OSError as error:
        raise NotReadyError(
            f"checkpoints cannot be written to {directory}: {error.strerror}",
            hint="choose another --checkpoint-output-dir, or leave it out: they then go into the run directory",
        ) from error
