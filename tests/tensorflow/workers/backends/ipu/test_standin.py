"""The stand-in itself: it refuses what an SDK would, so that a training that runs behind it means something."""

from __future__ import annotations

import importlib
from typing import Any, Callable, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.settings.cosmoflow import CosmoflowSettings
from ipulaunch.topology import Batch
from ipulaunch.workers.models.optimizers import make_optimizer

Install = Callable[..., Any]
SUM = tf.distribute.ReduceOp.SUM
_OLD = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers)


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


def sharded() -> Any:
    """A model whose replicas would share a state that stays on the IPU."""
    model = scoped_model(steps_per_execution=2)
    model.set_gradient_accumulation_options(
        gradient_accumulation_steps_per_replica=2,
        offload_weight_update_variables=False,
        replicated_optimizer_state_sharding=True,
    )
    return model


class Shortcut(tf.keras.Model):  # type: ignore[misc]
    """A model with a step of its own."""

    def train_step(self, data: Any) -> Any:
        return {}


class Calling(tf.keras.Model):  # type: ignore[misc]
    """A model with a call of its own."""

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        return super().call(inputs, training, mask)


class Minimizing(_OLD.SGD):  # type: ignore[misc, name-defined]
    """An optimizer that minimises in its own way."""

    def minimize(self, *args: Any, **kwargs: Any) -> Any:
        return None


def fitted(kind: Any = tf.keras.Model, optimizer: Any = None, accumulation: int = 1, **compiled: Any) -> Any:
    configured()
    with ipu().ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,))
        model = kind(inputs, tf.keras.layers.Dense(1)(inputs))
        model.compile(optimizer=optimizer or sgd(), loss="mse", steps_per_execution=2, **compiled)
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulation)
    return model.fit(data(2), verbose=0)


def uncompiled(method: str = "fit") -> Any:
    configured()
    with ipu().ipu_strategy.IPUStrategy().scope():
        return getattr(plain_model(), method)(data(1), verbose=0)


def unused_weight() -> Any:
    """A layer whose weights the loss does not depend on."""
    configured()
    with ipu().ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,))
        unused = tf.keras.layers.Lambda(tf.stop_gradient)(tf.keras.layers.Dense(1)(inputs))
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs) + unused)
        model.compile(optimizer=sgd(), loss="mse")
    return model.fit(data(1), verbose=0)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _shifted(weight: Any) -> Any:
    """A weight whose gradient is a sum that broadcasts."""
    return tf.identity(weight), lambda upstream: upstream + tf.constant(1.0)


class Shifting(tf.keras.layers.Layer):  # type: ignore[misc]
    def build(self, shape: Any) -> None:
        self.shift = self.add_weight(name="shift", shape=(1,))

    def call(self, inputs: Any) -> Any:
        return inputs + _shifted(tf.convert_to_tensor(self.shift))


def broadcast_sum(method: str) -> Any:
    configured()
    with ipu().ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,))
        model = tf.keras.Model(inputs, Shifting()(inputs))
        model.compile(optimizer=sgd(), loss="mse", steps_per_execution=2)
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=2, gradient_accumulation_reduction_method=method
        )
    return model.fit(data(2), verbose=0)


def iterated() -> Any:
    configured()
    with ipu().ipu_strategy.IPUStrategy().scope():
        return list(data(1))


def unbatched_shapes() -> Any:
    ones = np.ones((3, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((ones, ones)).batch(1)


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


def assigned(stages: List[Any], ipus: int = 2, kind: Any = tf.keras.Model) -> Any:
    """A chain of four layers with these stages."""
    configured(ipus)
    with ipu().ipu_strategy.IPUStrategy().scope():
        outputs = inputs = tf.keras.Input((1,))
        for _ in range(4):
            outputs = tf.keras.layers.Dense(1)(outputs)
        model = kind(inputs, outputs)
    assignment = model.get_pipeline_stage_assignment()
    for layer, stage in zip(assignment, stages):
        layer.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment[: len(stages)])
    return model


def pipelined(accumulation: Any = 4, steps: int = 4, ipus: int = 2, kind: Any = tf.keras.Model, **options: Any) -> Any:
    model = assigned([0, 0, 1, 1], ipus, kind)
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


def exported(**more: Any) -> Any:
    return scoped_model().export_for_ipu_serving("exported", **more)


def divided_after_compile() -> None:
    pipelined().set_pipelining_options(gradient_accumulation_steps_per_replica=4)


def pre_compiled(version: str) -> None:
    configure_with(
        device_connection__version=version, device_connection__type=ipu().config.DeviceConnectionType.PRE_COMPILE
    )


def normalised_over(replicas: int, io_tiles: int = 0) -> None:
    """Batch statistics of several replicas, beside tiles for input and output."""
    config = ipu().config.IPUConfig()
    config.auto_select_ipus, config.io_tiles.num_io_tiles = 2, io_tiles
    config.norms.experimental.distributed_batch_norm_replica_group_size = replicas
    config.configure_ipu_system()


def numbered(index: int, count: int) -> None:
    """An instance with this number, of so many."""
    config = ipu().config.IPUConfig()
    config.auto_select_ipus = 1
    distribution = config.experimental.multi_replica_distribution
    distribution.process_index, distribution.process_count = index, count
    config.configure_ipu_system()


def normalised_in_a_pipeline(momentum: float) -> Any:
    """A training of two stages, the first with a batch norm of Keras."""
    configured(2)
    with ipu().ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,))
        normed = tf.keras.layers.BatchNormalization(momentum=momentum)(inputs)
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(normed))
        assignment = model.get_pipeline_stage_assignment()
        for stage, layer in enumerate(assignment):
            layer.pipeline_stage = stage
        model.set_pipeline_stage_assignment(assignment)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile(optimizer=sgd(), loss="mse", steps_per_execution=4)
    return model.fit(data(4), verbose=0)


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
    ("2.6", "no preparation for serving yet", lambda: exported(purge_export_dir=True), TypeError),
    ("3.0", "one accumulator", lambda: accumulated(1, use_v2_gradient_accumulation_optimizer=True), TypeError),
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
    ("3.4", "statistics of replicas beside io tiles", lambda: normalised_over(2, io_tiles=8), ValueError),
    ("3.4", "two selections", lambda: configure_with(select_ipus=1), Exception),
    ("3.4", "an index twice", lambda: configure_with(auto_select_ipus=[], select_ipus=[1, 1]), ValueError),
    ("3.4", "statistics of no replica", lambda: normalised_over(0), ValueError),
    ("3.4", "an instance of no run", lambda: numbered(2, 2), ValueError),
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
    ("3.4", "accumulated by another name", lambda: accumulated(1, num_mini_batches=2), ValueError),
    ("3.4", "accumulation is a number", lambda: accumulated("2"), ValueError),
    ("3.4", "sharded on the IPU", lambda: sharded().fit(data(2), verbose=0), ValueError),
    ("3.4", "accumulation divides", lambda: accumulated(2).fit(data(3), verbose=0), RuntimeError),
    ("3.4", "executions divide", lambda: scoped_model(steps_per_execution=2).fit(data(3), verbose=0), ValueError),
    ("3.4", "no 16-bit feeds", lambda: scoped_model().fit(data(1, np.int16), verbose=0), TypeError),
    ("3.4", "more than there is", lambda: scoped_model().fit(data(2), steps_per_epoch=3, verbose=0), ValueError),
    ("3.4", "fit before compile", uncompiled, RuntimeError),
    ("3.4", "eagerly", lambda: fitted(run_eagerly=True), RuntimeError),
    ("3.4", "evaluate before compile", lambda: uncompiled("evaluate"), RuntimeError),
    ("3.4", "evaluate eagerly", lambda: scoped_model(run_eagerly=True).evaluate(data(1), verbose=0), RuntimeError),
    ("3.4", "evaluate more than there is", lambda: scoped_model().evaluate(data(2), steps=3), ValueError),
    ("3.4", "half a turn of evaluation", lambda: pipelined(4, 1).evaluate(data(4)), tf.errors.FailedPreconditionError),
    ("3.4", "a step of its own", lambda: fitted(Shortcut), RuntimeError),
    ("3.4", "a minimize of its own", lambda: fitted(optimizer=Minimizing(0.1), accumulation=2), ValueError),
    ("3.4", "a weight without a gradient", unused_weight, ValueError),
    ("3.4", "a gradient that broadcasts", lambda: broadcast_sum("RUNNING_MEAN"), ValueError),
    ("3.4", "the host iterates in the scope", iterated, RuntimeError),
    ("3.4", "shapes that may vary", lambda: scoped_model().fit(unbatched_shapes(), verbose=0), ValueError),
    ("3.4", "data without an end", lambda: scoped_model().fit(data(1).repeat(), verbose=0), ValueError),
    ("3.4", "too deep a feed", lambda: scoped_model().set_infeed_queue_options(prefetch_depth=256), ValueError),
    ("3.4", "the data of a feed", lambda: scoped_model().set_infeed_queue_options(dataset=data(1)), ValueError),
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
    ("3.4", "a pipeline with a call of its own", lambda: pipelined(kind=Calling).fit(data(4), verbose=0), RuntimeError),
    ("3.4", "statistics in a pipeline", lambda: normalised_in_a_pipeline(0.9), RuntimeError),
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
    with pytest.raises(error) as found:
        act()
    assert error is not Exception or found.type is Exception


def test_what_the_sdk_takes_the_stand_in_takes(standin: Install) -> None:
    standin("3.4")
    broadcast_sum("SUM")
    fitted(optimizer=Minimizing(0.1))


# Two mistakes at once, and which of them the SDK finds first.
ORDERED = [
    ("the IPUs before the data", lambda: pipelined(ipus=1).fit(data(4).repeat(), verbose=0), ValueError, "attached"),
    (
        "the data before its shapes",
        lambda: scoped_model().fit(unbatched_shapes(), steps_per_epoch=5, verbose=0),
        ValueError,
        "micro-batches",
    ),
    (
        "the shapes before the executions",
        lambda: scoped_model(steps_per_execution=2).fit(unbatched_shapes(), verbose=0),
        ValueError,
        "not fully defined",
    ),
    ("the executions before the accumulation", lambda: accumulated(2).fit(data(4), verbose=0), ValueError, "divide"),
    (
        "the accumulation before the types",
        lambda: accumulated(2).fit(data(3, np.int16), verbose=0),
        RuntimeError,
        "not divisible",
    ),
    ("the types before the model", lambda: typed_shortcut(), TypeError, "the IPU has no int16"),
    (
        "the types before the pipeline",
        lambda: pipelined(pipeline_schedule="Grouped").fit(data(4, np.int16), verbose=0),
        TypeError,
        "the IPU has no int16",
    ),
    (
        "the model before the pipeline",
        lambda: pipelined(kind=Calling, pipeline_schedule="Grouped").fit(data(4), verbose=0),
        RuntimeError,
        "call is overridden",
    ),
]


def typed_shortcut() -> Any:
    configured()
    with ipu().ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,))
        model = Shortcut(inputs, tf.keras.layers.Dense(1)(inputs))
        model.compile(optimizer=sgd(), loss="mse")
    return model.fit(data(1, np.int16), verbose=0)


@pytest.mark.parametrize(("what", "act", "error", "match"), ORDERED, ids=[row[0] for row in ORDERED])
def test_of_two_mistakes_the_sdk_finds_one_first(
    what: str, act: Callable[[], Any], error: Any, match: str, standin: Install
) -> None:
    standin("3.4")
    with pytest.raises(error, match=match):
        act()


def placed_strategy() -> Any:
    """PopDist's strategy on a device."""
    popdist, config = module("popdist"), ipu().config.IPUConfig()
    popdist.init()
    module("popdist.tensorflow").set_ipu_config(config, ipus_per_replica=1, configure_device=True)
    config.configure_ipu_system()
    return module("tensorflow.python.ipu.distributed.popdist_strategy").PopDistStrategy()


def test_an_evaluation_gives_the_measures_of_all_replicas(standin: Install) -> None:
    standin("3.4", replicas=2)
    inputs = np.arange(4, dtype=np.float32)[:, np.newaxis]
    with placed_strategy().scope():
        model = plain_model()
        model.compile(optimizer=sgd(), loss="mse", metrics=["mae"], steps_per_execution=2)
        model.set_weights([np.ones((1, 1)), np.zeros(1)])
    stream = tf.data.Dataset.from_tensor_slices((inputs, 0 * inputs)).batch(1, drop_remainder=True)
    assert model.evaluate(stream, verbose=0) == pytest.approx([3.5, 1.5])
    assert model.evaluate(stream, verbose=0, return_dict=True) == pytest.approx({"loss": 3.5, "mae": 1.5})


@pytest.mark.parametrize("convert", [int, float, range])
def test_variables_of_popdist_convert_to_no_number(convert: Callable[[Any], Any], standin: Install) -> None:
    standin("3.4", replicas=2)
    with placed_strategy().scope():
        variable = tf.Variable(0)
    with pytest.raises(TypeError):
        convert(variable)
    assert variable.numpy() == tf.keras.backend.get_value(variable) == 0
    with ipu().ipu_strategy.IPUStrategy().scope():
        assert int(tf.Variable(0)) == float(tf.Variable(0.0)) == 0


def test_replicas_are_in_sync_under_popdist_alone(standin: Install) -> None:
    standin("3.4", replicas=4)
    assert placed_strategy().num_replicas_in_sync == 4
    assert ipu().ipu_strategy.IPUStrategy().num_replicas_in_sync == 1


def test_who_reads_a_statistic_on_the_host_reduces_it_over_the_instances(
    standin: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a variable that is made begins as on instance 0."""
    standin("3.4", replicas=2)
    strategy = placed_strategy()
    sdk, given = strategy.extended.sdk, []  # type: Any, List[Any]

    def twice(values: Any) -> Any:
        given.append(values)
        return 2 * values

    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "1")
    monkeypatch.setattr(sdk, "sum_over_instances", lambda values: values)
    with strategy.scope():
        mean = tf.Variable(
            3.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )
        weight = tf.Variable(3.0)
    monkeypatch.setattr(sdk, "sum_over_instances", twice)
    assert (mean.numpy(), len(given)) == (6.0, 1)
    assert (weight.numpy(), len(given)) == (3.0, 1)


def test_optimizers_get_the_component_of_a_variable(standin: Install) -> None:
    standin("3.4", replicas=2)
    strategy, seen = placed_strategy(), []  # type: Any, List[Any]
    with strategy.scope():
        weight = tf.Variable(1.0, name="weight")
        strategy.extended.update(weight, lambda component: seen.append(component))
    assert seen == [weight.values[0]] and seen[0].name == weight.name


@pytest.mark.parametrize(("steps", "epochs", "openings"), [(None, 1, 2), (None, 3, 4), (2, 1, 1), (4, 1, 2)])
def test_a_feed_opens_its_stream_again_where_it_begins_anew(
    steps: Any, epochs: int, openings: int, standin: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin("3.4")
    model = scoped_model()
    feeds, opened = module("ipu_standin.feeds"), []  # type: Any, List[Any]
    stock = feeds.STOCK_ITER

    def noted(dataset: Any) -> Any:
        opened.append(dataset)
        return stock(dataset)

    monkeypatch.setattr(feeds, "STOCK_ITER", noted)
    model.fit(data(4), steps_per_epoch=steps, epochs=epochs, verbose=0)
    assert len(opened) == openings


def test_wide_floats_are_narrowed_on_their_way_in(standin: Install) -> None:
    standin("3.4")
    scoped_model().fit(data(1, np.float64), verbose=0)


@pytest.mark.parametrize("bits", ["float16", "float32"])
def test_a_batch_norm_without_a_mean_takes_the_type_of_its_input(bits: str, standin: Install) -> None:
    standin("3.4")
    ipu()
    images, ones = tf.ones((2, 2, 2, 1), bits), tf.ones([1])
    norm = tf.compat.v1.nn.fused_batch_norm
    if bits == "float16":
        with pytest.raises(TypeError, match="mean is float16, and scale is float32"):
            norm(images, ones, ones)
    none = tf.constant([])
    assert norm(images, ones, ones, none, none)[1].dtype == tf.float32
    half = [tf.cast(value, tf.float16) for value in (ones, ones, none, none)]
    assert norm(images, *half)[1].dtype == tf.float16


@pytest.mark.parametrize(("kind", "made"), [("uint8", "float16"), ("float16", "float16"), ("float32", "float32")])
def test_a_fused_normalisation_rounds_its_constants(kind: str, made: str, standin: Install) -> None:
    standin("3.4")
    normalise = module("tensorflow.python.ipu.ops.image_ops").normalise_image
    pixels = tf.cast([[[[200, 100, 0]]]], kind)
    found = normalise(pixels, channel_offsets=[0.1, 0.0, 0.0], channel_scales=[1.0, 1 / 3, 1.0], scale=0.5)
    offset, third = np.array([0.1, 1 / 3], made).astype(np.float32)
    expected = (np.float32([100, 50, 0, 0]) - np.float32([offset, 0, 0, 0])) * np.float32([1, third, 1, 0])
    assert (found.dtype.name, found.numpy().flatten().tolist()) == (made, expected.astype(made).tolist())
    with pytest.raises(TypeError, match="takes no int32"):
        normalise(tf.cast(pixels, tf.int32), [0.0] * 3, [1.0] * 3)


@pytest.mark.parametrize("bits", ["float16", "mixed_float16"])
def test_sample_weights_and_float_targets_have_the_type_of_the_outputs(bits: str, standin: Install) -> None:
    standin("3.4")
    configured()
    seen: List[Any] = []

    def loss(targets: Any, outputs: Any) -> Any:
        seen.append(targets.dtype)
        return tf.reduce_mean(tf.cast(outputs - targets, tf.float32), axis=-1)

    class Weighted(tf.keras.metrics.Mean):  # type: ignore[misc]
        def update_state(self, targets: Any, outputs: Any, sample_weight: Any = None) -> Any:
            seen.append(sample_weight.dtype)
            return super().update_state(tf.constant(0.0))

    ones = np.ones((1, 1), np.float32)
    with ipu().ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,))
        outputs = tf.keras.layers.Dense(1, dtype=tf.keras.mixed_precision.Policy(bits))(inputs)
        model = tf.keras.Model(inputs, outputs)
        model.compile(optimizer=sgd(), loss=loss, weighted_metrics=[Weighted()])
    model.fit(tf.data.Dataset.from_tensor_slices((ones, ones, ones[0])).batch(1, drop_remainder=True), verbose=0)
    assert set(seen) == {tf.float16}


@pytest.mark.parametrize(("rounding", "stable"), [("ON", False), ("ON", True), ("REPLICA_IDENTICAL_ONLY", False)])
def test_replicas_drift_where_each_rounds_its_half_precision_weights(
    rounding: str, stable: bool, standin: Install
) -> None:
    standin("3.4", replicas=2)
    popdist, config = module("popdist"), ipu().config.IPUConfig()
    config.floating_point_behaviour.esr = getattr(ipu().config.StochasticRoundingBehaviour, rounding)
    config.experimental.enable_prng_stability = stable
    popdist.init()
    module("popdist.tensorflow").set_ipu_config(config)
    config.configure_ipu_system()
    with module("tensorflow.python.ipu.distributed.popdist_strategy").PopDistStrategy().scope():
        inputs = tf.keras.Input((1,))
        outputs = tf.keras.layers.Dense(1, dtype="float16")(inputs)
        model = tf.keras.Model(inputs, outputs)
        model.compile(optimizer=sgd(), loss="mse")
    if rounding == "ON" and not stable:
        with pytest.raises(RuntimeError, match="drift apart"):
            model.fit(data(2), verbose=0)
    else:
        model.fit(data(2), verbose=0)


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


def test_poprun_starts_no_instances_of_the_ipu_model(standin: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model=true")
    standin("3.4", replicas=2)
    config = ipu().config.IPUConfig()
    module("popdist").init()
    module("popdist.tensorflow").set_ipu_config(config)
    with pytest.raises(Exception, match="several instances cannot use the IPU Model") as found:
        config.configure_ipu_system()
    assert found.type is Exception


@pytest.mark.parametrize(
    ("values", "error"),
    [({"auto_select_ipus": [], "select_ipus": [1]}, Exception), ({"ipu_model__version": ""}, ValueError)],
    ids=["an index", "no version"],
)
def test_the_ipu_model_is_chosen_by_number_and_has_a_version(
    values: Any, error: Any, standin: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    standin("3.4")
    configure_with()
    with pytest.raises(error, match="IPU Model") as found:
        configure_with(**values)
    assert found.type is error


@tf.function  # type: ignore[untyped-decorator]
def _same(value: Any) -> Any:
    return value


@tf.function  # type: ignore[untyped-decorator]
def _widened(value: Any) -> Any:
    return tf.cast(value, tf.float64)


def test_nothing_runs_eagerly_in_an_ipu_strategy(standin: Install) -> None:
    standin("3.4")
    strategy, one = ipu().ipu_strategy.IPUStrategy(), tf.constant(1.0)
    with pytest.raises(ValueError, match="runs nothing eagerly"):
        strategy.run(lambda value: value, args=[one])
    graph = _same.get_concrete_function(one)
    around = tf.function(lambda: strategy.run(lambda value: value, args=[one]))
    assert [found.numpy() for found in (strategy.run(_same, [one]), strategy.run(graph, [one]), around())] == [1, 1, 1]


def test_functions_in_an_ipu_strategy_have_no_wide_floats(standin: Install) -> None:
    standin("3.4")
    strategy = ipu().ipu_strategy.IPUStrategy()
    held = tf.constant(np.ones(200))  # so large that a graph keeps it as an input
    with pytest.raises(TypeError, match="an input of the function is float64"):
        strategy.run(_same, args=[np.float64(1)])
    with pytest.raises(TypeError, match="an input of the function is float64"):
        strategy.run(tf.function(lambda: tf.cast(held, tf.float32)))
    with pytest.raises(TypeError, match="an output of the function is float64"):
        strategy.run(_widened, args=[np.float32(1)])


@pytest.mark.parametrize("is_placed", [False, True], ids=["IPUStrategy", "PopDistStrategy"])
def test_the_device_reduces_to_sums_and_means_alone(is_placed: bool, standin: Install) -> None:
    standin("3.4", replicas=2 if is_placed else 1)
    strategy = placed_strategy() if is_placed else ipu().ipu_strategy.IPUStrategy()
    extended, one = strategy.extended, tf.constant(1.0)
    with extended.on_device():
        for how in (SUM, tf.distribute.ReduceOp.MEAN):
            assert extended._reduce_to(how, one, None, None) == 1
        with pytest.raises(ValueError, match="the device has no reduction"):
            extended._reduce_to("MAX", one, None, None)
    if not is_placed:
        assert extended._reduce_to("MAX", one, None, None) is one  # the host of IPUStrategy reduces nothing


def test_instances_that_have_met_before_the_configuration_may_meet_again(standin: Install) -> None:
    standin("3.4", replicas=2)
    module("popdist").init()
    placed_strategy()
    assert module("popdist").isBackendInitialized()


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
