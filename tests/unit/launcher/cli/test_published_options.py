"""Every option of the parser of Graphcore's CNN application (vision/cnns/tensorflow2, v3.4.1), as published.

A row has the option, what is written after it, and what arrives in the settings of the worker. Where the option only
means something beside others, these come first.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.settings.schema import value_of
from ipulaunch.configs.settings.tree import assignment, flat, merge
from ipulaunch.configs.settings.workloads import WORKLOADS, resolve
from ipulaunch.launcher.launch.needs import require_data

Run = Callable[..., Any]

SPLITS = ["conv2_block2_out", "conv3_block1_out", "conv4_block2_out"]
PIPELINE = f"--pipeline-splits {' '.join(SPLITS)}"

STEPS = '--lr-schedule-params {"boundaries":[3],"values":[1,0.1]}'


class Row(NamedTuple):
    """One option with one way to write its value."""

    option: str
    value: str
    arrives: Dict[str, Any]  # key and value
    beside: str = ""


def switch(option: str, key: str, beside: str = "") -> List[Row]:
    """A switch takes a word, or none."""
    return [
        Row(option, "", {key: True}, beside),
        Row(option, "True", {key: True}, beside),
        Row(option, "False", {key: False}, beside),
    ]


ROWS = [
    Row("on-demand", "", {"device.connection": "on_demand"}),
    Row("on-demand", "True", {"device.connection": "on_demand"}),
    Row("on-demand", "False", {"device.connection": "always"}),
    Row("compile-only", "", {"device.compile_only": True}, "--executable-cache-path /cache"),
    Row("seed", "42", {"training.seed": 42}),
    *switch("shuffle", "data.shuffle"),
    *switch("deterministic", "training.deterministic"),
    Row("ckpts-per-epoch", "1/4", {"training.ckpts_per_epoch": 0.25}),
    Row("ckpts-per-epoch", "0.5", {"training.ckpts_per_epoch": 0.5}),
    Row("first-ckpt-epoch", "2", {"training.first_ckpt_epoch": 2}),
    Row("first-ckpt-epoch", "2.0", {"training.first_ckpt_epoch": 2}),
    Row("first-ckpt-epoch", "0.5", {"training.first_ckpt_epoch": 0.5}, "--weight-updates-per-epoch 100"),
    Row("checkpoint-input-dir", "/c", {"training.checkpoint_input_dir": "/c"}, "--training False"),
    Row("checkpoint-input-dir", "/c", {"training.checkpoint_input_dir": "/c"}, "--checkpoint-output-dir /c"),
    Row("checkpoint-output-dir", "/c", {"training.checkpoint_output_dir": "/c"}),
    *switch("ckpt-all-instances", "training.ckpt_all_instances"),
    *switch("clean-dir", "training.clean_dir"),
    Row("dataset", "imagenet", {}),
    Row("dataset-path", "/imagenet", {"data.directory": "/imagenet"}),
    Row("model-name", "resnet18", {"model.name": "resnet18"}),
    Row("model-name", "toy_model", {"model.name": "toy_model"}),
    Row("eight-bit-transfer", "", {"data.eight_bit_transfer": True}, "--accelerator-side-preprocess"),
    Row("eight-bit-transfer", "False", {"data.eight_bit_transfer": False}),
    Row("synthetic-data", "host", {"data.synthetic_data": "cpu"}),
    Row("synthetic-data", "ipu", {"data.synthetic_data": "ipu"}),
    *switch("training", "training.training"),
    Row("micro-batch-size", "4", {"training.micro_batch_size": 4}),
    Row("num-epochs", "3", {"training.num_epochs": 3}),
    Row("logs-per-epoch", "4", {"training.logs_per_epoch": 4}),
    Row("logs-per-epoch", "1/2", {"training.logs_per_epoch": 0.5}),
    Row("weight-updates-per-epoch", "10", {"training.weight_updates_per_epoch": 10}),
    Row("weight-updates-per-epoch", "-1", {"training.weight_updates_per_epoch": None}),
    Row("num-replicas", "8", {"launch.num_replicas": 8}),
    Row("gradient-accumulation-count", "8", {"training.gradient_accumulation_count": 8}),
    Row("gradient-accumulation", "8", {"training.gradient_accumulation_count": 8}),  # as the README has it
    Row("global-batch-size", "8192", {"training.global_batch_size": 8192}),
    *(Row("precision", bits, {"training.precision": bits}) for bits in ("16.16", "16.32", "32.32")),
    Row("pipeline-splits", " ".join(SPLITS), {"pipeline.splits": SPLITS}),
    Row("pipeline-splits", "", {"pipeline.splits": []}, "--config resnet50_infer_bs1"),
    Row("device-mapping", "0 1 1 0", {"pipeline.device_mapping": [0, 1, 1, 0]}, f"{PIPELINE} --recomputation"),
    Row("pipeline-schedule", "Interleaved", {"pipeline.schedule": "Interleaved"}, PIPELINE),
    Row("pipeline-schedule", "Grouped", {"pipeline.schedule": "Grouped"}, PIPELINE),
    Row("pipeline-schedule", "Sequential", {"pipeline.schedule": "Sequential"}, PIPELINE),
    Row("optimizer", "sgd", {"optimizer.name": "sgd"}),
    Row("optimizer", "lars", {"optimizer.name": "lars"}),
    Row("optimizer", "rmsprop", {"optimizer.name": "rmsprop"}),
    Row("optimizer-params", '{"momentum": 0.8}', {"optimizer.momentum": 0.8}),
    Row(
        "optimizer-params",
        '{"momentum": 0.9, "weight_decay": 5e-5, "eeta": 0.002, "epsilon": 0}',
        {"optimizer.momentum": 0.9, "optimizer.weight_decay": 5e-5, "optimizer.eeta": 0.002, "optimizer.epsilon": 0},
        "--optimizer lars",
    ),
    Row(
        "optimizer-params",
        "{momentum: 0.9, base_decay_exponent: -15, epsilon: 1.0}",
        {"optimizer.momentum": 0.9, "optimizer.rho_exponent": -15, "optimizer.epsilon": 1.0},
        "--optimizer rmsprop",
    ),
    Row("loss-scaling", "256", {"optimizer.loss_scaling": 256}),
    Row("loss-scaling", "0", {"optimizer.loss_scaling": 1}),
    Row("loss-scaling", "0.0", {"optimizer.loss_scaling": 1}),
    Row("auto-loss-scaling", "False", {"optimizer.auto_loss_scaling": False}),
    Row("weight-decay", "0.00005", {"optimizer.weight_decay": 5e-5}),
    Row("l2-regularization", "2.5e-5", {"optimizer.l2_regularization": 2.5e-5}),
    *switch("recomputation", "device.recomputation", PIPELINE),
    Row("accelerator-side-preprocess", "", {"data.host_preprocess": False}),
    Row("accelerator-side-preprocess", "True", {"data.host_preprocess": False}),
    Row("accelerator-side-preprocess", "False", {"data.host_preprocess": True}),
    *switch("accelerator-side-reduction", "device.accelerator_side_reduction"),
    Row("stochastic-rounding", "ON", {"device.stochastic_rounding": "on"}),
    Row("stochastic-rounding", "OFF", {"device.stochastic_rounding": "off"}),
    Row("stochastic-rounding", "REPLICA_IDENTICAL_ONLY", {"device.stochastic_rounding": "ri"}),
    *switch("optimizer-state-offloading", "device.optimizer_state_offloading"),
    *switch("fp-exceptions", "device.fp_exceptions"),
    *switch("nanoo", "device.nanoo"),
    *(Row("lr-schedule", name, {"schedule.name": name}) for name in ("const", "cosine", "polynomial")),
    Row("lr-schedule", "stepped", {"schedule.name": "stepped"}, STEPS),
    Row(
        "lr-warmup-params",
        '{"warmup_mode": "mask", "warmup_epochs": 3}',
        {"schedule.warmup_mode": "mask", "schedule.warmup_epochs": 3},
    ),
    Row(
        "lr-schedule-params",
        '{"initial_learning_rate": 0.001, "epochs_to_total_decay": 39, "end_learning_rate_ratio": 1e-5, "power": 2}',
        {
            "optimizer.learning_rate": 0.001,
            "optimizer.lr_scaling": "batch",  # it is a rate per sample
            "schedule.epochs_to_total_decay": 39,
            "schedule.end_learning_rate_ratio": 1e-5,
            "schedule.power": 2,
        },
        "--lr-schedule polynomial",
    ),
    Row(
        "lr-schedule-params",
        '{"boundaries": [30, 60], "values": [0.5, 0.05, 0.005]}',
        {
            "optimizer.learning_rate": 0.5,
            "optimizer.lr_scaling": "none",  # these are rates as they are
            "schedule.boundaries": [30, 60],
            "schedule.factors": [0.1, 0.01],
        },
        "--lr-schedule stepped",
    ),
    *switch("lr-staircase", "schedule.staircase"),
    Row("dbn-replica-group-size", "2", {"device.distributed_norm_replicas": 2}),
    Row("label-smoothing", "0.1", {"model.label_smoothing": 0.1}),
    Row("pipeline-num-parallel", "48", {"data.pipeline_num_parallel": 48}),
    Row("norm-layer", "custom_batch_norm", {"model.norm_layer": "batch_norm"}),
    Row("norm-layer", "group_norm", {"model.norm_layer": "group_norm"}),
    Row(
        "norm-layer",
        '{"name": "custom_batch_norm", "momentum": 0.95}',
        {"model.norm_layer": "batch_norm", "model.norm_momentum": 0.95},
    ),
    Row(
        "norm-layer",
        '{"name": "group_norm", "num_groups": 16}',
        {"model.norm_layer": "group_norm", "model.norm_groups": 16},
    ),
    Row(
        "norm-layer",
        '{"name": "group_norm", "channels_per_group": 16}',
        {"model.norm_layer": "group_norm", "model.norm_channels_per_group": 16},
    ),
    *switch("fused-preprocessing", "device.fused_preprocessing"),
    *switch("half-partials", "device.half_partials"),
    *(
        Row("internal-exchange-optimization-target", what, {"device.internal_exchange_optimisation_target": what})
        for what in ("cycles", "memory", "balanced")
    ),
    Row("max-cross-replica-buffer-size", "52428800", {"device.max_cross_replica_sum_buffer_size": 52428800}),
    Row("max-reduce-many-buffer-size", "216", {"device.max_reduce_many_buffer_size": 216}),
    *switch("conv-dithering", "device.conv_dithering"),
    *switch("gather-conv-output", "device.gather_conv_output"),
    Row("min-remote-tensor-size", "128", {"device.min_remote_tensor_size": 128}),
    *switch("stable-norm", "device.stable_norm"),
    Row("available-memory-proportion", "15", {"device.available_memory_proportion": [15]}),
    Row(
        "available-memory-proportion", "15 20.5 " * 4, {"device.available_memory_proportion": [15, 20.5] * 4}, PIPELINE
    ),
    *(
        Row("scheduling-algorithm", name, {"device.scheduling_algorithm": name})
        for name in ("CHOOSE_BEST", "CLUSTERING", "POST_ORDER", "LOOK_AHEAD", "SHORTEST_PATH")
    ),
    Row("prefetch-depth", "2", {"device.prefetch_depth": 2}),
    *switch("mlperf-logging", "logging.mlperf"),
    *switch("wandb", "logging.wandb"),
    Row("wandb-run-name", "tf2_resnet50", {"logging.wandb_run_name": "tf2_resnet50"}, "--wandb"),
    Row("wandb-tags", "pod16 conv", {"logging.wandb_tags": ["pod16", "conv"]}, "--wandb"),
    *switch("validation", "training.validation"),
    Row("validation-micro-batch-size", "108", {"training.validation_micro_batch_size": 108}),
    Row("validation-num-replicas", "16", {"launch.validation_num_replicas": 16}),
    Row("pipeline-validation-model", "", {"pipeline.validation_model": True}, PIPELINE),
    *switch("sweep", "logging.sweep"),
    Row("target-accuracy", "0.759", {"training.target_accuracy": 0.759}),
]
# Two that choose where settings come from, and one that IPUs refuse when a job is planned: tests of their own.
OF_THEIR_OWN = {"config", "config-path", "auto-loss-scaling"}
ABBREVIATED = {"gradient-accumulation"}
PUBLISHED = 73


def arrived(ipulaunch: Run, *words: str, workload: str = "imagenet") -> Dict[str, Any]:
    """The settings that the printed line gives the worker, as the worker reads them."""
    code, out, err = ipulaunch(workload, "--pod", "16", *words, "--dry-run")
    assert code == 0, err
    line = shlex.split(out)
    config = line[line.index("--config") + 1] if "--config" in line else None
    trees = [assignment(after, "--set") for before, after in zip(line, line[1:]) if before == "--set"]
    settings = resolve(workload, rehearsal="--rehearsal" in line, config=config, overrides=[merge(*trees)]).settings
    values = {key: value_of(settings, key) for key in flat(merge(*trees))}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def test_the_table_has_all_published_options() -> None:
    assert len({row.option for row in ROWS} - ABBREVIATED | OF_THEIR_OWN) == PUBLISHED


def test_the_documents_say_what_each_option_becomes() -> None:
    text = (Path(__file__).parents[4] / "docs" / "published-options.md").read_text(encoding="utf-8")
    lines = {line.split("`")[1][2:]: line for line in text.splitlines() if line.startswith("| `--")}
    for row in ROWS:
        if row.option not in ABBREVIATED:
            assert [key for key in row.arrives if f"`{key}`" not in lines[row.option]] == [], row.option
    assert set(lines) >= OF_THEIR_OWN


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.option} {row.value[:30]}" for row in ROWS])
def test_published_option_arrives(row: Row, ipulaunch: Run) -> None:
    value = [row.value] if row.value.startswith("{") else row.value.split()
    found = arrived(ipulaunch, *row.beside.split(), f"--{row.option}", *value)
    assert {key: found.get(key, "missing") for key in row.arrives} == row.arrives


def test_a_published_configuration_is_chosen_by_name(ipulaunch: Run) -> None:
    out = ipulaunch("imagenet", "--config", "resnet50_mlperf_pod16_lars", "--dry-run").out
    assert "--config resnet50_mlperf_pod16_lars" in out


def test_a_file_of_settings_is_chosen_by_path(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("training: {num-epochs: 7}\n")
    assert arrived(ipulaunch, "--config-path", "my.yaml") == {"training.num_epochs": 7}


def test_automatic_loss_scaling_arrives_in_a_rehearsal(ipulaunch: Run, fake_mpirun: Path) -> None:
    words = "--auto-loss-scaling --engine openmpi --host-layout 1x2 --lr-schedule const --l2-regularization 0"
    params = ("--optimizer-params", '{"momentum": 0}', "--lr-warmup-params", "{warmup_epochs: 0, warmup_mode: shift}")
    assert arrived(ipulaunch, *words.split(), *params)["optimizer.auto_loss_scaling"] is True


@pytest.mark.parametrize("workload", ["cifar10", "cifar100", "mnist"])
def test_the_other_data_sets_have_the_same_options(workload: str, ipulaunch: Run) -> None:
    out = ipulaunch(workload, "--help").out
    names = sorted({row.option for row in ROWS} - ABBREVIATED | OF_THEIR_OWN)
    assert [name for name in names if f"--{name}" not in out] == []


def test_a_line_of_the_published_benchmarks_is_understood(ipulaunch: Run) -> None:
    """Of benchmarks.yml: the convergence run on a POD16."""
    line = (
        "--config resnet50_16ipus_8k_bn_pipeline --dataset-path /imagenet --num-epochs 10 --ckpts-per-epoch 1"
        " --checkpoint-output-dir /c --checkpoint-input-dir /c --clean-dir False --wandb --wandb-run-name conv"
        " --pipeline-validation-model"
    )
    found = arrived(ipulaunch, *line.split())
    assert found["training.checkpoint_input_dir"] == found["training.checkpoint_output_dir"] == "/c"
    assert (found["logging.wandb"], found["training.clean_dir"]) == (True, False)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param("--dataset cifar10", 2, ["--dataset is cifar10", "use `ipulaunch cifar10`"], id="another set"),
        pytest.param("--dataset coco", 2, ["--dataset is coco", "leave --dataset out"], id="no set of ours"),
        pytest.param("--optimizer-params {moment:1}", 6, ["moment is not one of its keys", "momentum"], id="key"),
        pytest.param("--optimizer-params 0.9", 6, ["--optimizer-params"], id="no mapping"),
        pytest.param("--lr-schedule-params {values:3}", 6, ["values is 3", "rates above 0"], id="values"),
        pytest.param(
            "--lr-schedule-params {values:[1,2],initial_learning_rate:1}", 6, ["both given"], id="two first rates"
        ),
        pytest.param(
            "--learning-rate 1 --lr-schedule-params {initial_learning_rate:2}",
            2,
            ["--lr-schedule-params and another option both set optimizer.learning_rate"],
            id="two rates",
        ),
        pytest.param("--device-connection always --on-demand", 2, ["both set device.connection"], id="two connections"),
        pytest.param("--norm-layer {name:none}", 6, ["--norm-layer", "none"], id="norm"),
        pytest.param("--lr-s const", 2, ["--lr-s could be", "--lr-schedule", "--lr-staircase"], id="ambiguous"),
        pytest.param(
            "--no-training --num-replicas 4 --validation-num-replicas 2",
            6,
            ["4 replicas are asked for, and 2"],
            id="two replicas",
        ),
        pytest.param(
            "--norm-layer group_norm --set model.norm_channels_per_group=48",
            6,
            ["groups of 48 do not divide"],
            id="groups",
        ),
        pytest.param(
            "--norm-layer {name:group_norm,num_groups:4,channels_per_group:8}",
            6,
            ["--norm-layer: model.norm_groups is 4 and model.norm_channels_per_group is 8", "give the number of"],
            id="two groupings",
        ),
        pytest.param("--ckpt-all-instances --ckpts-per-epoch 0", 6, ["no instance writes"], id="no checkpoints"),
        pytest.param("--clean-dir --validation False", 6, ["there is no validation"], id="nothing validated"),
        pytest.param("--clean-dir --training False", 6, ["there is no training"], id="nothing trained"),
        pytest.param("--checkpoint-input-dir /c", 6, ["--checkpoint-input-dir is for evaluation"], id="input"),
        pytest.param("--synthetic-data hosts", 6, ["'hosts'", "cpu"], id="source"),
    ],
)
def test_wrong_published_values_are_refused(words: str, code: int, said: List[str], ipulaunch: Run) -> None:
    spaced = [word.replace(":", ": ") if word.startswith("{") else word for word in words.split()]
    found = ipulaunch("imagenet", "--pod", "16", *spaced, "--dry-run")
    assert (found.code, found.out) == (code, "")
    assert all(word in found.err for word in said), found.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--validation-num-replicas 3", "--validation-num-replicas is 3, and validation uses the 16 replicas"),
        ("--validation-num-replicas 3 --no-validation", "launch.validation_num_replicas has no effect without"),
        ("--ckpt-all-instances --num-instances 1", "--ckpt-all-instances has no effect: there is only one instance"),
        ("--accelerator-side-reduction --num-replicas 1", "no effect: there is only one replica"),
        (f"--accelerator-side-reduction {PIPELINE}", "no effect: a pipeline is reduced once in a device call"),
        ("--pipeline-num-parallel 4 --synthetic-data ipu", "data.pipeline_num_parallel has no effect on images"),
        ("--wandb-tags a", "logging.wandb_tags has no effect without logging.wandb"),
        ("--sweep --no-validation", "logging.sweep has no effect without training.validation"),
        ("--mlperf-logging --no-training", "logging.mlperf has no effect without training.training"),
        ("--no-shuffle --set data.shuffle_block=4", "data.shuffle_block has no effect without data.shuffle"),
        ("--first-ckpt-epoch 1/3 --weight-updates-per-epoch 100", "the first checkpoint follows update 33"),
    ],
)
def test_what_has_no_effect_is_told(words: str, said: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("imagenet", "--pod", "16", *words.split(), "--dry-run")
    assert (code, said in err) == (0, True), err


def test_a_value_is_not_taken_for_the_beginning_of_a_name(ipulaunch: Run) -> None:
    assert " --vipu=3 " in ipulaunch("imagenet", "--pod", "16", "--poprun-args", "--vipu=3", "--dry-run").out


def test_a_training_may_name_the_directory_that_it_makes_twice(tmp_path: Path) -> None:
    made = str(tmp_path / "made")
    texts = [f"training.checkpoint_{kind}_dir={made}" for kind in ("input", "output")]
    found = resolve("mnist", rehearsal=True, overrides=[assignment(text, "--set") for text in texts])
    require_data("mnist", found.settings)
    only_validated = [*texts, "training.training=false"]
    found = resolve("mnist", rehearsal=True, overrides=[assignment(text, "--set") for text in only_validated])
    with pytest.raises(DataError, match="there is no directory"):
        require_data("mnist", found.settings)


def test_replicas_of_a_validation_alone(ipulaunch: Run) -> None:
    words = ("--training", "False", "--validation-num-replicas", "8", "--dry-run")
    assert "--num-replicas=8 " in ipulaunch("imagenet", "--pod", "16", *words).out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--n-epochs 3", {"training.num_epochs": 3}),
        ("--lr 0.1", {"optimizer.learning_rate": 0.1}),
        ("--apply-log 1", {"data.normalise": "log"}),
        ("--apply-log 0", {"data.normalise": "mean"}),
        ("--num-ipus 4", {"launch.num_replicas": 4}),
        ("--use-estimator --iterations-per-loop 5", {"estimator.batches_per_step": 5}),
        ("--staged-files 1 --stage-dir /local --data-dir /data", {"data.stage_dir": "/local"}),
        ("--staged-files 0", {"data.stage_dir": None}),
    ],
)
def test_options_of_the_published_cosmoflow(words: str, expected: Dict[str, Any], ipulaunch: Run) -> None:
    found = arrived(ipulaunch, *words.split(), workload="cosmoflow")
    assert {key: found.get(key) for key in expected} == expected


def test_staged_files_need_a_directory(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("cosmoflow", "--data-dir", "/data", "--staged-files", "1", "--dry-run")
    assert (code, out) == (2, "")
    assert "no directory for the files of a host" in err and "--stage-dir DIR" in err


def test_output_directory_is_the_run_directory(ipulaunch: Run) -> None:
    words = ("cosmoflow", "--pod", "4", "--dry-run", "--json")
    assert ipulaunch(*words, "--output-dir", "here") == ipulaunch(*words, "--run-dir", "here")


def test_cosmoflow_without_a_pod_uses_one_ipu(ipulaunch: Run) -> None:
    assert ipulaunch("cosmoflow", "--dry-run") == ipulaunch("cosmoflow", "--ipus", "1", "--dry-run")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_knows_the_short_name_of_the_batch(workload: str, ipulaunch: Run) -> None:
    found = arrived(ipulaunch, "--batch-size", "2", "--gradient-accumulation", "4", workload=workload)
    assert (found["training.micro_batch_size"], found["training.gradient_accumulation_count"]) == (2, 4)
