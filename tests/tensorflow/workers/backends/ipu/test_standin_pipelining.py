"""Pipelines of the stand-in: it refuses what the SDK's Keras, its pipeline operation and its compiler refuse."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.settings.cosmoflow import CosmoflowSettings
from ipulaunch.topology import Batch
from ipulaunch.workers.models.optimizers import make_optimizer

Install = Callable[..., Any]
OPS = "tensorflow.python.ipu.ops.pipelining_ops"


def make(stages: Sequence[Any] = (0, 0, 1, 1), io_tiles: int = 0, ipus: int = 2, shared: Any = None) -> Any:
    """A chain of four layers in these stages, or of four calls of one layer."""
    ipu = importlib.import_module("tensorflow.python.ipu")
    config = ipu.config.IPUConfig()
    config.auto_select_ipus, config.io_tiles.num_io_tiles = ipus, io_tiles
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        outputs = inputs = tf.keras.Input((1,))
        for _ in range(4):
            outputs = (shared or tf.keras.layers.Dense(1))(outputs)
        model = tf.keras.Model(inputs, outputs)
    assignment = model.get_pipeline_stage_assignment()
    for layer, stage in zip(assignment, stages):
        layer.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment)
    return model


def compiled(model: Any, steps: int, **options: Any) -> Any:
    if options:
        model.set_pipelining_options(**options)
    with model.distribute_strategy.scope():
        optimizer = make_optimizer(CosmoflowSettings(), Batch(1, 1, 1), 1)
        model.compile(optimizer=optimizer, loss="mse", steps_per_execution=steps)
    return model


def fit(
    count: Any = 4, steps: int = 0, io_tiles: int = 0, stages: Sequence[int] = (0, 0, 1, 1), shared: Any = None,
    **more: Any,
) -> Any:  # fmt: skip
    """A training with this accumulation, of one device call."""
    ipus = 1 << max(more.get("device_mapping") or [1]).bit_length()
    model, steps = make(stages, io_tiles, ipus, shared), steps or count
    compiled(model, steps, gradient_accumulation_steps_per_replica=count, **more)
    ones = np.ones((steps, 1), np.float32)
    return model.fit(tf.data.Dataset.from_tensor_slices((ones, ones)).batch(1, drop_remainder=True), verbose=0)


def predict(steps: int, io_tiles: int = 0, **options: Any) -> Any:
    ipus = 1 << max(options.get("device_mapping") or [1]).bit_length()
    model = compiled(make(io_tiles=io_tiles, ipus=ipus), steps, **options)
    ones = np.ones((steps, 1), np.float32)
    return model.predict(tf.data.Dataset.from_tensor_slices((ones,)).batch(1, drop_remainder=True))


def op(name: str) -> Any:
    return getattr(importlib.import_module(OPS), name)


def schedule(name: str) -> Any:
    return getattr(op("PipelineSchedule"), name)


def stage_options(count: int) -> List[Any]:
    return [op("PipelineStageOptions")(matmul_options={"availableMemoryProportion": "0.1"}) for _ in range(count)]


OPTIONS: List[Any] = [
    {"gradient_accumulation_steps_per_replica": 0},
    {"gradient_accumulation_steps_per_replica": "4"},
    {"gradient_accumulation_reduction_method": "median"},
    {"device_mapping": (0, 1)},
    {"device_mapping": [0.0, 1.0]},
    {"gradient_accumulation_count": 4},
    {"computational_stages": []},
    {"repeat_count": 2},
    {"optimizer_function": None},
    {"outfeed_mask": [True]},
    {"outfeed_loss": True},
    {"batch_serialization_iterations": 2},
    {"experimental_normalize_gradients": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=[f"{name}={value}" for row in OPTIONS for name, value in row.items()])
def test_keras_refuses_options_when_they_are_set(options: Dict[str, Any], standin: Install) -> None:
    standin("3.4")
    with pytest.raises(ValueError):
        make().set_pipelining_options(**options)


def test_keras_needs_the_accumulation_of_a_pipeline_that_trains(standin: Install) -> None:
    standin("3.4")
    with pytest.raises(ValueError, match="with its accumulation"):
        fit(None, 4, pipeline_schedule="not looked at yet")


def test_keras_needs_executions_of_whole_accumulations(standin: Install) -> None:
    standin("3.4")
    with pytest.raises(RuntimeError, match="not divisible"):
        fit(4, 6, pipeline_schedule="not looked at yet")


MISTAKES: Dict[str, Any] = {
    "unknown name": (lambda: fit(schedule="Grouped"), TypeError),
    "name that Keras gives too": (lambda: fit(reduction_method="sum"), TypeError),
    "continuous updates": (lambda: fit(continuous_weight_updates=True), NotImplementedError),
    "a word is no schedule": (lambda: fit(pipeline_schedule="Grouped"), TypeError),
    "a word is no recomputation": (lambda: fit(recomputation_mode="Auto"), TypeError),
    "one stage": (lambda: fit(stages=(0, 0, 0, 0)), ValueError),
    "a mapping for each stage": (lambda: fit(device_mapping=[0]), ValueError),
    "Interleaved stages on one IPU": (
        lambda: fit(pipeline_schedule=schedule("Interleaved"), device_mapping=[0, 0]), NotImplementedError,
    ),
    "options in a list": (lambda: fit(forward_propagation_stages_poplar_options="0.1"), TypeError),
    "options for each stage": (lambda: fit(forward_propagation_stages_poplar_options=stage_options(3)), ValueError),
    "options that are options": (lambda: fit(forward_propagation_stages_poplar_options=[{}, {}]), TypeError),
    "options backward": (lambda: fit(backward_propagation_stages_poplar_options=stage_options(1)), ValueError),
    "options of the update": (lambda: fit(weight_update_poplar_options={}), TypeError),
    "sharded but not offloaded": (
        lambda: fit(replicated_optimizer_state_sharding=True, offload_weight_update_variables=False), ValueError,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("act", "error"), MISTAKES.values(), ids=MISTAKES)
def test_the_operation_refuses(act: Callable[[], Any], error: Any, standin: Install) -> None:
    standin("3.4")
    with pytest.raises(error):
        act()


@pytest.mark.parametrize("offloaded", [None, True])
def test_a_sharded_state_is_offloaded_or_left_to_the_sdk(offloaded: Optional[bool], standin: Install) -> None:
    standin("3.4")
    fit(replicated_optimizer_state_sharding=True, offload_weight_update_variables=offloaded)


IN_ORDER: Dict[str, Any] = {
    "names before kinds": ({"pipeline_schedule": "Grouped", "unknown": 1}, "unexpected keyword"),
    "kinds before the mapping": ({"pipeline_schedule": "Grouped", "device_mapping": [0]}, "is a PipelineSchedule"),
    "the mapping before options": (
        {"device_mapping": [0], "forward_propagation_stages_poplar_options": "0.1"}, "1 entries for 2 stages",
    ),
    "the operation before the compiler": ({"count": 3, "device_mapping": [0]}, "1 entries for 2 stages"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "first"), IN_ORDER.values(), ids=IN_ORDER)
def test_refusals_come_in_the_order_of_the_sdk(options: Dict[str, Any], first: str, standin: Install) -> None:
    standin("3.4")
    with pytest.raises(Exception, match=first):
        fit(**options)


@pytest.mark.parametrize(
    ("name", "count", "runs"),
    [
        ("Grouped", 4, True), ("Grouped", 2, False), ("Grouped", 6, False),
        ("Interleaved", 2, True), ("Interleaved", 3, False), ("Sequential", 1, True), ("Sequential", 3, True),
    ],
)  # fmt: skip
def test_the_compiler_takes_whole_turns(name: str, count: int, runs: bool, standin: Install) -> None:
    standin("3.4")
    if runs:
        fit(count, pipeline_schedule=schedule(name))
    else:
        with pytest.raises(tf.errors.FailedPreconditionError, match=f"must be a multiple of .*, but are {count}"):
            fit(count, pipeline_schedule=schedule(name))


@pytest.mark.parametrize("sdk", ["2.6", "3.4"])
def test_io_tiles_need_more_micro_batches_of_a_grouped_pipeline(sdk: str, standin: Install) -> None:
    standin(sdk)
    with pytest.raises(tf.errors.FailedPreconditionError, match="must be at least 6, but are 4"):
        fit(4, io_tiles=32)


def test_io_tiles_leave_micro_batches_out_between_turns(standin: Install) -> None:
    standin("3.4")
    with pytest.raises(RuntimeError, match="of 10 micro-batches, 2 would not run"):
        fit(10, io_tiles=32)


@pytest.mark.parametrize("count", [6, 8])
def test_io_tiles_take_two_more_than_a_turn_or_whole_turns(count: int, standin: Install) -> None:
    standin("3.4")
    fit(count, io_tiles=32)


def test_io_tiles_leave_other_schedules_alone(standin: Install) -> None:
    standin("3.4")
    fit(2, io_tiles=32, pipeline_schedule=schedule("Interleaved"))


@pytest.mark.parametrize(
    ("name", "mode"),
    [("Sequential", "RecomputeThenBackpropagate"), ("Interleaved", "RecomputeAndBackpropagateInterleaved")],
)
def test_a_schedule_has_no_recomputation_of_the_other_kind(name: str, mode: str, standin: Install) -> None:
    standin("3.4")
    recomputation = getattr(op("RecomputationMode"), mode)
    with pytest.raises(tf.errors.UnimplementedError):
        fit(pipeline_schedule=schedule(name), recomputation_mode=recomputation)


def test_prediction_needs_no_options_of_the_pipeline(standin: Install) -> None:
    standin("3.4")
    assert predict(2).shape == (2, 1)
    with pytest.raises(tf.errors.FailedPreconditionError, match="must be a multiple of 2, but are 3"):
        predict(3)


def test_interleaved_stages_share_an_ipu_in_prediction(standin: Install) -> None:
    standin("3.4")
    found = predict(3, pipeline_schedule=schedule("Interleaved"), device_mapping=[0, 0])
    assert found.shape == (3, 1)


@pytest.mark.parametrize("sdk", ["2.6", "3.0", "3.1", "3.4"])
@pytest.mark.parametrize(
    "stages", [[0, None, 1, 1], [0, 1, 0, 1]], ids=["a layer without a stage", "a stage that reads from a later one"]
)
def test_keras_refuses_assignments(sdk: str, stages: List[Any], standin: Install) -> None:
    standin(sdk)
    with pytest.raises(ValueError):
        make(stages)


@pytest.mark.parametrize("sdk", ["3.0", "3.4"])
def test_an_assignment_is_a_list_of_all_calls_of_layers(sdk: str, standin: Install) -> None:
    standin(sdk)
    model = make()
    assignment = model.get_pipeline_stage_assignment()
    for wrong in (tuple(assignment), assignment[:3], [0, 0, 1, 1]):
        with pytest.raises(ValueError):
            model.set_pipeline_stage_assignment(wrong)


def test_older_sdks_refuse_an_empty_stage_when_it_is_assigned(standin: Install) -> None:
    standin("3.0")
    with pytest.raises(ValueError, match=r"no layer in pipeline stages \[1\]"):
        make((0, 0, 2, 2))


def test_newer_sdks_refuse_an_empty_stage_when_it_runs(standin: Install) -> None:
    standin("3.1")
    with pytest.raises(RuntimeError, match=r"no layer in pipeline stages \[1\]"):
        fit(6, stages=(0, 0, 2, 2), device_mapping=[0, 1, 2])


def test_newer_sdks_take_assignments_in_the_order_of_the_layers(standin: Install) -> None:
    standin("3.1")
    model = make()
    with pytest.raises(ValueError, match="comes next"):
        model.set_pipeline_stage_assignment(list(reversed(model.get_pipeline_stage_assignment())))


@pytest.mark.parametrize(("sdk", "calls"), [("3.0", 1), ("3.1", 2)])
def test_newer_sdks_call_the_layers_of_an_assignment_again(sdk: str, calls: int, standin: Install) -> None:
    standin(sdk)
    model = make()
    assert [len(layer.inbound_nodes) for layer in model.layers[1:]] == [calls] * 4
    assert [item.node_index for item in model.get_pipeline_stage_assignment()] == [0] * 4


def test_older_sdks_take_assignments_in_any_order_but_once(standin: Install) -> None:
    standin("3.0")
    model = make()
    assignment = model.get_pipeline_stage_assignment()
    model.set_pipeline_stage_assignment(list(reversed(assignment)))
    with pytest.raises(ValueError, match="assigned twice"):
        model.set_pipeline_stage_assignment([*assignment[:3], assignment[0]])


@pytest.mark.parametrize(
    ("name", "ipus", "length"),
    [
        ("Grouped", [0, 1, 1, 0], 4), ("Grouped", [0, 0, 0, 0], 4), ("Sequential", [0, 1, 1, 0], 1),
        ("Interleaved", [0, 1, 1, 0], 2), ("Interleaved", [0, 1, 2, 0, 0, 2, 1, 0], 2),
        ("Interleaved", [0, 1, 2, 3, 3, 2, 1, 0], 4), ("Interleaved", [2, 0, 1, 1, 0, 2], 3),
        ("Interleaved", [0, 1, 2, 3], 4), ("Interleaved", [0, 0], 1), ("Interleaved", [0, 1, 2, 3, 4, 5, 0], 3),
    ],
)  # fmt: skip
def test_as_many_micro_batches_are_under_way_as_ipus_allow(
    name: str, ipus: List[int], length: int, standin: Install
) -> None:
    standin("3.4")
    from ipu_standin.pipelining import overlap_length

    assert overlap_length(name, ipus) == length


class Broadcast(tf.keras.layers.Layer):  # type: ignore[misc]
    """A weight whose gradient is a sum of parts with different shapes."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(2,), initializer="ones", name="scale")

    def call(self, inputs: Any) -> Any:
        @tf.custom_gradient
        def scaled(scale: Any) -> Any:
            return inputs * tf.reduce_sum(scale), lambda upstream: tf.exp(scale) + tf.reduce_sum(upstream)

        return scaled(self.scale)


@pytest.mark.parametrize(("method", "runs"), [("sum", True), ("mean", False), ("running_mean", False)])
def test_means_of_gradients_take_sums_of_one_shape(method: str, runs: bool, standin: Install) -> None:
    standin("3.4")
    ipu = importlib.import_module("tensorflow.python.ipu")
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,))
        model = tf.keras.Model(inputs, Broadcast()(inputs))
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=2, gradient_accumulation_reduction_method=method
        )
        optimizer = make_optimizer(CosmoflowSettings(), Batch(1, 1, 1), 1)
        model.compile(optimizer=optimizer, loss="mse", steps_per_execution=2)
    ones = np.ones((2, 1), np.float32)
    data = tf.data.Dataset.from_tensor_slices((ones, ones)).batch(1, drop_remainder=True)
    if runs:
        model.fit(data, verbose=0)
    else:
        with pytest.raises(ValueError, match="the parts of a gradient"):
            model.fit(data, verbose=0)


@pytest.mark.parametrize("mapping", [[0, 0], [0, 1]], ids=str)
def test_stages_that_share_a_layer_are_on_one_ipu(mapping: List[int], standin: Install) -> None:
    standin("3.4")
    several = pytest.raises(tf.errors.UnimplementedError, match="stages on several IPUs use the variables of dense")
    with several if len(set(mapping)) > 1 else contextlib.nullcontext():
        fit(shared=tf.keras.layers.Dense(1, name="dense"), device_mapping=mapping)
