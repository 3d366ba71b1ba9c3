"""Whether a training can continue the run that it names: what its checkpoint says of itself, before anything starts."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.runs.checkpoints import facts_of, found_in
from ipulaunch.configs.runs.directory import records_of
from ipulaunch.configs.runs.job import Job, job_of
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.configs.settings.schema import leaves, value_of
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.launcher.launch.earlier_runs import option, shown
from ipulaunch.topology import Batch, Plan
from ipulaunch.topology.planning.host_events import events_of
from ipulaunch.topology.planning.identity import differences, identity_of

# The setting behind each part of an identity that a single setting decides.
_SETTINGS = {
    "model": "model.name",
    "samples": "data.n_train",
    "remainder": "training.remainder",
    "seed": "training.seed",
    "block": "data.shuffle_block",
    "window": "data.shuffle_window",
    "shuffle": "data.shuffle",
}


def require_continuable(resolved: Resolved, plan: Plan) -> None:
    """Refuse to continue another training, or one that has made more updates, with the options that make it work.

    The instances look again: they know how many samples there are, and whether a checkpoint is whole.
    """
    settings, batch = resolved.settings, plan.batch
    if settings.training.resume is None or settings.api != KERAS or not settings.training.training:
        return
    found = _newest(Path(settings.training.resume))
    if found is None:
        return
    path, facts = found
    samples = _samples(settings, facts)
    ours = identity_of(resolved.workload, settings, plan, samples)
    differing = differences(ours, facts)
    if differing:
        theirs, own = (_listed(differing, one) for one in (facts, ours))
        earlier = job_of(records_of(Path(settings.training.resume)))
        raise SettingsError(
            f"{path} was trained with {theirs}, and this job has {own}",
            hint=_hint(differing, facts, earlier, settings, batch),
        )
    events, _ = events_of(settings.training, samples, batch)
    made = facts.get("update")
    if isinstance(made, int) and made > events.total_updates:
        epochs = -(-made // events.updates_per_epoch)
        raise SettingsError(
            f"{path} has made {made} updates, and this training is {events.total_updates} long:"
            f" {events.epochs} x {events.updates_per_epoch}",
            hint=f"give --num-epochs {epochs} or more, or evaluate it with --no-training --checkpoint-input-dir"
            f" {shlex.quote(settings.training.resume)}",
        )


def _newest(directory: Path) -> Optional[Tuple[Path, Dict[str, Any]]]:
    """The newest checkpoint that says something of itself."""
    try:
        paths = found_in(directory)
    except OSError:  # only others may look there
        return None
    for path in reversed(paths):
        try:
            return path, facts_of(path)
        except (OSError, ValueError):
            continue
    return None


def _samples(settings: WorkloadSettings, facts: Mapping[str, Any]) -> int:
    """How many samples the job trains on, as far as it is known here: files may have fewer than it asks for."""
    known, wanted = facts.get("samples"), settings.data.n_train
    are_enough = isinstance(known, int) and 0 < known <= wanted
    return known if are_enough and not settings.data.is_synthetic else wanted  # type: ignore[return-value]


def _listed(names: List[str], values: Mapping[str, Any]) -> str:
    return " and ".join(f"{name.replace('_', ' ')} {shown(values[name])}" for name in names)


def _hint(
    differing: List[str],
    facts: Mapping[str, Any],
    earlier: Optional[Job],
    settings: WorkloadSettings,
    batch: Batch,
) -> str:
    by_key = {leaf.key: leaf for leaf in leaves(type(settings))}
    options: List[str] = []
    for name in differing:
        if name in _SETTINGS:
            options.append(option(by_key[_SETTINGS[name]], facts[name]))
        elif name == "shares" and facts[name] != 1:
            return f"with --stage-shard samples belong to hosts: continue on {facts[name]} of them, and with the option"
        elif name == "shares":
            options.append("--no-stage-shard")
        elif name == "global_batch":
            options += _batch_options(facts[name], earlier, batch)
        elif name == "optimizer" and earlier is not None:
            options += [
                option(by_key[key], value_of(earlier.settings, key))
                for key in ("optimizer.name", "optimizer.momentum")
                if value_of(earlier.settings, key) != value_of(settings, key)
            ]
        elif name == "optimizer":
            options.append(option(by_key["optimizer.name"], str(facts[name]).split()[0]))
    if not options:
        return "resume with the settings of that run, which are in its job.yaml"
    leave = ", and leave --gradient-accumulation-count out" if _is_counted(differing, settings) else ""
    return f"add {' '.join(options)}{leave}; without --resume a new training starts"


def _is_counted(differing: List[str], settings: WorkloadSettings) -> bool:
    return "global_batch" in differing and settings.training.gradient_accumulation_count is not None


def _batch_options(size: Any, earlier: Optional[Job], batch: Batch) -> List[str]:
    """Options for a global batch of this size: with this job's micro-batch where it fits, else with the earlier one."""
    if not isinstance(size, int) or size % batch.replicas:
        return [f"--num-replicas with a number that divides {size}"]
    micro = batch.micro_size
    if size % (batch.replicas * micro):
        micro = earlier.settings.training.micro_batch_size if earlier is not None else 1
        micro = micro if size % (batch.replicas * micro) == 0 else 1
    given = [] if micro == batch.micro_size else [f"--micro-batch-size {micro}"]
    return [*given, f"--global-batch-size {size}"]
