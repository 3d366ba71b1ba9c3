"""The groups of settings that say how gradients become weights: the optimizer and its learning rate over time."""

from __future__ import annotations

from typing import Optional, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.schema import Settings, setting


class Optimizer(Settings):
    """How gradients become weight updates."""

    name: str = setting(
        "sgd", "the optimizer", flag="--optimizer", choices=("adadelta", "adam", "lars", "rmsprop", "sgd")
    )
    learning_rate: float = setting(0.01, "the learning rate", flag="--learning-rate", above=0)
    lr_scaling: str = setting(
        "none",
        "scale the learning rate by the replicas, by their square root, or by the global batch (a rate per sample)",
        flag="--lr-scaling",
        choices=("none", "linear", "sqrt", "batch"),
    )
    momentum: float = setting(0.0, "momentum, for sgd, lars and rmsprop", flag="--momentum", at_least=0, below=1)
    rho: float = setting(0.9, "how slowly rmsprop forgets squared gradients", at_least=0, below=1)
    rho_exponent: Optional[float] = setting(
        None, "for rmsprop: rho = 1 - 2^exponent x global batch, instead of rho", below=0
    )
    epsilon: Optional[float] = setting(
        None, "what keeps a division from 0; without it, and with 0 for lars, the optimizer's own", at_least=0
    )
    eeta: float = setting(0.001, "how far lars trusts the ratio of weight and gradient", above=0)
    weight_decay: float = setting(
        0.0, "fraction of the weights, times the rate, subtracted in each update, outside the optimizer's state",
        flag="--weight-decay", at_least=0,
    )  # fmt: skip
    l2_regularization: float = setting(
        0.0, "fraction of the weights added to their gradients, before the optimizer's state",
        flag="--l2-regularization", at_least=0,
    )  # fmt: skip
    loss_scaling: float = setting(
        1.0, "factor on the loss that keeps small 16-bit gradients from becoming 0; removed before the update",
        flag="--loss-scaling",
        above=0, spellings={0: 1.0},
    )  # fmt: skip
    auto_loss_scaling: bool = setting(
        False, "let the loss scaling follow the gradients", flag="--auto-loss-scaling/--no-auto-loss-scaling"
    )

    def __post_init__(self) -> None:
        if self.momentum and self.name not in ("lars", "rmsprop", "sgd"):
            raise SettingsError(
                f"momentum {self.momentum:g} with {self.name}, which has none",
                hint="use --momentum 0, or --optimizer sgd",
            )


class Schedule(Settings):
    """The learning rate over time, in epochs."""

    name: str = setting(
        "const", "the shape of the learning rate", flag="--lr-schedule",
        choices=("const", "cosine", "polynomial", "stepped"),
    )  # fmt: skip
    epochs_to_total_decay: Optional[float] = setting(
        None, "epochs until the rate has reached its end, without the warm-up; by default all", above=0
    )
    end_learning_rate_ratio: float = setting(
        0.0, "for polynomial: the last rate, as a fraction of the first", at_least=0
    )
    power: float = setting(1.0, "for polynomial: 1 falls in a line, 2 in a parabola", above=0)
    boundaries: Tuple[float, ...] = setting((), "for stepped: the epochs at which the rate changes", at_least=0)
    factors: Tuple[float, ...] = setting(
        (), "for stepped: the rate after each boundary, as a fraction of the first", above=0
    )
    warmup_mode: str = setting(
        "shift", "whether the warm-up scales the beginning of the schedule (mask) or comes before it (shift)",
        flag="--lr-warmup-mode",
        choices=("mask", "shift"),
    )  # fmt: skip
    warmup_epochs: float = setting(
        0.0, "epochs over which the rate rises to its first value", flag="--lr-warmup-epochs", at_least=0
    )
    staircase: bool = setting(False, "keep the rate constant within an epoch", flag="--lr-staircase/--no-lr-staircase")

    def __post_init__(self) -> None:
        if self.name == "stepped" and (not self.boundaries or len(self.boundaries) != len(self.factors)):
            raise SettingsError(
                f"a stepped rate with {len(self.boundaries)} boundaries and {len(self.factors)} factors",
                hint="give as many schedule.factors as schedule.boundaries, at least one of each",
            )
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise SettingsError(f"schedule.boundaries {self.boundaries} do not rise")


def check_automatic_scaling(optimizer: Optimizer, schedule: Schedule) -> None:
    """Raise with all that automatic loss scaling does not work with, and all that would have to change."""
    found = (
        (optimizer.name != "sgd", f"the optimizer {optimizer.name}", "--optimizer sgd"),
        (optimizer.momentum, f"momentum {optimizer.momentum:g}", "--momentum 0"),
        (optimizer.weight_decay, f"weight decay {optimizer.weight_decay:g}", "--weight-decay 0"),
        (optimizer.l2_regularization, f"L2 regularization {optimizer.l2_regularization:g}", "--l2-regularization 0"),
        (schedule.name != "const", f"a learning rate that is {schedule.name}", "--lr-schedule const"),
        (schedule.warmup_epochs, f"{schedule.warmup_epochs:g} epochs of warm-up", "--lr-warmup-epochs 0"),
    )
    obstacles, changes = [what for is_set, what, _ in found if is_set], [to for is_set, _, to in found if is_set]
    if obstacles:
        raise SettingsError(
            "automatic loss scaling works with sgd alone and a constant learning rate, since all else mixes gradients"
            f" of different scales; in its way: {', '.join(obstacles)}",
            hint=f"use {' '.join(changes)}, and on IPUs --precision 16.16; or a fixed --loss-scaling",
        )
