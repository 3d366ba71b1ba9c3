"""`ipulaunch export`: the line that it starts, and what it refuses before it starts anything."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.schema import with_value
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.workers.serving.arguments import read_request

Run = Callable[..., Any]


def a_run(path: Path, **settings: Any) -> Path:
    """A run of MNIST, without checkpoints."""
    chosen = resolve("mnist", rehearsal=True).settings
    for key, value in settings.items():
        chosen = with_value(chosen, key.replace("__", "."), value)
    path.mkdir(parents=True)
    RunDirectory(path).job.write_text(to_yaml(Job("mnist", "ipu", chosen)))
    RunDirectory(path).plan.write_text("{}")
    return path


def line(out: str) -> List[str]:
    """The words of a dry run behind those that start the process."""
    python, *words = shlex.split(out)
    assert words[:2] == ["-m", "ipulaunch.workers.serving"]
    return [python, *words[2:]]


@pytest.mark.core
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("mnist", "mnist --backend cpu --rehearsal --export-dir {here}/models"),
        (
            "cifar10 --config resnet8_test --micro-batch-size 4 --model-version 3",
            "cifar10 --backend cpu --rehearsal --config resnet8_test --set training.micro_batch_size=4"
            " --export-dir {here}/models --model-version 3",
        ),
        (
            "cosmoflow --no-rehearsal --checkpoint-input-dir ../c --engine poprun --python /p --iterations 4",
            "cosmoflow --backend ipu --export-dir {here}/models --iterations 4 --checkpoint-input-dir {here}/../c",
        ),
        (
            "mnist --pipeline-splits flatten --pipeline-serving-model --engine direct --python /p",
            "mnist --backend ipu --set 'pipeline.splits=[\"flatten\"]' --export-dir {here}/models"
            " --pipeline-serving-model",
        ),
        (
            "cifar10 --api estimator --no-training --model-dir est",
            "cifar10 --backend cpu --rehearsal --set training.training=false --set estimator.api=estimator"
            " --set estimator.model_dir={here}/est --export-dir {here}/models --checkpoint-input-dir {here}/est",
        ),
    ],
)
def test_a_dry_run_prints_the_line_that_exports(given: str, expected: str, ipulaunch: Run, tmp_path: Path) -> None:
    code, out, _ = ipulaunch("export", *shlex.split(given), "--export-dir", "models", "--dry-run")
    assert code == 0
    python, *words = line(out)
    assert python == ("/p" if "--python" in given else sys.executable)
    wanted = shlex.split(expected.format(here=tmp_path))
    assert (words[:3], sorted(words)) == (wanted[:3], sorted(wanted))
    request = read_request(words)  # the process takes it
    assert (request.job.workload, request.directory) == (words[0], tmp_path / "models")
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("name", ["runs/one", "one", "./runs/one"])
def test_a_run_stands_for_its_workload_its_settings_and_its_weights(name: str, ipulaunch: Run, tmp_path: Path) -> None:
    run = a_run(tmp_path / "runs" / "one", training__micro_batch_size=5, model__name="toy_model")
    code, out, _ = ipulaunch("export", name, "--export-dir", "models", "--micro-batch-size", "2", "--dry-run", "--json")
    words = json.loads(out)["argv"][3:]
    assert code == 0
    request = read_request(words)
    assert (request.job.workload, request.job.backend, request.weights) == ("mnist", "cpu", run)
    assert (request.job.settings.training.micro_batch_size, request.job.settings.model.name) == (2, "toy_model")
    assert read_request([word for word in words if word not in ("--micro-batch-size", "2")]).job.settings == (
        with_value(request.job.settings, "training.micro_batch_size", 5)
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(["mnist"], 2, "--export-dir", id="nowhere"),
        pytest.param(["nist", "--export-dir", "models"], 2, "did you mean mnist?", id="no workload"),
        pytest.param(["runs/one", "--export-dir", "models"], 2, "there is no run runs/one", id="no run"),
        pytest.param(["mnist", "--export-dir", "full"], 2, "full holds file", id="a directory that holds something"),
        pytest.param(["mnist", "--export-dir", "full/file"], 2, "is not a directory", id="a file"),
        pytest.param(["mnist", "--export-dir", "m", "--model-version", "0"], 2, "--model-version", id="version 0"),
        pytest.param(
            ["mnist", "--export-dir", "m", "--checkpoint-input-dir", "no"], 5, "there is no directory", id="no weights"
        ),
        pytest.param(["mnist", "--export-dir", "m", "--engine", "poprun"], 4, "poprun", id="no SDK"),
        pytest.param(["mnist", "--export-dir", "m", "--python", "/x"], 4, "there is no program /x", id="no Python"),
        pytest.param(
            ["mnist", "--export-dir", "m", "--pipeline-splits", "there"], 6, "has no layer there", id="no such layer"
        ),
    ],
)
def test_what_cannot_be_exported_is_refused_before_anything_starts(
    words: List[str], code: int, message: str, ipulaunch: Run, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    found = ipulaunch("export", *words)
    assert (found.code, found.out) == (code, "")
    assert message in found.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


def test_weights_of_a_run_of_another_network_are_refused_with_both(ipulaunch: Run, tmp_path: Path) -> None:
    a_run(tmp_path / "one", model__dropout=None, model__name="toy_model")
    words = ["mnist", "--checkpoint-input-dir", "one", "--export-dir", "models"]
    code, _, err = ipulaunch("export", *words)
    assert code == 6
    assert "was trained with model.name toy_model, and this job has model.name mnist_cnn" in err
    assert "add --model toy_model" in err


def test_a_machine_with_ipus_exports_for_cpus_only_if_it_is_told_to(
    ipulaunch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipulaunch.launcher.engines import discovery

    monkeypatch.setattr(discovery, "ipus_in_sight", lambda environ: "/dev/ipu0")
    words = ["export", "mnist", "--export-dir", "models", "--dry-run"]
    code, _, err = ipulaunch(*words)
    assert (code, "/dev/ipu0" in err) == (4, True)
    assert ipulaunch(*words, "--engine", "openmpi").code == 0


def test_iterations_without_effect_are_noted(ipulaunch: Run) -> None:
    words = ["export", "mnist", "--export-dir", "models", "--iterations", "2", "--dry-run"]
    assert "note: --iterations is for IPUs" in ipulaunch(*words).err
    assert ipulaunch(*words, "--engine", "poprun").err == ""
