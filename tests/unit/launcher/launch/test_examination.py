"""What is told of a training before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, List, Optional

import pytest

from ipulaunch.launcher.engines import discovery

pytestmark = pytest.mark.core

Run = Callable[..., Any]

EIGHT_K = ("imagenet", "--pod", "16", "--config", "resnet50_16ipus_8k_bn_pipeline")


def test_8k_preset_is_16_x_4_x_128(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("plan", *EIGHT_K)
    assert code == 0
    assert out.splitlines()[0] == (
        "16 IPUs = 4 replicas x 4; 4 instances x 1 replica;"
        " global batch 8192 = micro-batch 16 x 4 replicas x accumulation 128"
    )
    assert "pipeline  4 stages, Grouped: efficiency 98% = 128 / (128 + 4 - 1); balance " in out
    assert err == "note: validation runs on the same pipeline stages (--pipeline-validation-model is implied)\n"


CIFAR10 = "--micro-batch-size 8 --gradient-accumulation-count 8 --num-replicas 1 --ipus 1"
ONCE = "0 logs per epoch: metrics are written once, at the end of the training"


@pytest.mark.parametrize(
    ("logs", "host", "warning"),
    [
        ("1", "6 device calls of 781", ""),
        ("2", "6 device calls of 781", "2 logs per epoch do not divide its 781 updates: using 1"),
        ("10", "66 device calls of 71", "10 logs per epoch do not divide its 781 updates: using 11"),
        ("1/2", "3 device calls of 1562", ""),
        ("0.5", "3 device calls of 1562", ""),
        ("1/3", "2 device calls of 2343", ""),
        ("0", "1 device call of 4686", f"{ONCE}, after one device call of 4686 updates"),
    ],
)
def test_host_events(logs: str, host: str, warning: str, ipulaunch: Run) -> None:
    given = f"{CIFAR10} --num-epochs 6 --logs-per-epoch {logs} --ckpts-per-epoch 0"
    code, out, err = ipulaunch("plan", "cifar10", *given.split())
    assert code == 0
    assert f"host    up to 4686 weight updates in {host}, each of which has 1800 s (--stall-timeout)\n" in out
    assert err == (f"warning: {warning}\n" if warning else "")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (
            "--logs-per-epoch 1/2 --ckpts-per-epoch 0",
            "not possible to log 2 epochs at a time for 5 epochs",
            "--logs-per-epoch 1 or 1/5",
        ),
        ("--ckpts-per-epoch 1/2", "not possible to save every 2 epochs for 5 epochs", "--ckpts-per-epoch 1 or 1/5"),
        (
            "--ckpts-per-epoch 1/2 --first-ckpt-epoch 4",
            "not possible to save every 2 epochs for the 1 epoch after epoch 4",
            "--ckpts-per-epoch 1",
        ),
    ],
    ids=["logs", "checkpoints", "late checkpoints"],
)
def test_epochs_that_cannot_be_grouped(words: str, message: str, hint: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("plan", "cifar10", *f"{CIFAR10} --num-epochs 5 {words}".split())
    assert (code, out) == (6, "")
    assert err.startswith(f"error: {message}\n")
    assert hint in err


@pytest.mark.parametrize("command", [("plan",), ()], ids=["plan", "run"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("--learning-rate -0.1", ["optimizer.learning_rate is -0.1", "above 0"], id="negative rate"),
        pytest.param("--learning-rate 0", ["optimizer.learning_rate is 0.0", "above 0"], id="no rate"),
        pytest.param("--weight-decay -1e-4", ["weight_decay is -0.0001", "at least 0"], id="negative decay"),
        pytest.param("--gradient-accumulation-count 0", ["accumulation_count is 0", "at least 1"], id="accumulation"),
        pytest.param("--micro-batch-size -1", ["micro_batch_size is -1", "at least 1"], id="micro-batch"),
        pytest.param("--num-epochs 0", ["num_epochs is 0"], id="epochs"),
        pytest.param("--loss-scaling -1", ["loss_scaling is -1.0"], id="loss scaling"),
        pytest.param("--label-smoothing 1", ["label_smoothing is 1.0", "of at least 0 and below 1"], id="smoothing"),
        pytest.param("--logs-per-epoch often", ["'often'", "fraction (1/2)"], id="logs"),
        pytest.param("--seed -1", ["seed is -1"], id="seed"),
        pytest.param("--available-memory-proportion 0", ["available_memory_proportion"], id="proportion"),
        pytest.param("--global-batch-size 64 --gradient-accumulation-count 4", ["64", "4", "both"], id="both batches"),
        pytest.param("--n-train 8", ["8 training samples do not fill one global batch"], id="too few samples"),
        pytest.param("--side 2", ["use --side "], id="side"),
        pytest.param("--dropout 0.5 --model resnet50", ["resnet50 drops nothing", "null"], id="dropout"),
        pytest.param("--ipus-per-replica 2", ["2 IPUs per replica", "plan mnist --suggest-splits 2"], id="no stages"),
        pytest.param("--pipeline-splits pol1", ["no layer pol1", "did you mean pool1?", "legal"], id="unknown split"),
        pytest.param("--pipeline-splits pool2,pool1", ["use pool1, pool2"], id="splits out of order"),
        pytest.param("--pipeline-splits pool1,pool1", ["given 2 times"], id="split twice"),
        pytest.param("--pipeline-splits conv1", ["cannot be split before conv1"], id="split at the start"),
        pytest.param("--pipeline-splits=", ["is the variable that it came from set?"], id="empty split"),
        pytest.param("--bad-records skip", ["--bad-records skip has no effect on mnist", "memory"], id="in memory"),
        pytest.param("--augment", ["--augment has no effect on mnist"], id="augment"),
    ],
)
def test_bad_values_are_refused_before_anything_starts(
    words: str, said: List[str], command: Any, ipulaunch: Run, fake_mpirun: Path
) -> None:
    code, out, err = ipulaunch(*command, "mnist", "--engine", "openmpi", "--host-layout", "1x2", *words.split())
    assert (code, out, Path("runs").exists()) == (6, "", False)
    for text in said:
        assert text in err


CIFAR_PLAN = "plan cifar10 --no-rehearsal --engine openmpi --num-replicas 1 --synthetic-data cpu --micro-batch-size 8"


@pytest.mark.parametrize(
    ("logs", "calls"),
    [
        ("1", "6 device calls of 781"),
        ("2", "6 device calls of 781"),
        ("10", "66 device calls of 71"),
        ("1/2", "3 device calls of 1562"),
        ("1/3", "2 device calls of 2343"),
        ("0", "1 device call of 4686"),
    ],
)
def test_logs_decide_the_device_calls_of_a_plan(logs: str, calls: str, ipulaunch: Run) -> None:
    words = [*CIFAR_PLAN.split(), "--gradient-accumulation-count", "8", "--num-epochs", "6", "--logs-per-epoch", logs]
    code, out, err = ipulaunch(*words)
    assert code == 0, err
    assert f"4686 weight updates in {calls}" in out
    assert ("logs per epoch" in err) == (logs in ("2", "10", "0"))


WITHOUT_EFFECT = [
    ("--pipeline-schedule Interleaved", "pipeline.schedule has no effect without pipeline.splits"),
    ("--pipeline-validation-model", "pipeline.validation_model has no effect without pipeline.splits"),
    ("--set schedule.warmup_mode=mask", "schedule.warmup_mode has no effect without schedule.warmup_epochs"),
    ("--target-accuracy 0.5 --no-validation", "training.target_accuracy has no effect without training.validation"),
    ("--keep-checkpoints 3 --ckpts-per-epoch 0", "training.keep_checkpoints has no effect without checkpoints"),
    ("--lr-staircase --lr-schedule const", "schedule.staircase has no effect on a constant learning rate"),
    ("--set model.norm_groups=8", "model.norm_groups has no effect with model.norm_layer = batch_norm"),
]


@pytest.mark.parametrize(("words", "said"), WITHOUT_EFFECT, ids=[row[0] for row in WITHOUT_EFFECT])
def test_settings_without_effect_are_told(words: str, said: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", "cifar10", "--pod", "4", *words.split())
    assert code == 0, err
    assert said in err
    assert said not in ipulaunch("plan", "cifar10", "--pod", "4").err


def test_a_schedule_means_nothing_to_a_rehearsal(ipulaunch: Run) -> None:
    words = ["mnist", "--pod", "4", "--pipeline-splits", "flatten", "--pipeline-schedule", "Interleaved"]
    note = "a rehearsal runs stage after stage: the schedule and the device mapping count in the plan alone"
    assert note in ipulaunch("plan", *words, "--engine", "openmpi", "--host-layout", "1x2").err
    assert note not in ipulaunch("plan", *words, "--engine", "poprun").err


def test_cosmoflow_blocks_that_leave_nothing_are_refused(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", "cosmoflow", "--pod", "4", "--side", "8")
    assert code == 6
    assert "conv4_pool of cosmoflow takes windows of 2 x 2 x 2 from 1 x 1 x 1" in err
    assert "use --side 32 or more, or fewer layers: see --n-conv-layers and --model" in err


def test_stages_that_no_replica_can_have_are_refused(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", "mnist", "--pod", "4", "--pipeline-splits", "pool1,pool2")
    assert code == 3
    assert "3 pipeline stages on 3 IPUs" in err
    assert "--device-mapping" in err
    folded = ("--device-mapping", "0,1,1")
    assert ipulaunch("plan", "mnist", "--pod", "4", "--pipeline-splits", "pool1,pool2", *folded).code == 0


def test_replicas_that_cannot_share_statistics_are_refused(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", "cifar10", "--pod", "4", "--set", "device.distributed_norm_replicas=3")
    assert code == 3
    assert "over 3 replicas each, and the plan has 4 replicas" in err


GLOBAL = "training: {global_batch_size: 64}\n"
ACCUMULATED = "training: {gradient_accumulation_count: 8}\n"


@pytest.mark.parametrize(
    ("file", "words", "formula"),
    [
        (ACCUMULATED, "--global-batch-size 32", "global batch 32 = micro-batch 8 x 1 replica x accumulation 4"),
        (GLOBAL, "--gradient-accumulation-count 2", "global batch 16 = micro-batch 8 x 1 replica x accumulation 2"),
        (GLOBAL, "", "global batch 64 = micro-batch 8 x 1 replica x accumulation 8"),
    ],
    ids=["global", "count", "file over the shipped count"],
)
def test_one_size_replaces_the_other_of_a_file_below(
    file: str, words: str, formula: str, ipulaunch: Run, tmp_path: Path
) -> None:
    (tmp_path / "my.yaml").write_text(file)
    code, out, _ = ipulaunch("plan", "cifar10", "--config-path", "my.yaml", *words.split())
    assert code == 0
    assert formula in out


def test_both_sizes_in_one_file_are_refused(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("training: {global_batch_size: 64, gradient_accumulation_count: 2}\n")
    code, _, err = ipulaunch("plan", "cifar10", "--config-path", "my.yaml")
    assert (code, "global batch 64 and accumulation 2 are both given" in err) == (6, True)


def test_rounded_global_batch_is_warned_of_with_both_numbers(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("plan", "cifar10", "--pod", "4", "--global-batch-size", "100")
    assert code == 0
    assert "global batch 96 = micro-batch 8 x 4 replicas x accumulation 3" in out
    expected = "a global batch of 100 is not a multiple of 8 x 4 = 32: using 96 with accumulation 3"
    assert err == f"warning: {expected}\n"


@pytest.mark.parametrize("command", [("plan",), ()], ids=["plan", "run"])
def test_16_bits_without_loss_scaling_are_warned_of(command: Any, ipulaunch: Run) -> None:
    words = (*command, "mnist", "--optimizer", "sgd", "--precision", "16.16", *(() if command else ("--dry-run",)))
    code, _, err = ipulaunch(*words)
    assert (code, err.count("precision 16.16 without loss scaling")) == (0, 1)
    assert "warning: precision" not in ipulaunch(*words, "--loss-scaling", "128").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            "--pipelining --gradient-accumulation-count 2 --pipeline-schedule Interleaved --engine openmpi",
            "accumulation 2 is short for 2 stages",
            id="short",
        ),
        pytest.param(
            "--pipelining --gradient-accumulation-count 6 --engine openmpi",
            "IPUs refuse this training: accumulation 6 with 2 pipeline stages: the Grouped schedule takes a multiple",
            id="uneven",
        ),
        pytest.param(
            "--pipelining --gradient-accumulation-count 4 --set device.io_tiles=32 --engine openmpi",
            "IPUs refuse this training: accumulation 4 with 2 pipeline stages and 32 tiles for input and output",
            id="too short for io tiles",
        ),
        pytest.param(
            "--pipelining --pipeline-schedule Interleaved --device-mapping 0,0 --engine openmpi",
            "IPUs refuse this training: 2 pipeline stages on 1 IPU with the Interleaved schedule",
            id="interleaved on one IPU",
        ),
        pytest.param(
            "--pipelining --gradient-accumulation-count 2 --pipeline-schedule Interleaved",
            "accumulation 2 is short for 2 stages",
            id="short on IPUs",
        ),
        pytest.param("--pipelining --pipeline-schedule Sequential", "", id="sequential"),
        pytest.param("--pipelining", "", id="long enough"),
    ],
)
def test_short_accumulation_is_warned_of(words: str, said: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", "mnist", *words.split())
    warnings = [line for line in err.splitlines() if line.startswith("warning")]
    assert (code, len(warnings)) == (0, 1 if said else 0)
    assert said in err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--gradient-accumulation-count 4", "2 stages, Grouped: efficiency 80% = 4 / (4 + 2 - 1)"),
        ("--pipeline-schedule interleaved", "2 stages, Interleaved: efficiency 89% = 8 / (8 + 2 - 1)"),
        ("--pipeline-schedule Sequential", "2 stages, Sequential: efficiency 50% = one of 2 IPUs works at a time"),
        (
            "--pipeline-schedule Sequential --device-mapping 0,0",
            "2 stages, Sequential: efficiency 100% = all on one IPU",
        ),
    ],
    ids=["grouped", "interleaved", "sequential", "one IPU"],
)
def test_plan_shows_what_the_schedule_costs(words: str, shown: str, ipulaunch: Run) -> None:
    assert shown in ipulaunch("plan", "mnist", "--pipelining", *words.split()).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", True),
        ("--pipeline-validation-model", False),
        ("--no-validation", False),
    ],
    ids=["implied", "asked for", "no validation"],
)
def test_pipelined_validation_is_announced(words: str, told: bool, ipulaunch: Run) -> None:
    for line in (("plan", "mnist"), ("mnist", "--dry-run")):
        err = ipulaunch(*line, "--pipelining", *words.split()).err
        assert ("--pipeline-validation-model is implied" in err) is told


IPU_ONLY = "--half-partials --stochastic-rounding RI --available-memory-proportion 15"
IPU_ONLY_SHOWN = (
    "device.stochastic_rounding = ri, device.half_partials = true, device.available_memory_proportion = [15.0]"
)


def test_what_only_an_ipu_honours_is_shown_in_the_plan(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("plan", "mnist", *IPU_ONLY.split())
    assert (code, err) == (0, "")
    assert f"IPU only  {IPU_ONLY_SHOWN}\n" in out
    assert "IPU only" not in ipulaunch("plan", "mnist").out


def test_what_only_an_ipu_honours_is_noted_in_a_rehearsal(ipulaunch: Run, fake_mpirun: Path) -> None:
    words = ("mnist", "--engine", "openmpi", "--host-layout", "1x2", "--dry-run", *IPU_ONLY.split())
    code, out, err = ipulaunch(*words)
    assert code == 0
    assert err == f"note: IPU only, recorded and without effect on CPUs: {IPU_ONLY_SHOWN}\n"
    assert "--set device.half_partials=true" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("cosmoflow --engine openmpi", "128 samples, and 32 for validation, synthetic"),
        ("cosmoflow --engine openmpi --data-dir d", "up to 128 samples, and 32 for validation, from {here}/d"),
        ("mnist --engine openmpi --dataset-path d", "for validation, from {here}/d"),
        ("mnist --engine openmpi", "for validation, synthetic"),
        ("mnist", "up to 60000 samples, and 10000 for validation, from --dataset-path, which is not given"),
    ],
)
def test_a_plan_tells_where_samples_come_from(words: str, said: str, ipulaunch: Run) -> None:
    out = ipulaunch("plan", *words.split(), "--pod", "4", "--host-layout", "1x2").out
    assert said.format(here=Path.cwd()) + "\n" in out


def test_inference_has_no_device_calls_to_show(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("plan", "imagenet", "--config", "resnet50_infer_bs1", "--logs-per-epoch", "0")
    assert (code, err) == (0, "")
    assert "host      no training, only validation\n" in out


def test_json_of_plan_and_run_have_the_same_findings(ipulaunch: Run) -> None:
    plan, run = (json.loads(ipulaunch(*line, "--json").out) for line in (("plan", *EIGHT_K), EIGHT_K))
    assert plan["training"] == {**run["training"], "memory": plan["training"]["memory"]}
    assert sorted(run["training"]) == ["IPU only", "data", "host", "pipeline"]
    assert plan["notes"] == run["notes"]


def test_origin_of_the_ipus_is_not_an_option_that_nobody_gave(ipulaunch: Run) -> None:
    (row,) = [line for line in ipulaunch("plan", "mnist", "--explain").out.splitlines() if line.startswith("ipus  ")]
    assert row.split()[1:3] == ["1", "(computed)"]


def test_suggested_splits(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("plan", "imagenet", "--suggest-splits", "4")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].startswith("resnet50 in 4 stages, balance ")
    assert [line.split()[0] for line in lines[2:7]] == ["stage", "0", "1", "2", "3"]
    words = lines[-1].split()
    assert words[::2] == ["--pipeline-splits"] * 3
    assert ipulaunch("plan", "imagenet", "--pod", "16", *words).code == 0


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("--suggest-splits 4", "imagenet --suggest-splits 4"),
        ("--suggest-splits=4 --splits-by parameters", "imagenet --suggest-splits 4 --splits-by parameters"),
        ("--suggest-splits 2 mnist --json", "mnist --suggest-splits 2 --json"),
    ],
)
def test_splits_are_those_of_imagenet_unless_a_workload_is_named(words: str, whole: str, ipulaunch: Run) -> None:
    outcome = ipulaunch("plan", *words.split())
    assert (outcome.code, outcome) == (0, ipulaunch("plan", *whole.split()))
    text = " ".join(ipulaunch("plan", "--help").out.split())
    assert "--suggest-splits STAGES Propose pipeline splits. Of imagenet, unless a workload is named." in text


def test_stages_can_be_even_in_other_costs(ipulaunch: Run) -> None:
    assert ipulaunch("plan", "imagenet", "--pod", "4", "--splits-by", "flops").code == 2
    words = ("plan", "imagenet", "--suggest-splits", "2", "--json", "--splits-by")
    by_parameters = json.loads(ipulaunch(*words, "parameters").out)
    sizes = [stage["parameters"] for stage in by_parameters["stages"]]
    assert by_parameters["balance"] == pytest.approx(sum(sizes) / 2 / max(sizes))
    assert by_parameters["splits"] != json.loads(ipulaunch(*words, "activations").out)["splits"]


def test_json_of_suggested_splits(ipulaunch: Run) -> None:
    data = json.loads(ipulaunch("plan", "imagenet", "--suggest-splits", "4", "--json").out)
    flops = [stage["flops"] for stage in data["stages"]]
    assert data["balance"] == pytest.approx(sum(flops) / 4 / max(flops))
    assert [stage["first_layer"] for stage in data["stages"]] == ["image", *data["splits"]]
    assert data["balance"] > 0.85


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("plan mnist --suggest-splits 99", 6, "99 are asked for"),
        ("plan mnist --suggest-splits 1", 2, "--suggest-splits"),
        ("plan --suggest-splits 1", 2, "--suggest-splits"),
        ("plan --suggest-splits", 2, "--suggest-splits"),
    ],
    ids=["too many", "too few", "too few by default", "no number"],
)
def test_stages_that_cannot_be_suggested(words: str, code: int, said: str, ipulaunch: Run) -> None:
    result = ipulaunch(*words.split())
    assert (result.code, result.out) == (code, "")
    assert said in result.err


def test_validation_off_the_stages_is_refused(ipulaunch: Run) -> None:
    words = ["imagenet", "--pod", "16", "--config", "resnet50_16ipus_8k_bn_pipeline", "--no-pipeline-validation-model"]
    code, _, err = ipulaunch(*words, "--dry-run")
    assert code == 6 and "a pipelined model validates on its pipeline stages" in err
    assert ipulaunch(*words, "--no-validation", "--dry-run").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--optimizer sgd --set optimizer.rho=0.8", "optimizer.rho has no effect with optimizer.name = sgd: it is for"),
        ("--set optimizer.epsilon=1e-3", "optimizer.epsilon has no effect with optimizer.name = sgd"),
        ("--lr-schedule cosine --set schedule.power=2", "schedule.power has no effect with schedule.name = cosine"),
    ],
)  # fmt: skip
def test_settings_that_nothing_uses_are_told(words: str, said: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", "cifar10", *f"--pod 4 --optimizer sgd {words}".split())
    assert code == 0 and f"warning: {said}" in err


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        ("--micro-batch-size 1", True),
        ("--micro-batch-size 2", False),
        ("--micro-batch-size 1 --norm-layer group_norm", False),
        ("--micro-batch-size 1 --set device.distributed_norm_replicas=2", False),
        ("--micro-batch-size 1 --model cifar_cnn", False),
        ("--micro-batch-size 1 --no-training --checkpoint-input-dir .", False),
    ],
)
def test_statistics_of_a_single_sample_are_told(words: str, is_told: bool, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", "cifar10", *f"--pod 4 --no-rehearsal --model cifar_resnet8 {words}".split())
    assert code == 0 and ("batch statistics of a single sample" in err) == is_told, err


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--side 32 --micro-batch-size 2", 2),
        ("--side 32 --micro-batch-size 3", 3),
        ("--side 32 --micro-batch-size 4", None),
        ("--side 34 --micro-batch-size 2", None),  # 2 x 2 of each
        ("--side 32 --micro-batch-size 2 --norm-layer group_norm", None),
        ("--side 32 --micro-batch-size 2 --no-training --checkpoint-input-dir .", None),
        ("--side 32 --micro-batch-size 1 --dbn-replica-group-size 2", 2),
        ("--side 32 --micro-batch-size 1", None),  # another warning
    ],
)
def test_statistics_of_few_values_are_told(words: str, values: Optional[int], ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", "imagenet", *f"--pod 4 --no-rehearsal --model resnet50 {words}".split())
    told = f"batch statistics of {values} values in the last norms of resnet50" if values else "last norms"
    assert code == 0 and (told in err) == (values is not None), err


@pytest.mark.parametrize("words", ["--optimizer rmsprop --set optimizer.rho=0.8", "--optimizer sgd"])
def test_settings_that_are_used_or_not_given_are_not_told(words: str, ipulaunch: Run) -> None:
    assert "has no effect" not in ipulaunch("plan", "cifar10", "--pod", "4", *words.split()).err


SHARD = "--data-dir /d --stage-dir /fast --stage-shard"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{SHARD} --hosts a,b", "samples are shuffled within 2 shares, one for each host (--stage-shard)"),
        (SHARD, "--stage-shard changes nothing on one host"),
    ],
)
def test_a_plan_says_what_shares_make_of_the_order(words: str, said: str, ipulaunch: Run) -> None:
    code, out, _ = ipulaunch("plan", "cosmoflow", *f"--pod 16 {words}".split())
    assert code == 0 and said in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--data-dir /d --stage-shard", "--stage-shard has no effect without --stage-dir"),
        (f"{SHARD} --elastic-hosts", "with --stage-shard samples belong to hosts"),
    ],
)
def test_shares_that_cannot_be_are_refused(words: str, said: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", "cosmoflow", *f"--pod 16 {words}".split())
    assert code == 6 and said in err


@pytest.mark.parametrize(("workload", "option"), [("cosmoflow", "--data-dir"), ("imagenet", "--dataset-path")])
@pytest.mark.parametrize("given", ["--stage-dir /fast", "--bad-records skip"])
def test_what_only_records_need_is_refused_for_synthetic_samples(
    workload: str, option: str, given: str, ipulaunch: Run
) -> None:
    code, _, err = ipulaunch(workload, "--pod", "4", "--rehearsal", *given.split(), "--dry-run")
    said = given.replace(" /fast", "")
    assert code == 6 and f"{said} has no effect on synthetic samples" in err and f"give {option}" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--synthetic-data cpu", "host    195 weight updates in"),
        ("--dataset-path .", "host    up to 195 weight updates in"),
    ],
)
def test_updates_of_a_set_that_may_be_smaller_are_an_upper_bound(words: str, said: str, ipulaunch: Run) -> None:
    plan = "plan cifar10 --pod 4 --gradient-accumulation-count 8 --num-epochs 1 --no-rehearsal"
    assert said in ipulaunch(*plan.split(), *words.split()).out


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "imagenet --pod 16 --config resnet50_16ipus_8k_bn_pipeline --gradient-accumulation-count 12",
            "accumulation 12 with 4 pipeline stages: the Grouped schedule takes a multiple of 8",
        ),
        ("mnist --pipelining --gradient-accumulation-count 1", "takes a multiple of 4"),
        (
            "mnist --pipelining --pipeline-schedule Interleaved --device-mapping 0,0",
            "2 pipeline stages on 1 IPU with the Interleaved schedule",
        ),
        (
            "mnist --pipelining --gradient-accumulation-count 4 --set device.io_tiles=32",
            "accumulation 4 with 2 pipeline stages and 32 tiles for input and output: the Grouped schedule then takes"
            " at least 6, in multiples of 4",
        ),
        ("mnist --set device.prefetch_depth=256", "256 micro-batches sent ahead of their use"),
        ("imagenet --pod 16 --set device.io_tiles=1472 --synthetic-data cpu", "an IPU has 1472 tiles"),
        (
            "cifar10 --pod 4 --auto-loss-scaling --lr-schedule const --momentum 0 --l2-regularization 0",
            "automatic loss scaling on IPUs",
        ),
        ("cifar10 --pod 4 --optimizer-state-offloading --gradient-accumulation-count 1", "accumulation is 1"),
        (
            "imagenet --pod 16 --set device.fused_preprocessing=true --host-preprocess --synthetic-data cpu",
            "and the host normalises",
        ),
        (
            "imagenet --pod 16 --set device.distributed_norm_replicas=2 --set device.io_tiles=8 --synthetic-data cpu",
            "8 tiles for input and output",
        ),
        ("cifar10 --pod 4 --api estimator --set device.outfeed_depth=4", "Estimators take none"),
        ("cifar10 --pod 4 --api estimator --compile-only", "and this is an Estimator"),
    ],
)
def test_what_ipus_refuse_is_refused_before_anything_starts(line: str, why: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*line.split(), "--dry-run", "--engine", "poprun")
    assert (code, out, why in err, "hint: " in err) == (6, "", True, True)


REDUCED = "cifar10 --pod 4 --accelerator-side-reduction"
SCALED = (
    "cifar10 --pod 4 --auto-loss-scaling --lr-schedule const --momentum 0 --l2-regularization 0 --precision 16.16"
    " --gradient-accumulation-count 1"
)


@pytest.mark.parametrize(
    ("line", "sdk", "why"),
    [
        (REDUCED, "2.6", "SDKs before 3.1 do not have (this is SDK 2.6)"),
        (REDUCED, "3.0", "SDKs before 3.1 do not have (this is SDK 3.0)"),
        (REDUCED, "3.1", ""),
        (f"{REDUCED} --api estimator", "3.0", ""),
        (SCALED, "2.6", "automatic loss scaling on IPUs needs SDK 3.0 or later"),
        (SCALED, "3.0", ""),
    ],
)
def test_what_an_sdk_does_not_have_is_refused(line: str, sdk: str, why: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*line.split(), "--dry-run", "--engine", "poprun", "--sdk-version", sdk)
    assert (code, out == "", why in err) == ((6, True, True) if why else (0, False, True)), err
    assert not why or "or enable a later SDK" in err


@pytest.mark.parametrize("engine", ["poprun", "direct"])
@pytest.mark.parametrize(("told_by", "code"), [("option", 6), ("directory", 6), ("poprun", 6), ("nobody", 0)])
def test_an_sdk_is_known_to_the_plan(
    told_by: str, code: int, engine: str, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told_by == "directory":
        monkeypatch.setenv("POPLAR_SDK_ENABLED", "/opt/poplar_sdk-ubuntu_20_04-3.0.0+1")
    elif told_by == "poprun":
        monkeypatch.setattr(discovery, "find_poprun", lambda: "/opt/poprun")
        monkeypatch.setattr(discovery, "_output", lambda argv: "poprun 3.0.0")
    more = ["--sdk-version", "3.0"] if told_by == "option" else []
    assert ipulaunch(*REDUCED.split(), "--dry-run", "--engine", engine, *more).code == code


@pytest.mark.parametrize(
    "words",
    [
        "--pipeline-schedule Interleaved",
        "--pipeline-schedule Interleaved --device-mapping 1,0",
        "--pipeline-schedule Sequential --device-mapping 0,0",
        "--device-mapping 0,0",
        "--pipeline-schedule Interleaved --device-mapping 0,0 --no-training --checkpoint-input-dir .",
        "--gradient-accumulation-count 8 --set device.io_tiles=32",
        "--gradient-accumulation-count 2 --pipeline-schedule Interleaved --set device.io_tiles=32",
        "--gradient-accumulation-count 1 --pipeline-schedule Sequential --set device.io_tiles=32",
        "--gradient-accumulation-count 4 --set device.io_tiles=0",
    ],
)
def test_schedules_that_ipus_have_are_planned(words: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("mnist", "--pipelining", *words.split(), "--dry-run", "--engine", "poprun")
    assert code == 0, err


@pytest.mark.parametrize(
    ("words", "accumulation"),
    [("", 8), ("--global-batch-size 1", 8), ("--global-batch-size 192", 12), ("--pipeline-schedule Interleaved", 2)],
)
def test_io_tiles_make_an_update_of_a_grouped_pipeline_longer(words: str, accumulation: int, ipulaunch: Run) -> None:
    plan = "plan mnist --pipelining --engine poprun --micro-batch-size 16 --num-replicas 1 --set device.io_tiles=32"
    unset = "training.gradient_accumulation_count=null"
    code, out, err = ipulaunch(*plan.split(), "--set", unset, *words.split())
    assert code == 0, err
    assert f"micro-batch 16 x 1 replica x accumulation {accumulation}\n" in out


@pytest.mark.parametrize(("asked", "used"), [(700, 512), (4000, 4096), (1, 512), (8192, 8192)])
def test_a_global_batch_of_a_pipeline_is_rounded_to_whole_turns(asked: int, used: int, ipulaunch: Run) -> None:
    words = ("imagenet", "--pod", "16", "--config", "resnet50_16ipus_8k_bn_pipeline", "--synthetic-data", "cpu")
    code, out, err = ipulaunch("plan", *words, "--global-batch-size", str(asked))
    assert (code, f"global batch {used} = micro-batch 16 x 4 replicas" in out) == (0, True)
    said = f"a global batch of {asked} is not a multiple of 16 x 4 x 8 to fill the pipeline = 512"
    assert (said in err) == (asked != used)


@pytest.mark.parametrize(("engine", "is_told"), [("poprun", True), ("openmpi", False)])
def test_a_device_call_has_a_limit_of_time_on_ipus(engine: str, is_told: bool, ipulaunch: Run) -> None:
    words = ("plan", "cosmoflow", "--pod", "16", "--engine", engine, "--stall-timeout", "7200")
    assert ("each of which has 7200 s (--stall-timeout)" in ipulaunch(*words).out) == is_told
