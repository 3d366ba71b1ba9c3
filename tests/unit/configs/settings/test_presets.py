"""The published configurations: each says what it is for, builds, and means what its header says."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any, Dict, Tuple

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.runs.job import Job, from_yaml, set_options, to_yaml
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import WORKLOADS, presets, resolve
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.splits import check_splits

PRESETS = [(workload, name) for workload in WORKLOADS for name in presets(workload)]
of_presets = pytest.mark.parametrize(("workload", "name"), PRESETS, ids=[f"{w}-{n}" for w, n in PRESETS])
rehearsed = pytest.mark.parametrize("rehearsal", [False, True], ids=["run", "rehearsal"])


def header(workload: str, name: str) -> Dict[str, str]:
    """What the comment at the top says under each word."""
    lines = presets(workload)[name].read_text(encoding="utf-8").splitlines()
    comment = [line[2:] for line in itertools.takewhile(lambda line: line.startswith("#"), lines)]
    return {"Purpose": comment[0], **dict(line.split(maxsplit=1) for line in comment[1:] if line)}


def test_what_the_published_applications_have_is_there() -> None:
    assert {name for workload, name in PRESETS if workload == "imagenet"} >= {
        "resnet50_16ipus_16k_bn_pipeline",
        "resnet50_16ipus_8k_bn_pipeline",
        "resnet50_16ipus_8k_gn_pipeline",
        "resnet50_mlperf_pod16_lars",
        "resnet50_infer_bs1",
        "resnet50_infer_test",
    }
    assert ("cifar10", "resnet8_16ipus_bn") in PRESETS
    assert {name for workload, name in PRESETS if workload == "cosmoflow"} == {
        "cosmoflow_v1",
        "mlperf_128",
        "published_program",
        "published_yaml",
    }


@of_presets
def test_header_gives_purpose_hardware_score_and_command(workload: str, name: str) -> None:
    found = header(workload, name)
    assert {"Hardware", "Score", "Command"} <= set(found)
    assert len(found["Purpose"]) > 20
    words = found["Command"].split()
    assert words[:2] == ["ipulaunch", workload]
    assert words[words.index("--config") + 1] == name


@rehearsed
@of_presets
def test_preset_builds(workload: str, name: str, rehearsal: bool) -> None:
    found = resolve(workload, rehearsal=rehearsal, config=name)
    assert (found.workload, found.config, found.rehearsal, found.given) == (workload, name, rehearsal, frozenset())
    assert any(origin.startswith(f"configs/presets/{workload}/{name}.yaml:") for origin in found.origins.values())


@rehearsed
@of_presets
def test_network_can_be_divided_as_the_preset_says(workload: str, name: str, rehearsal: bool) -> None:
    settings = resolve(workload, rehearsal=rehearsal, config=name).settings
    check_splits(network_of(settings), settings.pipeline.splits)


@of_presets
def test_rehearsal_keeps_stages_replicas_and_optimizer(workload: str, name: str) -> None:
    run, small = (resolve(workload, rehearsal=flag, config=name).settings for flag in (False, True))
    assert run.pipeline == small.pipeline
    assert run.launch.num_replicas == small.launch.num_replicas
    assert (run.model.name, run.optimizer.name) == (small.model.name, small.optimizer.name)
    assert run.device == small.device
    assert small.training.num_epochs <= 3


# What Graphcore's TensorFlow 2 CNN application publishes, under its own names: the defaults of its command line, and
# what each of its configurations sets. A later row may begin with an earlier one, as theirs do.
DEFAULTS: Dict[str, Any] = {
    "micro-batch-size": 1,
    "num-epochs": 1,
    "num-replicas": 1,
    "validation-micro-batch-size": None,
    "gradient-accumulation-count": None,
    "global-batch-size": None,
    "training": True,
    "validation": True,
    "logs-per-epoch": 1,
    "ckpts-per-epoch": 1,
    "first-ckpt-epoch": 0,
    "target-accuracy": 0.759,
    "precision": "16.16",
    "stochastic-rounding": "ON",
    "half-partials": False,
    "recomputation": False,
    "stable-norm": False,
    "optimizer-state-offloading": True,
    "available-memory-proportion": [],
    "eight-bit-transfer": False,
    "accelerator-side-preprocess": False,
    "fused-preprocessing": False,
    "optimizer": "sgd",
    "optimizer-params": {"momentum": 0},
    "weight-decay": 0,
    "l2-regularization": 0,
    "loss-scaling": 0,
    "auto-loss-scaling": False,
    "label-smoothing": None,
    "lr-schedule": "const",
    "lr-schedule-params": {"initial_learning_rate": 0.0001},
    "lr-warmup-params": None,
    "lr-staircase": False,
    "norm-layer": {"name": "custom_batch_norm", "momentum": 0.97},
    "pipeline-splits": [],
    "pipeline-schedule": "Grouped",
    "device-mapping": None,
    "pipeline-validation-model": False,
    "dbn-replica-group-size": 1,
    "gather-conv-output": False,
    "internal-exchange-optimization-target": None,
    "max-cross-replica-buffer-size": 0,
    "max-reduce-many-buffer-size": 0,
    "min-remote-tensor-size": 128,
}
_COSINE = {"initial_learning_rate": 0.0001220703125}
_POLYNOMIAL = {
    "initial_learning_rate": 0.001991319444444,
    "epochs_to_total_decay": 39,
    "end_learning_rate_ratio": 2.18e-05,
    "power": 2,
}
_SEVEN_STAGES = {
    "pipeline-splits": [
        *("conv2_block1_out", "conv2_block3_out", "conv3_block1_out", "conv3_block3_out"),
        *("conv4_block1_out", "conv4_block4_out"),
    ],
    "device-mapping": [0, 0, 0, 0, 0, 0, 0],
}
PUBLISHED: Dict[str, Dict[str, Any]] = {
    "resnet8_test": {
        "model-name": "cifar_resnet8",
        "dataset": "cifar10",
        "micro-batch-size": 8,
        "num-epochs": 1,
        "eight-bit-transfer": False,
        "gradient-accumulation-count": 1,
        "num-replicas": 1,
        "validation": False,
    },
    "resnet8_16ipus_bn": {
        "dataset": "cifar10",
        "num-epochs": 70,
        "validation": True,
        "num-replicas": 16,
        "logs-per-epoch": 1,
        "precision": "16.16",
        "half-partials": True,
        "model-name": "cifar_resnet8",
        "micro-batch-size": 25,
        "global-batch-size": 2000,
        "norm-layer": {"name": "batch_norm"},
        "lr-schedule": "cosine",
        "lr-warmup-params": {"warmup_mode": "shift", "warmup_epochs": 5},
        "stochastic-rounding": "ON",
        "lr-schedule-params": {**_COSINE, "epochs_to_total_decay": 65},
        "eight-bit-transfer": True,
        "l2-regularization": 0.0001,
        "accelerator-side-preprocess": True,
    },
    "resnet50_16ipus_16k_bn_pipeline": {
        "dataset": "imagenet",
        "model-name": "resnet50",
        "half-partials": True,
        "recomputation": True,
        "logs-per-epoch": 1,
        "eight-bit-transfer": True,
        "accelerator-side-preprocess": True,
        "num-epochs": 100,
        "validation": True,
        "micro-batch-size": 16,
        "global-batch-size": 16384,
        "num-replicas": 4,
        "optimizer-params": {"momentum": 0.9},
        "pipeline-schedule": "Grouped",
        "precision": "16.32",
        "pipeline-splits": ["conv2_block2_out", "conv3_block1_out", "conv4_block2_out"],
        "available-memory-proportion": [15],
        "loss-scaling": 128,
        "l2-regularization": 0.0001,
        "stochastic-rounding": "ON",
        "lr-schedule": "cosine",
        "lr-staircase": True,
        "lr-warmup-params": {"warmup_mode": "shift", "warmup_epochs": 5},
        "lr-schedule-params": {**_COSINE, "epochs_to_total_decay": 95},
    },
    "resnet50_16ipus_8k_bn_pipeline": {
        "dataset": "imagenet",
        "model-name": "resnet50",
        "micro-batch-size": 16,
        "global-batch-size": 8192,
        "num-replicas": 4,
        "num-epochs": 100,
        "validation": True,
        "precision": "16.16",
        "half-partials": True,
        "recomputation": True,
        "stable-norm": True,
        "optimizer-state-offloading": False,
        "logs-per-epoch": 1,
        "eight-bit-transfer": True,
        "accelerator-side-preprocess": True,
        "optimizer-params": {"momentum": 0.9},
        "loss-scaling": 128,
        "l2-regularization": 0.0001,
        "pipeline-schedule": "Grouped",
        "pipeline-splits": ["conv2_block2_out", "conv3_block1_out", "conv4_block2_out"],
        "available-memory-proportion": [15],
        "stochastic-rounding": "ON",
        "lr-schedule": "cosine",
        "lr-schedule-params": {**_COSINE, "epochs_to_total_decay": 100},
        "lr-warmup-params": {"warmup_mode": "mask", "warmup_epochs": 5},
        "lr-staircase": True,
    },
    "resnet50_mlperf_bs16": {
        "dataset": "imagenet",
        "model-name": "resnet50",
        "micro-batch-size": 16,
        "global-batch-size": 2304,
        "loss-scaling": 128,
        "num-replicas": 16,
        "optimizer": "sgd",
        "optimizer-params": {"momentum": 0.9},
        "num-epochs": 44,
        "l2-regularization": 2.5e-05,
        "lr-schedule": "polynomial",
        "lr-schedule-params": _POLYNOMIAL,
        "lr-warmup-params": {"warmup_mode": "shift", "warmup_epochs": 5},
        "norm-layer": {"name": "custom_batch_norm", "momentum": 0.9},
        "label-smoothing": 0.1,
        "precision": "16.16",
        "half-partials": True,
        "optimizer-state-offloading": False,
        "pipeline-splits": ["conv2_block1_out", "conv2_block3_out", "conv3_block4_out"],
        "pipeline-schedule": "Sequential",
        "device-mapping": [0, 0, 0, 0],
        "recomputation": True,
        "available-memory-proportion": [20],
        "eight-bit-transfer": True,
        "accelerator-side-preprocess": True,
        "internal-exchange-optimization-target": "memory",
        "max-cross-replica-buffer-size": 52428800,
        "gather-conv-output": False,
        "min-remote-tensor-size": 128,
        "dbn-replica-group-size": 2,
        "fused-preprocessing": True,
        "ckpts-per-epoch": Fraction(1, 4),
        "validation-micro-batch-size": 108,
    },
    "resnet50_infer_bs1": {
        "model-name": "resnet50",
        "micro-batch-size": 1,
        "global-batch-size": 1,
        "optimizer": "sgd",
        "optimizer-params": {"momentum": 0.9},
        "num-epochs": 1,
        "l2-regularization": 2.5e-05,
        "lr-schedule": "polynomial",
        "lr-schedule-params": _POLYNOMIAL,
        "lr-warmup-params": {"warmup_mode": "shift", "warmup_epochs": 5},
        "norm-layer": {"name": "custom_batch_norm", "momentum": 0.9},
        "label-smoothing": 0.1,
        "precision": "16.16",
        "half-partials": True,
        "optimizer-state-offloading": False,
        "recomputation": False,
        "available-memory-proportion": [20],
        "eight-bit-transfer": True,
        "accelerator-side-preprocess": True,
        "internal-exchange-optimization-target": "memory",
        "gather-conv-output": False,
        "min-remote-tensor-size": 128,
        "fused-preprocessing": True,
        "dataset": "imagenet",
    },
}
PUBLISHED["resnet8_test_lars"] = {
    **PUBLISHED["resnet8_test"],
    "num-epochs": 50,
    "validation": True,
    "precision": "32.32",
    "accelerator-side-preprocess": False,
    "l2-regularization": 1e-5,
    "optimizer": "lars",
    "lr-schedule": "const",
    "optimizer-params": {"eeta": 0.001, "momentum": 0.9, "epsilon": 0, "weight_decay": 2.5e-06},
    "lr-schedule-params": {"initial_learning_rate": 0.000125},
}
PUBLISHED["resnet56_16ipus_8k_bn_pipeline"] = {
    **PUBLISHED["resnet50_16ipus_8k_bn_pipeline"],
    "model-name": "cifar_resnet56",
    "available-memory-proportion": [13.5],
    "pipeline-validation-model": True,
    "pipeline-splits": [f"conv{block}_post_addition_relu" for block in ("2_block4", "2_block7", "3_block4")],
}
PUBLISHED["resnet50_16ipus_8k_gn_pipeline"] = {
    **PUBLISHED["resnet50_16ipus_8k_bn_pipeline"],
    "norm-layer": {"name": "group_norm", "num_groups": 32},
}
PUBLISHED["resnet50_mlperf_pod16_bs20"] = {
    **PUBLISHED["resnet50_mlperf_bs16"],
    **_SEVEN_STAGES,
    "micro-batch-size": 20,
    "global-batch-size": 1920,
    "num-epochs": 40,
    "available-memory-proportion": [15],
    "gather-conv-output": True,
    "validation-micro-batch-size": 115,
}
PUBLISHED["resnet50_mlperf_pod4_bs20"] = {
    **PUBLISHED["resnet50_mlperf_pod16_bs20"],
    "global-batch-size": 480,
    "num-replicas": 4,
}
PUBLISHED["resnet50_mlperf_pod16_lars"] = {
    **PUBLISHED["resnet50_mlperf_bs16"],
    **_SEVEN_STAGES,
    "micro-batch-size": 18,
    "global-batch-size": 3520,
    "num-epochs": 38,
    "available-memory-proportion": [15],
    "optimizer": "lars",
    "optimizer-params": {"momentum": 0.9, "weight_decay": 5e-05, "eeta": 0.001, "epsilon": 0},
    "l2-regularization": 5e-05,
    "lr-schedule-params": {
        "initial_learning_rate": 0.003045455,
        "epochs_to_total_decay": 36,
        "end_learning_rate_ratio": 9.32836e-06,
        "power": 2,
    },
    "lr-warmup-params": {"warmup_mode": "shift", "warmup_epochs": 2},
    "first-ckpt-epoch": 2,
    "max-reduce-many-buffer-size": 216,
}
PUBLISHED["resnet50_infer_test"] = PUBLISHED["resnet50_infer_bs1"]
for _size in (16, 32):
    PUBLISHED[f"resnet50_infer_bs{_size}"] = {
        **PUBLISHED["resnet50_infer_bs1"],
        "micro-batch-size": _size,
        "global-batch-size": _size,
    }
# Where we mean to differ: on accumulation 1, which our IPU backend refuses to combine with offloading, and on
# configurations for inference, which do not train here.
_UNLIKE_THEM: Dict[str, Dict[str, Any]] = {
    "resnet8_test": {"optimizer-state-offloading": False},
    "resnet8_test_lars": {"optimizer-state-offloading": False},
    **{f"resnet50_infer_{name}": {"training": False} for name in ("test", "bs1", "bs16", "bs32")},
}


def in_their_words(settings: Any) -> Dict[str, Any]:
    """Our settings under the names of the published application."""
    data, model, pipeline = settings.data, settings.model, settings.pipeline
    optimizer, schedule, training, device = settings.optimizer, settings.schedule, settings.training, settings.device
    assert optimizer.lr_scaling == "batch", "their rates are per sample"
    assert (optimizer.rho_exponent, training.remainder, training.weight_updates_per_epoch) == (None, "drop", None)
    lars = {"eeta": optimizer.eeta, "epsilon": optimizer.epsilon, "weight_decay": optimizer.weight_decay}
    rate: Dict[str, Any] = {"initial_learning_rate": optimizer.learning_rate}
    if schedule.name != "const":
        rate["epochs_to_total_decay"] = schedule.epochs_to_total_decay
    if schedule.name == "polynomial":
        rate.update(end_learning_rate_ratio=schedule.end_learning_rate_ratio, power=schedule.power)
    warmup = {"warmup_mode": schedule.warmup_mode, "warmup_epochs": schedule.warmup_epochs}
    same_name = {
        "micro-batch-size": training,
        "num-epochs": training,
        "validation-micro-batch-size": training,
        "gradient-accumulation-count": training,
        "global-batch-size": training,
        "training": training,
        "validation": training,
        "logs-per-epoch": training,
        "first-ckpt-epoch": training,
        "target-accuracy": training,
        "precision": training,
        "half-partials": device,
        "recomputation": device,
        "stable-norm": device,
        "gather-conv-output": device,
        "optimizer-state-offloading": device,
        "fused-preprocessing": device,
        "l2-regularization": optimizer,
        "auto-loss-scaling": optimizer,
        "num-replicas": settings.launch,
    }
    return {
        **{name: getattr(group, name.replace("-", "_")) for name, group in same_name.items()},
        "ckpts-per-epoch": 1 if training.ckpts_per_epoch is None else training.ckpts_per_epoch,
        "model-name": model.name,
        "label-smoothing": model.label_smoothing or None,
        "norm-layer": (model.norm_layer, model.norm_groups if "group" in model.norm_layer else model.norm_momentum),
        "eight-bit-transfer": data.sends_bytes,
        "accelerator-side-preprocess": not data.host_preprocess,
        "optimizer": optimizer.name,
        "optimizer-params": {"momentum": optimizer.momentum, **(lars if optimizer.name == "lars" else {})},
        "weight-decay": 0 if optimizer.name == "lars" else optimizer.weight_decay,
        "loss-scaling": 0 if optimizer.loss_scaling == 1 else optimizer.loss_scaling,
        "lr-schedule": schedule.name,
        "lr-schedule-params": rate,
        "lr-staircase": schedule.staircase,
        "lr-warmup-params": warmup if schedule.warmup_epochs else None,
        "pipeline-splits": list(pipeline.splits),
        "pipeline-schedule": pipeline.schedule,
        "device-mapping": list(pipeline.device_mapping) or None,
        "pipeline-validation-model": pipeline.validation_model,
        "stochastic-rounding": device.stochastic_rounding.upper(),
        "available-memory-proportion": list(device.available_memory_proportion),
        "dbn-replica-group-size": device.distributed_norm_replicas,
        "internal-exchange-optimization-target": device.internal_exchange_optimisation_target,
        # Without a value the SDK has its own, which is theirs.
        "max-cross-replica-buffer-size": device.max_cross_replica_sum_buffer_size or 0,
        "max-reduce-many-buffer-size": device.max_reduce_many_buffer_size or 0,
        "min-remote-tensor-size": device.min_remote_tensor_size or 128,
    }


def norm_of(given: Dict[str, Any], accumulation: int) -> Tuple[str, float]:
    """Their norm as ours, whose momentum counts updates; without one theirs is Keras's, which counts micro-batches."""
    if given["name"] == "group_norm":
        return "group_norm", given["num_groups"]
    return "batch_norm", given.get("momentum", round(0.99**accumulation, 3))


def test_the_table_has_every_preset_of_the_application() -> None:
    assert sorted(PUBLISHED) == sorted(name for workload, name in PRESETS if workload != "cosmoflow")
    assert set().union(*PUBLISHED.values()) <= {*DEFAULTS, "dataset", "model-name"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_preset_is_the_published_one(name: str) -> None:
    published = {**DEFAULTS, **PUBLISHED[name], **_UNLIKE_THEM.get(name, {})}
    workload = published.pop("dataset")
    replicas, micro_size = published["num-replicas"], published["micro-batch-size"]
    accumulation = published["gradient-accumulation-count"] or published["global-batch-size"] // replicas // micro_size
    published["norm-layer"] = norm_of(published["norm-layer"], accumulation)
    if workload != "imagenet":
        published["target-accuracy"] = None  # their default is meant for ImageNet
    assert in_their_words(resolve(workload, rehearsal=False, config=name).settings) == published
    assert ("Differs" in header(workload, name)) == (name in _UNLIKE_THEM)


def test_cosmoflow_of_mlperf_is_the_reference() -> None:
    """cosmoflow/configs/cosmo.yaml of the repository mlcommons/hpc."""
    settings = resolve("cosmoflow", rehearsal=False, config="mlperf_128").settings
    data, model, optimizer, schedule = settings.data, settings.model, settings.optimizer, settings.schedule
    assert (data.n_train, data.n_valid, settings.shape, data.targets) == (524288, 65536, (128, 128, 128, 4), 4)
    assert data.normalise == "log"
    assert (model.conv_size, model.kernel_size, model.n_conv_layers, model.dropout) == (32, 3, 5, 0.5)
    assert (model.fc1_size, model.fc2_size) == (128, 64)
    assert (model.hidden_activation, model.pooling_type) == ("LeakyReLU", "MaxPool3D")
    assert (optimizer.name, optimizer.momentum, optimizer.lr_scaling) == ("sgd", 0.9, "batch")
    assert optimizer.learning_rate * 64 == 0.001
    assert (schedule.name, schedule.boundaries, schedule.factors) == ("stepped", (32, 64), (0.25, 0.125))
    assert (schedule.warmup_mode, schedule.warmup_epochs) == ("mask", 4)
    assert settings.training.num_epochs == 128
    assert settings.training.micro_batch_size * settings.training.gradient_accumulation_count == 4  # for each replica


@pytest.mark.parametrize("backend", ["ipu", "cpu"])
@rehearsed
@of_presets
def test_job_text_gives_back_an_equal_job(workload: str, name: str, rehearsal: bool, backend: str) -> None:
    job = Job(workload, backend, resolve(workload, rehearsal=rehearsal, config=name).settings)
    assert from_yaml(to_yaml(job), "job.yaml") == job


@of_presets
def test_options_of_a_worker_are_the_name_and_what_was_given(workload: str, name: str) -> None:
    found = resolve(workload, rehearsal=True, config=name, overrides=[assignment("training.seed=5", "--seed")])
    assert set_options(found) == ["--config", name, "--set", "training.seed=5"]


@pytest.mark.parametrize(
    ("workload", "name", "hint"),
    [
        pytest.param("imagenet", "resnet50_infer_bs8", "known: resnet50_16ipus_16k_bn_pipeline, ", id="near"),
        pytest.param(
            "cosmoflow", "zzz", "known: cosmoflow_v1, mlperf_128, published_program, published_yaml", id="nothing near"
        ),
        pytest.param("mnist", "zzz", "it has none: leave --config out", id="none"),
    ],
)
def test_unknown_preset_is_refused(workload: str, name: str, hint: str) -> None:
    with pytest.raises(SettingsError, match=f"{workload} has no preset {name}") as caught:
        resolve(workload, rehearsal=False, config=name)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(("name", "optimizer"), [("published_yaml", "adadelta"), ("published_program", "sgd")])
def test_cosmoflow_is_there_with_both_published_optimizers(name: str, optimizer: str) -> None:
    """The program ignores what its YAML names."""
    settings = resolve("cosmoflow", rehearsal=False, config=name).settings
    found = settings.optimizer
    assert (found.name, found.learning_rate, found.momentum, found.lr_scaling) == (optimizer, 0.5, 0.0, "none")
    assert (settings.data.normalise, settings.data.n_valid, settings.training.validation) == ("mean", 0, False)
    assert "published" in header("cosmoflow", name)["Differs"]
