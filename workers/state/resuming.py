"""Resuming: the newest whole checkpoint of an earlier training, which must be of the same one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.checkpoints import found_in
from ipulaunch.configs.runs.directory import RunDirectory, records_of
from ipulaunch.topology.planning.identity import network_of_training, require_long_enough, require_same
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.state import checkpoints
from ipulaunch.workers.state.checkpoints import Checkpoint
from ipulaunch.workers.state.keeper import Keeper
from ipulaunch.workers.state.training_state import TrainingState

TOO_SHORT = "give a larger --num-epochs, or evaluate it with --no-training --checkpoint-input-dir"


def resume(
    instance: Instance, keeper: Keeper, identity: Dict[str, Any], state: TrainingState, progress: Progress
) -> Optional[Checkpoint]:
    """Take up the newest whole checkpoint, which must be of the same training.

    A further attempt at a run whose checkpoints are all damaged begins anew; a run that was named must have one.
    """
    where = Path(str(instance.settings.training.resume))
    checkpoint, damaged = _newest(instance, where)
    if checkpoint is None and keeper.resumes_itself and instance.run.attempts.is_dir():
        message = (
            f"none of the checkpoints in {keeper.directory} is complete: the run starts from the beginning, at update 0"
        )
        instance.warn(message)
        keeper.saved = []  # nor are they validated
        return None
    if checkpoint is None:
        named = bool(damaged) and found_in(where) == [where]
        message = damaged[0] if named else "; ".join([f"there is no complete checkpoint in {where}", *damaged[:1]])
        raise DataError(message, hint="name another one, or leave --resume out to start a new training")
    path = str(checkpoint.path)
    for reason in damaged:
        instance.warn(f"{reason}; {checkpoint.path.name} is taken instead")
    require_same(identity, checkpoint.facts, path, "resume with the settings of the run, which are in its job.yaml")
    require_long_enough(path, checkpoint.update, progress.events.total_updates, hint=TOO_SHORT)
    state.restore(checkpoint)
    progress.continue_from(path, checkpoint.update, checkpoint.facts)
    return checkpoint


def require_same_network(instance: Instance, checkpoint: Checkpoint) -> None:
    """Refuse to evaluate the weights of another network."""
    hint = "evaluate it with the settings of its run, which are in its job.yaml"
    require_same(network_of_training(instance.settings), checkpoint.facts, str(checkpoint.path), hint)


def metrics_of(instance: Instance, checkpoint: Checkpoint) -> Path:
    """What was measured before a checkpoint: in the run that it lies in or was written by, else in the one named."""
    inside, writer = checkpoint.path.parent.parent, Path(str(checkpoint.facts.get("run", instance.run.path)))
    named = records_of(Path(str(instance.settings.training.resume))).path
    runs = [RunDirectory(path) for path in (inside, writer, named, instance.run.path)]
    return next((run.metrics for run in runs if run.metrics.is_file()), instance.run.metrics)


def _newest(instance: Instance, where: Path) -> Tuple[Optional[Checkpoint], List[str]]:
    """The newest whole checkpoint that instance 0 sees, on all, and what is wrong with those that are newer."""
    damaged: List[str] = []
    newest = checkpoints.newest_whole(where, damaged.append) if instance.writes else None
    found = json.dumps([str(newest.path) if newest else "", damaged])
    path, damaged = json.loads(instance.backend.collective.first(found))
    if newest is None and path:
        newest = checkpoints.load(Path(path))
    return newest, damaged
