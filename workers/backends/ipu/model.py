"""A model as the SDK's Keras takes it: inputs that the IPU has, layers in pipeline stages, accumulation."""

from __future__ import annotations

from typing import Any, Callable, ContextManager, Dict, List, Mapping, Optional, Sequence, Tuple

import tensorflow as tf

from ipulaunch.configs.settings.sections import Pipeline
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Batch
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.splits import stage_ends
from ipulaunch.topology.planning.refusals import METRIC_REDUCTION
from ipulaunch.workers.backends.ipu.device import stage_proportions
from ipulaunch.workers.backends.ipu.feeds import fed_as, joined
from ipulaunch.workers.backends.ipu.sdk import Sdk
from ipulaunch.workers.backends.ipu.statistics import LearntBatchNorm
from ipulaunch.workers.models.layers import Normalise
from ipulaunch.workers.models.precision import precision


def in_32_bits() -> ContextManager[None]:
    """Models and metrics made inside count in 32 bits, whatever their layers compute in.

    In 16 a mean over many steps is wrong, and around mixed ones Keras puts a loss scaling of its own.
    """
    return precision("32.32")


def for_ipus(model: tf.keras.Model, settings: WorkloadSettings, sdk: Sdk) -> tf.keras.Model:
    """The same layers with the same weights, behind an input of a type that the IPU has."""
    shape, dtype = fed_as(model.input.shape[1:], model.input.dtype)
    inputs = outputs = tf.keras.Input(shape, dtype=dtype, name=model.layers[0].name)
    if dtype != model.input.dtype:
        outputs = tf.keras.layers.Lambda(joined, name="joined")(inputs)
    outputs = called_again(model, outputs, settings, sdk)
    with in_32_bits():
        return tf.keras.Model(inputs, outputs, name=model.name)


def called_again(model: tf.keras.Model, inputs: Any, settings: WorkloadSettings, sdk: Sdk) -> Any:
    """The output of the same layers with the same weights for other inputs, with the IPU's own layers among them."""
    outputs = inputs
    values = {id(model.input): inputs}
    for layer in model.layers[1:]:
        given = tf.nest.map_structure(lambda tensor: values[id(tensor)], layer.get_input_at(0))
        used = layer
        if settings.device.fused_preprocessing and isinstance(layer, Normalise):
            used = FusedNormalise(layer, sdk.image_ops.normalise_image)
        elif isinstance(layer, tf.keras.layers.BatchNormalization):
            used = LearntBatchNorm(layer)
        outputs = used(given)
        values[id(layer.get_output_at(0))] = outputs
    return outputs


class FusedNormalise(tf.keras.layers.Layer):  # type: ignore[misc]
    """Normalises pixels in one operation of the IPU, which adds an empty fourth colour; it is taken off again.

    So the network keeps its shape, and its checkpoints fit those of a training without it.
    """

    def __init__(self, plain: Normalise, normalise_image: Callable[..., Any]) -> None:
        super().__init__(name=plain.name, autocast=False, dtype=plain.dtype_policy)
        self.normalise_image = normalise_image
        self.mean, self.std = (
            [value / 255 for value in values * (3 // len(values))] for values in (plain.mean, plain.std)
        )

    def call(self, pixels: Any) -> Any:
        scales = [1 / value for value in self.std]
        values = self.normalise_image(pixels, channel_offsets=self.mean, channel_scales=scales, scale=1 / 255)
        return tf.cast(values[..., :3], self.compute_dtype)


def shape_model(
    model: tf.keras.Model, settings: WorkloadSettings, batch: Batch, sdk: Sdk
) -> Tuple[tf.keras.Model, Dict[str, int]]:
    """The model as it trains on IPUs, accumulating or as a pipeline, and the stage of every layer."""
    model = for_ipus(model, settings, sdk)
    splits = settings.pipeline.splits
    stages = stage_numbers(model, stage_ends(network_of(settings), splits) if splits else ())
    if splits:
        divide(model, stages, settings, batch.accumulation, sdk)
    else:
        accumulate(model, settings, batch, sdk)
    set_feeds(model, settings)
    _set_reduction(model, settings)
    return model, stages


def set_feeds(model: tf.keras.Model, settings: WorkloadSettings) -> None:
    """Make the queues of a model as deep as the settings ask for."""
    if settings.device.prefetch_depth is not None:
        model.set_infeed_queue_options(prefetch_depth=settings.device.prefetch_depth)
    if settings.device.outfeed_depth is not None:
        model.set_outfeed_queue_options(buffer_depth=settings.device.outfeed_depth)


def _set_reduction(model: tf.keras.Model, settings: WorkloadSettings) -> None:
    """Where asked, reduce what is logged on the device in each step; PopDist's Keras does so once in a call."""
    if not settings.device.accelerator_side_reduction:
        return
    if hasattr(model, "set_replication_options"):
        model.set_replication_options(replicated_metric_reduction_method="MEAN")
    else:
        raise METRIC_REDUCTION.missing()


def stage_numbers(model: tf.keras.Model, ends: Sequence[str]) -> Dict[str, int]:
    """The pipeline stage of every layer, by name; the ends are the last layers of their stages."""
    found, stage = {}, 0
    for layer in model.layers:
        found[layer.name] = stage
        stage += layer.name in ends
    return found


def accumulate(model: tf.keras.Model, settings: WorkloadSettings, batch: Batch, sdk: Sdk) -> None:
    """Make a model that is not divided accumulate gradients, if it has to."""
    if batch.accumulation > 1:
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=batch.accumulation,
            gradient_accumulation_reduction_method=sdk.reduction_method.RUNNING_MEAN,
            offload_weight_update_variables=settings.device.optimizer_state_offloading,
        )


def divide(
    model: tf.keras.Model, stages: Mapping[str, int], settings: WorkloadSettings, accumulation: int, sdk: Sdk
) -> None:
    """Make a model a pipeline; layers without a stage of their own join the last one."""
    assignment = model.get_pipeline_stage_assignment()
    for layer in assignment:
        layer.pipeline_stage = stages.get(layer.layer.name, settings.pipeline.stages - 1)
    model.set_pipeline_stage_assignment(assignment)
    options = stage_options(settings, sdk)
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=accumulation,
        device_mapping=device_mapping(settings.pipeline),
        gradient_accumulation_reduction_method=sdk.reduction_method.RUNNING_MEAN,
        pipeline_schedule=schedule_of(settings.pipeline, sdk),
        offload_weight_update_variables=settings.device.optimizer_state_offloading,
        forward_propagation_stages_poplar_options=options,
        backward_propagation_stages_poplar_options=options,
    )


def device_mapping(pipeline: Pipeline) -> List[int]:
    """The IPU of each stage."""
    return list(pipeline.device_mapping or range(pipeline.stages))


def schedule_of(pipeline: Pipeline, sdk: Sdk) -> Any:
    """The SDK's own word for a schedule."""
    pipelining_ops = sdk.pipelining_ops
    return {
        "Grouped": pipelining_ops.PipelineSchedule.Grouped,
        "Interleaved": pipelining_ops.PipelineSchedule.Interleaved,
        "Sequential": pipelining_ops.PipelineSchedule.Sequential,
    }[pipeline.schedule]


def stage_options(settings: WorkloadSettings, sdk: Sdk) -> Optional[List[Any]]:
    """The shares of tile memory of each stage; nothing if one share is for all."""
    pipelining_ops = sdk.pipelining_ops
    options = [
        pipelining_ops.PipelineStageOptions(
            convolution_options={"availableMemoryProportion": convolutions},
            matmul_options={"availableMemoryProportion": matmuls},
        )
        for convolutions, matmuls in stage_proportions(settings.device, settings.pipeline.stages)
    ]
    return options or None
