"""The stand-in itself: it refuses what an SDK would, so that a training that runs behind it means something."""

from __future__ import annotations

import importlib
from typing import Any, Callable, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.cosmoflow import CosmoflowSettings
from ipulaunch.topology import Batch
from ipulaunch.workers.optimizers import make_optimizer

Install = Callable[..., Any]
SUM = tf.distribute.ReduceOp.SUM


def module(name: str) -> Any:
    return importlib.import_module(name)


def ipu() -> Any:
    return module("tensorflow.python.ipu")


def configured(ipus: int = 1) -> Any:
    config = ipu().config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    return config


def sgd() -> Any:
    return make_optimizer(CosmoflowSettings(), Batch(1, 1, 1), 1)


def scoped_model(**compiled: Any) -> Any:
    configured()
    with ipu().ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,))
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
        model.compile(optimizer=sgd(), loss="mse", **compiled)
    return model


def data(count: int, dtype: Any = np.float32) -> tf.data.Dataset:
    ones = np.ones((count, 1), dtype)
    return tf.data.Dataset.from_tensor_slices((ones, ones)).batch(1, drop_remainder=True)


def accumulated(steps: Any, **more: Any) -> Any:
    model = scoped_model(steps_per_execution=3)
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=steps, **more)
    return model


def plain_model() -> Any:
    inputs = tf.keras.Input((1,))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))


def reduce_hosts(value: Any, *more: Any) -> Any:
    module("popdist").init()
    return module("tensorflow.python.ipu.distributed").allreduce(value, *more)


def assign(name: str, value: Any) -> Any:
    config = ipu().config.IPUConfig()
    *parts, last = name.split(".")
    category = config
    for part in parts:
        category = getattr(category, part)
    setattr(category, last, value)
    return config


def configure_with(**values: Any) -> None:
    config = ipu().config.IPUConfig()
    config.auto_select_ipus = 1
    for name, value in values.items():
        category, _, last = name.partition("__")
        setattr(getattr(config, category), last, value) if last else setattr(config, name, value)
    config.configure_ipu_system()


def assigned(stages: List[Any], ipus: int = 2) -> Any:
    """A chain of four layers with these stages."""
    configured(ipus)
    with ipu().ipu_strategy.IPUStrategy().scope():
        outputs = inputs = tf.keras.Input((1,))
        for _ in range(4):
            outputs = tf.keras.layers.Dense(1)(outputs)
        model = tf.keras.Model(inputs, outputs)
    assignment = model.get_pipeline_stage_assignment()
    for layer, stage in zip(assignment, stages):
        layer.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment[: len(stages)])
    return model


def pipelined(accumulation: Any = 4, steps: int = 4, ipus: int = 2, **options: Any) -> Any:
    model = assigned([0, 0, 1, 1], ipus)
    if accumulation:
        options["gradient_accumulation_steps_per_replica"] = accumulation
    model.set_pipelining_options(**options)
    with model.distribute_strategy.scope():
        model.compile(optimizer=sgd(), loss="mse", steps_per_execution=steps)
    return model


def schedule(name: str) -> Any:
    return getattr(module("tensorflow.python.ipu.ops.pipelining_ops").PipelineSchedule, name)


def stage_options(**options: Any) -> Any:
    return module("tensorflow.python.ipu.ops.pipelining_ops").PipelineStageOptions(**options)


def memory(share: str) -> Any:
    return {"availableMemoryProportion": share}


def workers(layout: str) -> Any:
    return {"target.deterministicWorkers": layout}


def divided_after_compile() -> None:
    pipelined().set_pipelining_options(gradient_accumulation_steps_per_replica=4)


def pre_compiled(version: str) -> None:
    configure_with(
        device_connection__version=version, device_connection__type=ipu().config.DeviceConnectionType.PRE_COMPILE
    )


def reconfigured() -> None:
    configured(1)
    configured(2)


MISTAKES = [
    ("3.4", "unknown attribute", lambda: ipu().config.IPUConfigs, AttributeError),
    ("3.4", "not imported yet", lambda: ipu().distributed, AttributeError),
    ("3.4", "horovod is gone", lambda: module("tensorflow.python.ipu.horovod"), ImportError),
    ("2.6", "distributed is not there yet", lambda: module("tensorflow.python.ipu.distributed"), ImportError),
    ("2.6", "init is not there yet", lambda: module("popdist").init, AttributeError),
    ("3.0", "no replication options yet", lambda: scoped_model().set_replication_options, AttributeError),
    ("3.4", "unknown setting", lambda: assign("auto_select_ipu", 1), ValueError),
    ("3.4", "setting of another type", lambda: assign("auto_select_ipus", "1"), TypeError),
    ("3.4", "a category is no setting", lambda: assign("io_tiles", 1), Exception),
    ("3.4", "unknown setting in a category", lambda: assign("norms.stable_statistics", True), ValueError),
    ("3.4", "rounding is no bool", lambda: assign("floating_point_behaviour.esr", True), TypeError),
    ("3.4", "a whole number is no share", lambda: assign("io_tiles.available_memory_proportion", 1), TypeError),
    ("3.4", "unknown option of Poplar", lambda: configure_with(compilation_poplar_options={"fast": "1"}), ValueError),
    ("3.4", "options are words", lambda: configure_with(matmuls__poplar_options={"partialsType": 16}), TypeError),
    ("3.4", "partials in 8 bits", lambda: configure_with(matmuls__poplar_options={"partialsType": "char"}), ValueError),
    ("3.4", "more than all memory", lambda: configure_with(matmuls__poplar_options=memory("1.5")), ValueError),
    ("3.4", "per cent of memory", lambda: stage_options(convolution_options=memory("15 %")), ValueError),
    ("3.4", "workers laid out anyhow", lambda: configure_with(compilation_poplar_options=workers("yes")), ValueError),
    ("3.4", "no tiles to place on", lambda: configure_with(io_tiles__place_ops_on_io_tiles=True), ValueError),
    ("3.4", "two selections", lambda: configure_with(select_ipus=1), ValueError),
    ("3.4", "nothing to compile for", lambda: pre_compiled(""), ValueError),
    ("3.4", "other IPUs in a run", reconfigured, RuntimeError),
    ("3.4", "seed without a device", lambda: ipu().utils.reset_ipu_seed(1), RuntimeError),
    ("3.4", "unknown keyword", lambda: module("popdist.tensorflow").set_ipu_config(ipus=1), TypeError),
    ("3.4", "missing argument", lambda: reduce_hosts(np.ones(1, np.float32)), TypeError),
    ("3.4", "a word is no reduction", lambda: reduce_hosts(np.ones(1, np.float32), "SUM"), AttributeError),
    ("3.4", "no 64-bit floats", lambda: reduce_hosts(np.ones(1), SUM), tf.errors.NotFoundError),
    ("3.4", "config after the fact", lambda: module("popdist.tensorflow").set_ipu_config(configured()), RuntimeError),
    ("3.4", "made outside the scope", lambda: plain_model().set_gradient_accumulation_options, AttributeError),
    ("3.4", "unknown reduction", lambda: accumulated(1, gradient_accumulation_reduction_method="MAX"), ValueError),
    ("3.4", "unknown accumulation option", lambda: accumulated(1, offload=True), TypeError),
    ("3.4", "accumulation is a number", lambda: accumulated("2"), ValueError),
    ("3.4", "accumulation divides", lambda: accumulated(2).fit(data(3), verbose=0), RuntimeError),
    ("3.4", "executions divide", lambda: scoped_model(steps_per_execution=2).fit(data(3), verbose=0), ValueError),
    ("3.4", "no 16-bit feeds", lambda: scoped_model().fit(data(1, np.int16), verbose=0), TypeError),
    ("3.4", "more than there is", lambda: scoped_model().fit(data(2), steps_per_epoch=3, verbose=0), ValueError),
    ("3.4", "unknown feed option", lambda: scoped_model().set_infeed_queue_options(depth=2), TypeError),
    ("3.4", "no depth", lambda: scoped_model().set_infeed_queue_options(prefetch_depth=0), ValueError),
    ("3.4", "a depth is a number", lambda: scoped_model().set_infeed_queue_options(prefetch_depth="2"), ValueError),
    ("3.4", "unknown outfeed option", lambda: scoped_model().set_outfeed_queue_options(depth=2), TypeError),
    ("3.4", "no outfeed depth", lambda: scoped_model().set_outfeed_queue_options(buffer_depth=0), ValueError),
    ("3.4", "the outfeed is Keras's", lambda: scoped_model().set_outfeed_queue_options(outfeed_mode=None), ValueError),
    ("3.4", "offloading by word", lambda: accumulated(1, offload_weight_update_variables="true"), TypeError),
    ("3.4", "offloading by number", lambda: pipelined(offload_activations=1), TypeError),
    ("3.4", "a layer without a stage", lambda: assigned([0, 0, 1, None]), ValueError),
    ("3.4", "a layer left out", lambda: assigned([0, 0, 1]), ValueError),
    ("3.4", "stages out of order", lambda: assigned([0, 1, 0, 1]), ValueError),
    ("3.4", "options after compile", divided_after_compile, RuntimeError),
    ("3.4", "what Keras gives itself", lambda: pipelined(gradient_accumulation_count=4), ValueError),
    ("3.4", "a mapping is a list", lambda: pipelined(device_mapping=(0, 1)), ValueError),
    ("3.4", "a mapping for each stage", lambda: pipelined(device_mapping=[0]).fit(data(4), verbose=0), ValueError),
    ("3.4", "no accumulation", lambda: pipelined(accumulation=None).fit(data(4), verbose=0), ValueError),
    ("3.4", "pipelined accumulation divides", lambda: pipelined(4, 2).fit(data(4), verbose=0), RuntimeError),
    ("3.4", "fewer IPUs than stages", lambda: pipelined(ipus=1).fit(data(4), verbose=0), ValueError),
    ("3.4", "stage options know their keys", lambda: stage_options(matmul_options={"amp": "0.1"}), ValueError),
    (
        "3.4",
        "options for each stage",
        lambda: pipelined(forward_propagation_stages_poplar_options=[stage_options()]).fit(data(4), verbose=0),
        ValueError,
    ),
]


@pytest.mark.parametrize(("sdk", "what", "act", "error"), MISTAKES, ids=[f"{row[0]} {row[1]}" for row in MISTAKES])
def test_the_stand_in_refuses(sdk: str, what: str, act: Callable[[], Any], error: Any, standin: Install) -> None:
    standin(sdk)
    with pytest.raises(error):
        act()


@pytest.mark.parametrize(("name", "steps"), [("Grouped", 4), ("Interleaved", 2), ("Sequential", 1)])
def test_a_pipeline_runs_in_whole_turns_of_its_schedule(name: str, steps: int, standin: Install) -> None:
    standin("3.4")
    model = pipelined(steps, steps, pipeline_schedule=schedule(name), device_mapping=[0, 1])
    model.fit(data(2 * steps), verbose=0)
    assert int(model.optimizer.iterations) == 2


def test_an_instance_that_does_not_ask_popdist_would_train_alone(standin: Install) -> None:
    standin("3.4", replicas=2)
    with pytest.raises(RuntimeError, match="before set_ipu_config"):
        configured()


def test_horovod_has_to_be_started_by_hand(standin: Install) -> None:
    standin("2.6", replicas=2)
    with pytest.raises(RuntimeError, match="call init"):
        module("tensorflow.python.ipu.horovod.popdist_strategy").PopDistStrategy()


def test_keras_puts_no_loss_scaling_of_its_own_around_the_optimizer(standin: Install) -> None:
    standin("3.4")
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        with pytest.raises(RuntimeError, match="mixed precision"):
            scoped_model()
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
