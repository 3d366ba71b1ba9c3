"""The options of the workloads: all that users of the Graphcore applications know, under the same names."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Callable, List, Tuple

import click
import pytest

from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.settings.workloads import WORKLOADS, presets
from ipulaunch.launcher.cli.main import cli

pytestmark = pytest.mark.core

Run = Callable[..., Any]

EVERYWHERE = [
    *("--config", "--config-path", "--model", "--num-epochs", "--micro-batch-size", "--global-batch-size"),
    *("--gradient-accumulation-count", "--num-replicas", "--precision", "--pipeline-splits", "--device-mapping"),
    *("--pipeline-schedule", "--pipeline-validation-model", "--training", "--no-training", "--validation"),
    *("--no-validation", "--checkpoint-input-dir", "--checkpoint-output-dir", "--logs-per-epoch", "--ckpts-per-epoch"),
    *("--first-ckpt-epoch", "--weight-updates-per-epoch", "--synthetic-data", "--optimizer", "--weight-decay"),
    *("--l2-regularization", "--loss-scaling", "--auto-loss-scaling", "--lr-schedule", "--lr-warmup-mode"),
    *("--lr-warmup-epochs", "--lr-staircase", "--recomputation", "--optimizer-state-offloading"),
    *("--available-memory-proportion", "--stochastic-rounding", "--half-partials", "--seed", "--deterministic"),
    *("--target-accuracy", "--resume", "--keep-checkpoints", "--data-dir", "--dataset-path"),
]
IMAGES = ["--label-smoothing", "--norm-layer", "--eight-bit-transfer"]
OWN = {"mnist": ["--use-ipu", "--pipelining"]}
CHOICES = {
    "--precision": "16.16|16.32|32.32",
    "--pipeline-schedule": "Grouped|Interleaved|Sequential",
    "--synthetic-data": "cpu|ipu",
    "--optimizer": "adadelta|adam|lars|rmsprop|sgd",
    "--lr-schedule": "const|cosine|polynomial|stepped",
    "--lr-warmup-mode": "mask|shift",
    "--stochastic-rounding": "off|on|ri",
}


def options_of(*path: str) -> List[str]:
    """Every spelling of every option of a command."""
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return [name for param in command.params for name in (*param.opts, *param.secondary_opts)]


@pytest.mark.parametrize("path", [(), ("plan",)], ids=["run", "plan"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_options_that_users_know(workload: str, path: Tuple[str, ...]) -> None:
    expected = [*EVERYWHERE, *OWN.get(workload, []), *(IMAGES if workload != "cosmoflow" else [])]
    assert sorted(set(expected) - set(options_of(*path, workload))) == []


@pytest.mark.parametrize("workload", [name for name in WORKLOADS if name != "mnist"])
def test_switches_of_the_walk_through_are_its_own(workload: str) -> None:
    assert {"--use-ipu", "--pipelining"} & set(options_of(workload)) == set()


@pytest.mark.parametrize(("option", "choices"), CHOICES.items())
def test_help_shows_the_choices_as_they_are_written(option: str, choices: str, ipulaunch: Run) -> None:
    assert f"{option} [{choices}]" in ipulaunch("imagenet", "--help").out


def test_help_has_a_heading_for_each_group_of_settings(ipulaunch: Run) -> None:
    lines = ipulaunch("mnist", "--help").out.splitlines()
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    groups = ("Launch", "Pipeline", "Optimizer", "Schedule", "Training", "Device", "Survival", "Logging", "Data")
    groups += ("Model",)
    assert headings == ["Options:", *(f"{group} settings:" for group in groups)]


WORKER = "python3 -m ipulaunch.workers mnist --backend ipu"


def worker_line(run: Run, *words: str) -> str:
    """What a dry run says behind poprun's own options."""
    code, out, err = run(*words, "--dry-run")
    assert code == 0, err
    line: str = out[out.index("python3 -m") :].rstrip("\n")
    return line


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("--validation False", "false"),
        ("--validation false", "false"),
        ("--validation=False", "false"),
        ("--validation no", "false"),
        ("--no-validation", "false"),
        ("--set training.validation=False", "false"),
        ("--validation True", "true"),
        ("--validation=yes", "true"),
        ("--validation", "true"),
    ],
)
def test_switches_take_a_word(words: str, value: str, ipulaunch: Run) -> None:
    line = worker_line(ipulaunch, "mnist", *words.split(), "--seed", "3")
    assert line == f"{WORKER} --set training.seed=3 --set training.validation={value}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--validation maybe", "maybe"),
        ("--validation=maybe", "--validation"),
        ("--no-validation False", "False"),
        ("--dry-run False", "False"),
        ("False", "False"),
    ],
)
def test_other_words_are_refused(words: str, said: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("mnist", *words.split(), "--dry-run")
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    "words",
    [
        "--pipeline-splits conv2_block2_out --pipeline-splits conv3_block1_out --pipeline-splits conv4_block2_out",
        "--pipeline-splits conv2_block2_out,conv3_block1_out,conv4_block2_out",
        "--set pipeline.splits=conv2_block2_out,conv3_block1_out,conv4_block2_out",
        "--set pipeline.splits=[conv2_block2_out,conv3_block1_out,conv4_block2_out]",
    ],
    ids=["several times", "with commas", "set with commas", "set as a list"],
)
def test_lists_can_be_written_in_several_ways(words: str, ipulaunch: Run) -> None:
    line = worker_line(ipulaunch, "imagenet", "--pod", "16", *words.split())
    assert shlex.split(line)[-2:] == [
        "--set",
        'pipeline.splits=["conv2_block2_out", "conv3_block1_out", "conv4_block2_out"]',
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("", "", id="bare"),
        pytest.param("--use-ipu", "", id="use-ipu"),
        pytest.param("--num-epochs 5", " --set training.num_epochs=5", id="setting"),
        pytest.param(
            "--pipelining",
            " --set 'pipeline.splits=[\"flatten\"]' --set training.gradient_accumulation_count=8",
            id="pipelining",
        ),
        pytest.param(
            "--pipelining --gradient-accumulation-count 16",
            " --set 'pipeline.splits=[\"flatten\"]' --set training.gradient_accumulation_count=16",
            id="accumulation",
        ),
        pytest.param(
            "--pipelining --global-batch-size 256 --pipeline-splits pool1",
            " --set 'pipeline.splits=[\"pool1\"]' --set training.global_batch_size=256",
            id="global batch and split",
        ),
    ],
)
def test_mnist_runs_without_a_pod(words: str, said: str, ipulaunch: Run) -> None:
    assert worker_line(ipulaunch, "mnist", *words.split()) == WORKER + said


def test_pipelined_mnist_takes_two_ipus_per_replica(ipulaunch: Run) -> None:
    assert "--num-replicas=1 --ipus-per-replica=2 " in ipulaunch("mnist", "--pipelining", "--dry-run").out
    assert "--num-replicas=2 --ipus-per-replica=2 " in ipulaunch("mnist", "--pipelining", "--pod", "4", "--dry-run").out


def test_use_ipu_chooses_the_engine(ipulaunch: Run, fake_mpirun: Path) -> None:
    assert ipulaunch("mnist", "--use-ipu", "--dry-run").out.startswith("poprun ")
    printed = ipulaunch("mnist", "--no-use-ipu", "--host-layout", "1x2", "--dry-run").out
    assert shlex.split(printed)[0] == str(fake_mpirun)


@pytest.mark.parametrize("words", ["--use-ipu --engine openmpi", "--no-use-ipu --engine poprun"])
def test_two_engines_are_refused(words: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("mnist", *words.split(), "--dry-run")
    assert code == 2
    assert all(word in err for word in words.split())


def test_large_workloads_ask_for_a_system(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("imagenet", "--dry-run")
    assert (code, "no system is named" in err) == (2, True)


def test_a_preset_with_its_replicas_needs_no_system(ipulaunch: Run) -> None:
    line = ipulaunch("cifar10", "--config", "resnet8_test", "--dry-run").out
    assert "--num-replicas=1 --ipus-per-replica=1 " in line


FILE = "training: {seed: 7}\ndevice: {stochastic-rounding: ON}\n"


@pytest.mark.parametrize("name", ["mine.yaml", "configs/my.yaml", "configs/workloads/mnist.yaml"])
def test_worker_line_has_what_the_user_gave_and_no_more(name: str, ipulaunch: Run, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FILE)
    line = worker_line(ipulaunch, "mnist", "--config-path", name, "--num-epochs", "5")
    given = "--set training.num_epochs=5 --set training.seed=7 --set 'device.stochastic_rounding=\"on\"'"
    assert line == f"{WORKER} {given}"


def test_worker_line_names_the_preset(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("training: {seed: 7}\n")
    words = ("--config", "resnet50_16ipus_8k_bn_pipeline", "--config-path", "mine.yaml", "--num-epochs", "90")
    given = "--set training.num_epochs=90 --set training.seed=7"
    assert worker_line(ipulaunch, "imagenet", "--pod", "16", *words).endswith(f" --config {words[1]} {given}")


PRESETS = [(workload, name) for workload in WORKLOADS for name in presets(workload)]


@pytest.mark.parametrize(("workload", "name"), PRESETS, ids=[f"{w}-{n}" for w, n in PRESETS])
def test_command_of_a_preset_works(workload: str, name: str, ipulaunch: Run) -> None:
    """As its header has it; the data may be on another machine."""
    text = presets(workload)[name].read_text(encoding="utf-8")
    (command,) = [line.split(maxsplit=2)[2] for line in text.splitlines() if line.startswith("# Command ")]
    first, *words = command.split()
    assert first == "ipulaunch"
    assert f" --config {name}" in worker_line(ipulaunch, *words)


@pytest.mark.parametrize(("workload", "name"), PRESETS, ids=[f"{w}-{n}" for w, n in PRESETS])
def test_a_preset_can_be_rehearsed(workload: str, name: str, ipulaunch: Run, fake_mpirun: Path) -> None:
    words = ("--pod", "16", "--engine", "openmpi", "--host-layout", "1x2", "--dry-run")
    code, out, err = ipulaunch(workload, "--config", name, *words)
    assert code == 0, err
    assert out.endswith(f" --backend cpu --rehearsal --config {name}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("mnist --dataset-path nowhere", "there is no directory {here}/nowhere", id="images"),
        pytest.param("cosmoflow --pod 4 --data-dir nowhere", "there is no directory {here}/nowhere", id="volumes"),
        pytest.param(
            "mnist --no-training --checkpoint-input-dir nowhere", "no directory {here}/nowhere", id="checkpoints"
        ),
        pytest.param("mnist --no-rehearsal", "mnist needs its images", id="none"),
    ],
)
def test_missing_data_is_told_before_anything_starts(words: str, said: str, ipulaunch: Run, fake_mpirun: Path) -> None:
    words += " --engine openmpi --host-layout 1x2"
    code, out, err = ipulaunch(*words.split())
    assert (code, out, Path("runs").exists()) == (5, "", False)
    assert said.format(here=Path.cwd()) in err
    assert ipulaunch(*words.split(), "--dry-run").code == 0


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_set_that_is_missing_is_told_with_its_files_and_origin(
    workload: str, ipulaunch: Run, fake_mpirun: Path
) -> None:
    flag = "--data-dir" if workload == "cosmoflow" else "--dataset-path"
    words = (flag, "nowhere", "--pod", "4", "--engine", "openmpi", "--host-layout", "1x2")
    code, _, err = ipulaunch(workload, *words)
    assert code == 5
    assert f"check {flag}: {PUBLISHED_SETS[workload].hint}\n" in err


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("--data-dir d", "data.directory={here}/d"),
        ("--data-dir /d", "data.directory=/d"),
        ("--dataset-path /d", "data.directory=/d"),
        ("--set data.data_dir=/c --dataset-path /d", "data.directory=/d"),
        ("--data-dir /d --stage-dir s/t", "data.stage_dir={here}/s/t"),
        ("--set training.checkpoint_output_dir=c", "training.checkpoint_output_dir={here}/c"),
        ("--use-estimator --model-dir ./m", "estimator.model_dir={here}/m"),
        ("--no-training --checkpoint-input-dir ../c", "training.checkpoint_input_dir={here}/../c"),
        ("--executable-cache-path x", "--executable-cache-path={here}/x"),
        ("--python bin/python", "{here}/bin/python"),
        ("--python python3.8", "python3.8"),
    ],
)
def test_a_printed_line_has_whole_paths(words: str, written: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("cosmoflow", "--pod", "4", "--dry-run", *words.split())
    assert code == 0, err
    assert written.format(here=Path.cwd()) in shlex.split(out)


def test_paths_of_files_and_variables_become_whole_as_well(ipulaunch: Run, tmp_path: Path) -> None:
    Path("my.yaml").write_text("training: {checkpoint_output_dir: c}\n")
    env = {"IPULAUNCH_DATA__DATA_DIR": "d"}
    out = ipulaunch("cosmoflow", "--pod", "4", "--dry-run", "--config-path", "my.yaml", env=env).out
    assert {f"training.checkpoint_output_dir={tmp_path}/c", f"data.directory={tmp_path}/d"} < set(shlex.split(out))


@pytest.mark.parametrize("flag", ["--hosts", "--python", "--vipu-partition", "--executable-cache-path"])
def test_empty_option_is_refused(flag: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("cosmoflow", "--pod", "4", flag, "", "--dry-run")
    assert (code, out, err) == (2, "", f"error: {flag} is empty\nhint: is the variable that it came from set?\n")


@pytest.mark.parametrize("flag", ["--data-dir", "--resume", "--stage-dir", "--checkpoint-output-dir"])
def test_empty_path_is_refused(flag: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("cosmoflow", "--pod", "4", flag, "", "--dry-run")
    assert (code, out) == (6, "")
    assert f"{flag}: " in err
    assert "is the variable that it came from set?" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan cosmoflow --norm-layer batch_norm", "here; it is for imagenet, cifar10, cifar100, mnist."),
        ("mnist --nonsense", "No such option '--nonsense'."),
    ],
)
def test_option_of_another_workload(words: str, said: str, ipulaunch: Any) -> None:
    code, _, err = ipulaunch(*words.split())
    assert code == 2 and said in err.replace("No such option: --nonsense", "No such option '--nonsense'.")
