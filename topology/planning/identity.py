"""What a training is, so that another one cannot continue it by mistake."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Mapping

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.networks import computed_by
from ipulaunch.topology.planning.plan import Plan


def network_of_training(settings: WorkloadSettings) -> Dict[str, str]:
    """A short name for the network."""
    return {"network": hashlib.sha256(json.dumps(computed_by(settings)).encode()).hexdigest()[:12]}


def identity_of(workload: str, settings: WorkloadSettings, plan: Plan, samples: int) -> Dict[str, Any]:
    """What must not change between a training on so many samples and the one that continues it."""
    optimizer, data = settings.optimizer, settings.data
    return {
        "workload": workload,
        "model": settings.model.name,
        "optimizer": f"{optimizer.name} with momentum" if optimizer.momentum else optimizer.name,
        "samples": samples,
        "global_batch": plan.batch.global_size,
        "remainder": settings.training.remainder,
        "seed": settings.training.seed,
        "block": data.shuffle_block,
        "window": data.shuffle_window,
        "shuffle": data.shuffle,
        "shares": len(plan.hosts) if data.stage_shard else 1,
        **network_of_training(settings),
    }


def differences(ours: Mapping[str, Any], known: Mapping[str, Any]) -> List[str]:
    """The names of what differs from what is known of another training; not all was written down from the beginning."""
    return [name for name, value in ours.items() if known.get(name, value) != value]


def require_same(ours: Mapping[str, Any], known: Mapping[str, Any], path: str, hint: str) -> None:
    """Refuse to continue what is known to be another training."""
    differing = differences(ours, known)
    if not differing:
        return
    name = differing[0]
    if name == "network":
        raise SettingsError(f"{path} was trained with other layers, or with inputs normalised otherwise", hint=hint)
    raise SettingsError(
        f"{path} was trained with {name.replace('_', ' ')} {known[name]}, this job has {ours[name]}", hint=hint
    )


def require_long_enough(path: str, made: int, total: int, hint: str) -> None:
    """Refuse to continue a training that has made more updates than this one is long."""
    if made > total:
        raise SettingsError(f"{path} has made {made} updates, and this training is {total} long", hint=hint)
