"""Settings that the network, IPUs, or the SDK cannot fulfil."""

from __future__ import annotations

from typing import Callable, NamedTuple, Tuple

from ipulaunch.configs.errors import PlanError, SettingsError
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.configs.settings.schema import value_of
from ipulaunch.configs.settings.sections import Pipeline
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.text import counted, either
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.splits import check_splits
from ipulaunch.topology.planning.batch import Batch
from ipulaunch.topology.planning.rules import IPUS_PER_REPLICA

# Of a Mk2. The SDK's compiler aborts if none is left to compute on.
_TILES_PER_IPU = 1472
_MOST_PREFETCHED = 255
# The SDK's factor stays below 32768, and has to have room to double.
_LARGEST_FIRST = 8192


def check_pipeline(settings: WorkloadSettings) -> None:
    """Refuse pipeline stages that the network or the IPUs do not have."""
    pipeline = settings.pipeline
    check_splits(network_of(settings), pipeline.splits)
    if pipeline.splits and pipeline.ipus not in IPUS_PER_REPLICA:
        stages = counted(pipeline.stages, "pipeline stage")
        raise PlanError(
            f"{stages} on {pipeline.ipus} IPUs: a replica has {either(IPUS_PER_REPLICA)} (R6)",
            hint="give other --pipeline-splits, or put several stages on an IPU with --device-mapping",
        )


def ipus_needed(pipeline: Pipeline) -> int:
    """The IPUs of one replica: the SDK rounds them up to a power of two."""
    return 1 << (pipeline.ipus - 1).bit_length()


def refuse_on_ipus(settings: WorkloadSettings, batch: Batch, given_ipus: int) -> None:
    """Raise for the first setting that cannot be fulfilled with this many IPUs per replica."""
    pipeline = settings.pipeline
    if given_ipus != ipus_needed(pipeline):
        if not pipeline.splits:
            # Keras would take the IPUs of an undivided model for so many replicas more.
            raise SettingsError(
                f"{given_ipus} IPUs per replica, and the model is not divided into pipeline stages",
                hint="use --ipus-per-replica 1, or --pipeline-splits",
            )
        raise SettingsError(
            f"{given_ipus} IPUs per replica, and the {pipeline.stages} pipeline stages take {ipus_needed(pipeline)}",
            hint=f"use --ipus-per-replica {ipus_needed(pipeline)}",
        )
    refuse_schedule(settings, batch.accumulation)
    _refuse_training(settings, batch)
    _refuse_device(settings, batch)


def refuse_schedule(settings: WorkloadSettings, accumulation: int) -> None:
    """Raise if the SDK cannot train with the schedule of the pipeline."""
    pipeline, io_tiles = settings.pipeline, settings.device.io_tiles
    if not pipeline.splits or not settings.training.training:
        return
    if pipeline.schedule == "Interleaved" and pipeline.ipus < pipeline.stages:
        raise SettingsError(
            f"{pipeline.stages} pipeline stages on {counted(pipeline.ipus, 'IPU')} with the Interleaved schedule: the"
            " SDK trains with it only where every stage has an IPU of its own",
            hint="use --pipeline-schedule Grouped or Sequential, or leave --device-mapping out",
        )
    turn, least = settings.micro_batches_per_turn, settings.least_accumulation
    hint = f"use --gradient-accumulation-count {max(least, round(accumulation / turn) * turn)}"
    stages = f"accumulation {accumulation} with {pipeline.stages} pipeline stages"
    if accumulation % turn:
        raise SettingsError(f"{stages}: the {pipeline.schedule} schedule takes a multiple of {turn}", hint=hint)
    if accumulation < least:
        raise SettingsError(
            f"{stages} and {io_tiles} tiles for input and output: the Grouped schedule then takes at least {turn + 2},"
            f" in multiples of {turn}",
            hint=f"{hint}, or leave device.io_tiles out",
        )


def refuse_automatic_scaling(settings: WorkloadSettings, batch: Batch) -> None:
    """Raise if the SDK's factor would not follow the gradients."""
    if not settings.optimizer.auto_loss_scaling or not settings.training.training:
        return
    bits, first = settings.training.precision, settings.optimizer.loss_scaling
    if bits != "16.16":
        raise SettingsError(
            f"automatic loss scaling on IPUs counts gradients of 16 bits that overflow, and with --precision {bits}"
            " gradients have 32",
            hint="use --precision 16.16, or a fixed --loss-scaling",
        )
    # From SDK 3.1 on, an undivided model sums gradients over replicas before it accumulates them. The compiler treats
    # every accumulator as one that differs between replicas, so each replica rounds its own with its own numbers.
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


def _refuse_training(settings: WorkloadSettings, batch: Batch) -> None:
    refuse_automatic_scaling(settings, batch)
    if settings.training.trace_samples:
        raise SettingsError(
            "--trace-samples notes samples inside the training step, and an IPU cannot call the host from there",
            hint="trace the same training with --engine openmpi: the samples of every step are the same",
        )
    if settings.device.optimizer_state_offloading and not settings.pipeline.splits and batch.accumulation == 1:
        raise SettingsError(
            "the optimizer's state leaves the IPU between updates of several micro-batches, and accumulation is 1",
            hint="use --gradient-accumulation-count 2 or more, or --no-optimizer-state-offloading",
        )


def _refuse_device(settings: WorkloadSettings, batch: Batch) -> None:
    device, data = settings.device, settings.data
    group = device.distributed_norm_replicas
    if batch.replicas % group:
        raise SettingsError(
            f"batch statistics over groups of {group} replicas, and there are {batch.replicas}",
            hint=f"use a device.distributed_norm_replicas that divides {batch.replicas}",
        )
    if device.io_tiles and device.io_tiles >= _TILES_PER_IPU:
        raise SettingsError(
            f"{device.io_tiles} tiles for input and output, and an IPU has {_TILES_PER_IPU} tiles in all",
            hint="use a device.io_tiles such as 32 or 64",
        )
    if device.prefetch_depth and device.prefetch_depth > _MOST_PREFETCHED:
        raise SettingsError(
            f"{device.prefetch_depth} micro-batches sent ahead of their use: the SDK takes at most {_MOST_PREFETCHED}",
            hint=f"use --prefetch-depth {_MOST_PREFETCHED} or less",
        )
    if group > 1 and device.io_tiles:
        raise SettingsError(
            f"{device.io_tiles} tiles for input and output, and batch statistics over {group} replicas: not both",
            hint="leave device.io_tiles or device.distributed_norm_replicas out",
        )
    if device.compile_only and settings.api != KERAS:
        raise SettingsError(
            "--compile-only compiles trainings with Keras, and this is an Estimator", hint="leave --compile-only out"
        )
    if device.outfeed_depth is not None and settings.api != KERAS:
        raise SettingsError(
            f"an outfeed of depth {device.outfeed_depth}, and the SDK's Estimators take none",
            hint="leave device.outfeed_depth out, or train with Keras",
        )
    if device.fused_preprocessing:
        if not data.has_images or data.host_preprocess:
            why = "the host normalises" if data.has_images else "there are no images"
            raise SettingsError(
                f"device.fused_preprocessing normalises images on the IPU, and {why}",
                hint="leave device.fused_preprocessing or --host-preprocess out",
            )
        if data.channels != 3:
            raise SettingsError(
                f"device.fused_preprocessing takes images of 3 colours, and these have {data.channels}",
                hint="leave device.fused_preprocessing out",
            )


_Sdk = Tuple[int, int]


class Feature(NamedTuple):
    """Something of the SDK's Keras that a setting needs."""

    setting: str
    first: _Sdk  # the first that has it
    why: str
    hint: str

    def missing(self, where: str = "") -> SettingsError:
        """The error of a planner that knows the SDK's version, or of a worker that did not find the feature."""
        return SettingsError(f"{self.why}{where}", hint=f"{self.hint}, or enable a later SDK")


AUTOMATIC_SCALING = Feature(
    "optimizer.auto_loss_scaling",
    (3, 0),
    "automatic loss scaling on IPUs needs SDK 3.0 or later: the optimizer that SDK 2.6 has for it is marked there as"
    " not to be used",
    "use a fixed --loss-scaling, for example 128",
)
METRIC_REDUCTION = Feature(
    "device.accelerator_side_reduction",
    (3, 1),
    "--accelerator-side-reduction needs an option of Keras that SDKs before 3.1 do not have",
    "leave it out, as losses and metrics are those of all replicas without it as well",
)


def refuse_before_sdk(settings: WorkloadSettings, sdk: Callable[[], _Sdk]) -> None:
    """Raise for the first setting that the SDK is too old for; looks up its version only if that matters."""
    for feature in (AUTOMATIC_SCALING, METRIC_REDUCTION):
        if settings.api != KERAS or not value_of(settings, feature.setting):
            continue
        major, minor = sdk()
        if (major, minor) < feature.first:
            raise feature.missing(f" (this is SDK {major}.{minor})")
