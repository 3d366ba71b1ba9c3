"""Every setting of the device reaches the SDK, or is refused with the reason."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
import tensorflow as tf
from fixtures.plans import ipu_backend, plan_of

from ipulaunch.configs.errors import NotReadyError, SettingsError
from ipulaunch.configs.settings.device import Device
from ipulaunch.configs.settings.schema import leaves
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology import Batch
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.network import Network
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.workers.backends.ipu.environment import engine_options, flags
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import make_optimizer

Install = Callable[..., Any]
BATCH = Batch(1, 2, 4)
SPLIT = "pipeline.splits=[conv3_block1_post_addition_relu]"
ESR, CONNECTION = "IPUConfig.floating_point_behaviour.esr =", "IPUConfig.device_connection"


def scheduling_algorithms() -> Tuple[str, ...]:
    (found,) = (leaf.about.choices for leaf in leaves(Device) if leaf.key == "scheduling_algorithm")
    return found


def settings_of(*texts: str, workload: str = "cifar10") -> Any:
    overrides = [
        assignment(text, "--set") for text in ("data.synthetic_data=cpu", "training.deterministic=false", *texts)
    ]
    return resolve(workload, rehearsal=True, overrides=overrides).settings


@pytest.fixture()
def placed_backend(standin: Install, one_residual_block: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A backend with these settings in an instance of poprun's, and a small model, ready for training."""

    def run(*texts: str, batch: Batch = BATCH, ipus: int = 1, workload: str = "cifar10", sdk: str = "3.4") -> Any:
        settings = settings_of("data.side=8", *texts, workload=workload)
        monkeypatch.chdir(tmp_path)
        for name in ("TF_POPLAR_FLAGS", "POPLAR_ENGINE_OPTIONS"):
            monkeypatch.setenv(name, os.environ.get(name, ""))  # so that what the backend sets is taken back
        monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", str(ipus))
        standin(sdk, replicas=batch.replicas)
        backend = ipu_backend(settings, plan_of(batch, ipus_per_replica=ipus))
        with backend.scope():
            model, optimizer = (
                build_model(one_residual_block(settings), backend.dropout),
                make_optimizer(settings, batch, 1),
            )
            return backend, backend.prepare(model, optimizer, measures_of(settings), HostEvents(1, 3, 3, 0, 0, 3))

    return run


@pytest.fixture()
def calls_of(placed_backend: Any, read_calls: Any, tmp_path: Path) -> Any:
    """The calls that a backend with these settings makes until its model is ready."""

    def run(*texts: str, **more: Any) -> List[Any]:
        placed_backend(*texts, **more)
        found: List[Any] = read_calls(tmp_path / "calls.jsonl", 0)
        return found

    return run


def value(shown: Any) -> Dict[str, Any]:
    return {"value": shown}


def options(**words: str) -> Any:
    return value({"gatherConvOutput": "false", "enableConvDithering": "false", **words})


@pytest.mark.parametrize("rounding", ["off", "on", "ri"])
@pytest.mark.parametrize("drops", [False, True])
def test_replicas_draw_alike_unless_they_drop_units_and_a_resumed_training_draws_on(
    drops: bool, rounding: str, placed_backend: Any, read_calls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Network, "drops_units", drops)
    backend, _ = placed_backend(f"device.stochastic_rounding={rounding}")
    device = backend.device
    device.begin_after(60)
    device.begin_after(60)  # after a call that was taken back
    device.index = 1
    device.begin_after(61)
    device.begin_after(60)
    calls = read_calls(tmp_path / "calls.jsonl", 0)
    seeds = [given for name, given in calls if name.endswith("reset_ipu_seed")]
    start, first, again, _, second = (given["seed"] for given in seeds)
    assert start != first == again
    assert (first == second) == (not drops)
    assert {given["experimental_identical_replicas"] for given in seeds} == {not drops}


@pytest.mark.parametrize(
    ("workload", "text", "drops"),
    [
        ("cosmoflow", "model.dropout=0.2", True),
        ("cosmoflow", "model.dropout=0", False),
        ("mnist", "data.side=28", True),
        ("cifar10", "model.name=cifar_resnet8", False),
    ],
)
def test_networks_tell_whether_they_drop_units(workload: str, text: str, drops: bool) -> None:
    assert network_of(settings_of(text, workload=workload)).drops_units is drops


# What is set, and the call that it makes; all that is in Device is in one of them.
MAPPED = [
    ("stochastic_rounding=on", ESR, value("StochasticRoundingBehaviour.ON")),
    ("stochastic_rounding=off", ESR, value("StochasticRoundingBehaviour.OFF")),
    ("stochastic_rounding=ri", ESR, value("StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY")),
    ("stochastic_rounding=on", "IPUConfig.experimental.enable_prng_stability =", value(True)),
    ("stochastic_rounding=ri", "IPUConfig.experimental.enable_prng_stability =", value(True)),
    ("stochastic_rounding=off", "IPUConfig.experimental.enable_prng_stability =", value(False)),
    (
        "stochastic_rounding=ri",
        "tensorflow.python.ipu.utils.reset_ipu_seed",
        {"seed": 0, "experimental_identical_replicas": True},
    ),
    ("half_partials=true", "IPUConfig.convolutions.poplar_options =", options(partialsType="half")),
    ("half_partials=true", "IPUConfig.matmuls.poplar_options =", value({"partialsType": "half"})),
    (
        "available_memory_proportion=[13.5]",
        "IPUConfig.convolutions.poplar_options =",
        options(availableMemoryProportion="0.135"),
    ),
    (
        "available_memory_proportion=[20, 10]",
        "IPUConfig.matmuls.poplar_options =",
        value({"availableMemoryProportion": "0.1"}),
    ),
    ("stable_norm=true", "IPUConfig.norms.use_stable_statistics =", value(True)),
    (
        "distributed_norm_replicas=2",
        "IPUConfig.norms.experimental.distributed_batch_norm_replica_group_size =",
        value(2),
    ),
    (
        "internal_exchange_optimisation_target=memory",
        "IPUConfig.compilation_poplar_options =",
        value({"target.deterministicWorkers": "portable", "opt.internalExchangeOptimisationTarget": "memory"}),
    ),
    (
        "max_cross_replica_sum_buffer_size=52428800",
        "IPUConfig.optimizations.maximum_cross_replica_sum_buffer_size =",
        value(52428800),
    ),
    ("max_reduce_many_buffer_size=216", "IPUConfig.optimizations.maximum_reduce_many_buffer_size =", value(216)),
    ("min_remote_tensor_size=64", "IPUConfig.optimizations.minimum_remote_tensor_size =", value(64)),
    ("gather_conv_output=true", "IPUConfig.convolutions.poplar_options =", options(gatherConvOutput="true")),
    ("conv_dithering=true", "IPUConfig.convolutions.poplar_options =", options(enableConvDithering="true")),
    ("fp_exceptions=true", "IPUConfig.floating_point_behaviour.inv =", value(True)),
    ("fp_exceptions=true", "IPUConfig.floating_point_behaviour.div0 =", value(True)),
    ("fp_exceptions=true", "IPUConfig.floating_point_behaviour.oflo =", value(True)),
    ("nanoo=true", "IPUConfig.floating_point_behaviour.nanoo =", value(True)),
    ("scheduling_algorithm=CLUSTERING", "IPUConfig.scheduling.algorithm =", value("SchedulingAlgorithm.CLUSTERING")),
    ("io_tiles=32", "IPUConfig.io_tiles.num_io_tiles =", value(32)),
    ("io_tiles=32", "IPUConfig.io_tiles.place_ops_on_io_tiles =", value(True)),
    ("prefetch_depth=5", "Model.set_infeed_queue_options", {"kwargs": {"prefetch_depth": 5}}),
    ("outfeed_depth=4", "Model.set_outfeed_queue_options", {"kwargs": {"buffer_depth": 4}}),
    ("connection=on_demand", f"{CONNECTION}.type =", value("DeviceConnectionType.ON_DEMAND")),
    ("connection=on_demand", f"{CONNECTION}.enable_remote_buffers =", value(True)),
    (
        "accelerator_side_reduction=true",
        "Model.set_replication_options",
        {"replicated_metric_reduction_method": "MEAN"},
    ),
    (
        "optimizer_state_offloading=true",
        "Model.set_gradient_accumulation_options",
        {
            "gradient_accumulation_steps_per_replica": 4,
            "gradient_accumulation_reduction_method": "GradientAccumulationReductionMethod.RUNNING_MEAN",
            "gradient_accumulation_optimizer_kwargs": {"offload_weight_update_variables": True},
        },
    ),
]
ELSEWHERE = {"recomputation", "profile", "fused_preprocessing", "compile_only"}  # each has a test of its own


@pytest.mark.parametrize(("text", "call", "given"), MAPPED, ids=[f"{row[0]} {row[1]}" for row in MAPPED])
def test_a_setting_of_the_device_becomes_a_call(text: str, call: str, given: Any, calls_of: Any) -> None:
    assert (call, given) in calls_of(f"device.{text}")


@pytest.mark.parametrize("sdk", ["2.6", "3.0"])
def test_a_reduction_that_an_sdk_does_not_have_is_refused(sdk: str, placed_backend: Any) -> None:
    with pytest.raises(SettingsError, match=r"SDKs before 3\.1 do not have"):
        placed_backend("device.accelerator_side_reduction=true", sdk=sdk)


def test_no_setting_of_the_device_is_without_effect() -> None:
    named = {text.partition("=")[0] for text, _, _ in MAPPED} | ELSEWHERE
    assert named == {field.name for field in dataclasses.fields(Device)}


@pytest.mark.parametrize("sdk", ["2.6", "3.0", "3.1", "3.4"])
def test_a_pipeline_gets_its_mapping_its_memory_and_recomputation(sdk: str, calls_of: Any) -> None:
    memory = "device.available_memory_proportion=[10, 20, 30, 40]"
    found = calls_of(
        SPLIT, memory, "device.recomputation=true", "device.optimizer_state_offloading=true",
        "pipeline.device_mapping=[1, 0]", ipus=2, sdk=sdk,
    )  # fmt: skip
    assert ("IPUConfig.allow_recompute =", value(True)) in found
    assert ("IPUConfig.matmuls.poplar_options =", value({})) in found
    stages = [
        {"convolutions": {"availableMemoryProportion": first}, "matmuls": {"availableMemoryProportion": second}}
        for first, second in (("0.1", "0.2"), ("0.3", "0.4"))
    ]
    (given,) = [given for name, given in found if name == "Model.set_pipelining_options"]
    assert given["device_mapping"] == [1, 0]
    assert given["pipelining_kwargs"] == {
        "pipeline_schedule": "PipelineSchedule.Grouped",
        "offload_weight_update_variables": True,
        "forward_propagation_stages_poplar_options": stages,
        "backward_propagation_stages_poplar_options": stages,
    }


@pytest.mark.parametrize("algorithm", list(scheduling_algorithms()))
def test_a_scheduling_algorithm_has_its_name_in_the_sdk(algorithm: str, calls_of: Any) -> None:
    given = value(f"SchedulingAlgorithm.{algorithm}")
    assert ("IPUConfig.scheduling.algorithm =", given) in calls_of(f"device.scheduling_algorithm={algorithm}")


@pytest.mark.parametrize(
    ("is_placed", "deterministic", "workers"),
    [(True, "false", "portable"), (False, "true", "portable"), (False, "false", "false")],
)
def test_instances_and_repeatable_runs_lay_workers_out_alike(
    is_placed: bool, deterministic: str, workers: str, standin: Install, read_calls: Any, tmp_path: Path
) -> None:
    """As the published application: whatever poprun has started, also alone, and whatever is to be repeated."""
    replicas = 2 if is_placed else 1
    standin("3.4", replicas=2 if is_placed else 0)
    ipu_backend(settings_of(f"training.deterministic={deterministic}"), plan_of(Batch(1, replicas, 1)))
    found = read_calls(tmp_path / "calls.jsonl", 0)
    assert ("IPUConfig.compilation_poplar_options =", value({"target.deterministicWorkers": workers})) in found
    assert ("IPUConfig.experimental.enable_prng_stability =", value(deterministic == "true")) in found


def test_the_outfeed_of_validation_is_as_deep(placed_backend: Any, read_calls: Any, tmp_path: Path) -> None:
    _, training = placed_backend("device.outfeed_depth=4")
    specs = (None, tf.TensorSpec((1,), tf.int32), tf.TensorSpec((1,), tf.float32))
    training._validator(specs, 1, 1)
    found = read_calls(tmp_path / "calls.jsonl", 0)
    assert found.count(("Model.set_outfeed_queue_options", {"kwargs": {"buffer_depth": 4}})) == 2


def test_compiling_alone_attaches_nothing(calls_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--executable_cache_path=/cache")
    found = calls_of("device.compile_only=true")
    assert ("popdist.isPopdistEnvSet", {}) in found
    assert [(name, given) for name, given in found if name.startswith(CONNECTION)] == [
        (f"{CONNECTION}.version =", value("ipu2")),
        (f"{CONNECTION}.enable_remote_buffers =", value(True)),
        (f"{CONNECTION}.type =", value("DeviceConnectionType.PRE_COMPILE")),
    ]
    given = {"config": "IPUConfig", "ipus_per_replica": 1, "configure_device": False}
    start = found.index(("popdist.tensorflow.set_ipu_config", given))
    assert found[start + 1] == ("IPUConfig.auto_select_ipus =", value(2))


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_profile_goes_where_the_backend_is_told(
    is_asked: bool, placed_backend: Any, read_calls: Any, tmp_path: Path
) -> None:
    backend, _ = placed_backend(f"device.profile={is_asked}")
    backend.report_to(tmp_path / "there" / "profile")
    calls = read_calls(tmp_path / "calls.jsonl", 0)
    seen = [json.loads(given["value"]) for name, given in calls if name == "POPLAR_ENGINE_OPTIONS"]  # by the device
    wanted = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "there" / "profile")}
    assert seen == ([wanted] if is_asked else [])
    assert (tmp_path / "there" / "profile").is_dir() == is_asked


@pytest.mark.parametrize("flag", ["--use_ipu_model", "--use_ipu_model=true"])
def test_poprun_needs_hardware(flag: str, calls_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"TF_POPLAR_FLAGS": f"--max_compilation_threads=4 {flag}"}
    assert flags(settings_of(), given) == {}  # of a process that poprun did not start
    monkeypatch.setenv(*given.popitem())
    with pytest.raises(NotReadyError, match="has --use_ipu_model, and under poprun the SDK runs on hardware") as caught:
        calls_of()
    assert caught.value.hint


def test_engine_options_of_the_user_stay() -> None:
    given = {"POPLAR_ENGINE_OPTIONS": '{"autoReport.all": "false", "target.hostSyncTimeout": "900"}'}
    assert json.loads(engine_options(Path("reports"), given)["POPLAR_ENGINE_OPTIONS"]) == {
        "autoReport.all": "false",
        "autoReport.directory": "reports",
        "target.hostSyncTimeout": "900",
    }
    with pytest.raises(SettingsError, match="POPLAR_ENGINE_OPTIONS is not JSON"):
        engine_options(Path("reports"), {"POPLAR_ENGINE_OPTIONS": "autoReport.all=true"})


REFUSED = [
    (("optimizer.momentum=0", "optimizer.l2_regularization=0", "schedule.name=const", "optimizer.auto_loss_scaling=on"),
     {}, "automatic loss scaling on IPUs counts gradients of 16 bits"),
    (("training.trace_samples=true",), {}, "--trace-samples notes samples inside"),
    (("device.optimizer_state_offloading=true",), {"batch": Batch(1, 2, 1)}, "accumulation is 1"),
    (("device.distributed_norm_replicas=4",), {}, "groups of 4 replicas, and there are 2"),
    (("device.distributed_norm_replicas=2", "device.io_tiles=8"), {}, "8 tiles for input and output"),
    (("device.outfeed_depth=4", "estimator.api=estimator"), {"batch": Batch(1, 1, 1)}, "Estimators take none"),
    (("device.fused_preprocessing=true", "data.host_preprocess=true"), {}, "and the host normalises"),
    (("device.fused_preprocessing=true",), {"workload": "cosmoflow"}, "there are no images"),
    (("device.fused_preprocessing=true",), {"workload": "mnist"}, "3 colours, and these have 1"),
    (("device.compile_only=true",), {}, "has no place to keep what it compiles"),
    ((), {"ipus": 2}, "2 IPUs per replica, and the model is not divided"),
    ((SPLIT,), {"ipus": 4}, "4 IPUs per replica, and the 2 pipeline stages take 2"),
    ((SPLIT,), {"ipus": 2, "batch": Batch(1, 2, 6)}, "the Grouped schedule takes a multiple of 4"),
    ((SPLIT, "pipeline.schedule=Interleaved"), {"ipus": 2, "batch": Batch(1, 2, 3)}, "a multiple of 2"),
    ((SPLIT, "pipeline.schedule=Interleaved", "pipeline.device_mapping=[0, 0]"), {"batch": Batch(1, 2, 2)},
     "2 pipeline stages on 1 IPU with the Interleaved schedule"),
    ((SPLIT, "device.io_tiles=32"), {"ipus": 2, "batch": Batch(1, 2, 4)}, "at least 6, in multiples of 4"),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "more", "why"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_ipus_cannot_do_is_refused(texts: Any, more: Dict[str, Any], why: str, calls_of: Any) -> None:
    with pytest.raises(SettingsError, match=why) as caught:
        calls_of(*texts, **more)
    assert caught.value.hint
