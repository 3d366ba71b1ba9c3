"""What automatic loss scaling on IPUs cannot do: there it is the SDK's, in an optimizer around ours."""

from __future__ import annotations

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.planning.batch import Batch

# The SDK's factor stays below 32768, and has to have room to double.
_LARGEST_FIRST = 8192


def refuse_automatic_scaling(settings: WorkloadSettings, batch: Batch) -> None:
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
    # Seen with the Keras of SDK 3.4: after 6 updates, weights differed by 0.003 between two replicas. Why is not known.
    if batch.accumulation > 1 and batch.replicas > 1 and not settings.pipeline.splits:
        raise SettingsError(
            f"automatic loss scaling on IPUs with accumulation {batch.accumulation} and {batch.replicas} replicas: with"
            " the Keras of SDK 3.4, the weights of replicas drifted apart",
            hint="use --gradient-accumulation-count 1, a pipeline, or a fixed --loss-scaling",
        )
    if first not in (2.0**power for power in range(_LARGEST_FIRST.bit_length())):
        raise SettingsError(
            f"automatic loss scaling on IPUs begins with a power of two from 1 to {_LARGEST_FIRST}, and --loss-scaling"
            f" is {first:g}",
            hint="leave --loss-scaling out, or use for example 128",
        )
