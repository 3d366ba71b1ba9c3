"""Settings that were given and have no effect: because of other settings, or without IPUs."""

from __future__ import annotations

from typing import List

from ipulaunch.configs.settings.schema import leaves, plain_value, value_of
from ipulaunch.configs.settings.workloads import Resolved

# Settings that only some choices of another one use.
_USED_BY = {
    "optimizer.rho": ("optimizer.name", ("rmsprop",)),
    "optimizer.rho_exponent": ("optimizer.name", ("rmsprop",)),
    "optimizer.epsilon": ("optimizer.name", ("adadelta", "adam", "lars", "rmsprop")),
    "optimizer.eeta": ("optimizer.name", ("lars",)),
    "schedule.epochs_to_total_decay": ("schedule.name", ("cosine", "polynomial")),
    "schedule.end_learning_rate_ratio": ("schedule.name", ("polynomial",)),
    "schedule.power": ("schedule.name", ("polynomial",)),
    "schedule.boundaries": ("schedule.name", ("stepped",)),
    "schedule.factors": ("schedule.name", ("stepped",)),
    "model.norm_channels_per_group": ("model.norm_layer", ("group_norm",)),
    "model.norm_groups": ("model.norm_layer", ("group_norm",)),
    "model.norm_momentum": ("model.norm_layer", ("batch_norm",)),
}
# Settings that mean nothing while another one is not set, is off or is 0.
_USED_IF_SET = {
    "data.shuffle_block": "data.shuffle",
    "data.shuffle_window": "data.shuffle",
    "launch.validation_num_replicas": "training.validation",
    "logging.mlperf": "training.training",
    "logging.sweep": "training.validation",
    "logging.wandb_run_name": "logging.wandb",
    "logging.wandb_tags": "logging.wandb",
    "pipeline.schedule": "pipeline.splits",
    "pipeline.validation_model": "pipeline.splits",
    "schedule.warmup_mode": "schedule.warmup_epochs",
    "training.target_accuracy": "training.validation",
    "training.validation_micro_batch_size": "training.validation",
}


def unused_settings(resolved: Resolved) -> List[str]:
    """A sentence for each setting that was given and that another one makes useless."""
    settings, given = resolved.settings, resolved.given
    found = [
        f"{key} has no effect without {other}"
        for key, other in _USED_IF_SET.items()
        if key in given and not value_of(settings, other)
    ]
    if settings.training.ckpts_per_epoch == 0:
        keys = ("training.first_ckpt_epoch", "training.keep_checkpoints", "training.clean_dir")
        found += [f"{key} has no effect without checkpoints" for key in keys if key in given]
    if settings.schedule.name == "const" and not settings.schedule.warmup_epochs and "schedule.staircase" in given:
        found.append("schedule.staircase has no effect on a constant learning rate")
    for key in sorted(given & set(_USED_BY)):
        other, choices = _USED_BY[key]
        chosen = value_of(settings, other)
        if chosen not in choices:
            found.append(f"{key} has no effect with {other} = {chosen}: it is for {', '.join(choices)}")
    return found


def ipu_only_settings(resolved: Resolved) -> List[str]:
    """The settings that only IPUs use and that differ from their defaults."""
    found = []
    for leaf in leaves(type(resolved.settings)):
        value = value_of(resolved.settings, leaf.key)
        if leaf.about.ipu_only and value != leaf.default:
            found.append(f"{leaf.key} = {_shown(plain_value(value))}")
    return found


def _shown(value: object) -> str:
    """A value as YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
