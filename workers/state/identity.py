"""What a training is, so that another one cannot continue it by mistake."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Mapping

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.networks import computed_by
from ipulaunch.workers.feeds import shuffle_of
from ipulaunch.workers.instance import Instance


def network_of_training(settings: WorkloadSettings) -> Dict[str, str]:
    """A short name for the network."""
    return {"network": hashlib.sha256(json.dumps(computed_by(settings)).encode()).hexdigest()[:12]}


def identity_of(instance: Instance, source: Source) -> Dict[str, Any]:
    """What must not change between a training and the one that continues it."""
    settings = instance.settings
    optimizer = settings.optimizer
    return {
        "workload": instance.job.workload,
        "model": settings.model.name,
        "optimizer": f"{optimizer.name} with momentum" if optimizer.momentum else optimizer.name,
        "samples": source.samples,
        "global_batch": instance.batch.global_size,
        "remainder": settings.training.remainder,
        **{name: value for name, value in shuffle_of(settings)._asdict().items() if name != "is_on"},
        "shuffle": settings.data.shuffle,
        **network_of_training(settings),
    }


def require_same(ours: Mapping[str, Any], known: Mapping[str, Any], path: str, hint: str) -> None:
    """Refuse to continue what is known to be another training; not all was written down from the beginning."""
    for name, value in ours.items():
        if known.get(name, value) == value:
            continue
        if name == "network":
            raise SettingsError(f"{path} was trained with other layers, or with inputs normalised otherwise", hint=hint)
        raise SettingsError(
            f"{path} was trained with {name.replace('_', ' ')} {known[name]}, this job has {value}", hint=hint
        )
