"""What automatic loss scaling on IPUs cannot do: there it is the SDK's, in an optimizer around ours."""

from __future__ import annotations

from typing import Any

from ipulaunch.configs.errors import SettingsError
from ipulaunch.topology.planning.batch import Batch

# The SDK's factor stays below 32768, and has to have room to double.
_LARGEST_FIRST = 8192


def refuse_automatic_scaling(settings: Any, batch: Batch) -> None:
    """Raise where the SDK's factor would not follow the gradients."""
    if not settings.optimizer.auto_loss_scaling or not settings.training.training:
        return
    bits, first = settings.training.precision, settings.optimizer.loss_scaling
    if bits != "16.16":
        raise SettingsError(
            f"automatic loss scaling on IPUs counts gradients of 16 bits that overflow, and with --precision {bits}"
            " gradients have 32",
            hint="use --precision 16.16, or a fixed --loss-scaling",
        )
    # From SDK 3.1 on, an undivided model sums gradients over replicas before it accumulates them. The compiler takes
    # every accumulator for one that differs between replicas, so each replica rounds its own with its own numbers.
    if (
        batch.accumulation > 1
        and batch.replicas > 1
        and not settings.pipeline.splits
        and settings.device.stochastic_rounding == "on"
    ):
        raise SettingsError(
            f"automatic loss scaling on IPUs with accumulation {batch.accumulation}, {batch.replicas} replicas and"
            " --stochastic-rounding on: the SDK sums gradients over replicas before it accumulates them, each replica"
            " rounds what it accumulates in its own way, and their weights drift apart",
            hint="use --stochastic-rounding ri or off, --gradient-accumulation-count 1, a pipeline, or a fixed"
            " --loss-scaling",
        )
    if first not in (2.0**power for power in range(_LARGEST_FIRST.bit_length())):
        raise SettingsError(
            f"automatic loss scaling on IPUs begins with a power of two from 1 to {_LARGEST_FIRST}, and --loss-scaling"
            f" is {first:g}",
            hint="leave --loss-scaling out, or use for example 128",
        )
