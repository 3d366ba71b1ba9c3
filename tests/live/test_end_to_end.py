"""Workloads as a user runs them: real workers over real Open MPI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest
from fixtures.trainings import LONGEST_S, REHEARSAL, SYNTHETIC

from ipulaunch.data_pipeline.records.example import find_features
from ipulaunch.data_pipeline.records.tfrecord import scan
from ipulaunch.data_pipeline.tools.new_set import encode_example, write_records
from ipulaunch.topology.machines.hosts import discover
from ipulaunch.workers.state.checkpoints import load

IPULAUNCH = [sys.executable, "-m", "ipulaunch.launcher"]


def ipulaunch(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*IPULAUNCH, *arguments], cwd=cwd, env={**os.environ, **more}, capture_output=True, encoding="utf-8",
        timeout=LONGEST_S, check=False,
    )  # fmt: skip


def records(path: Path) -> List[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def living(run: Path) -> List[int]:
    """The processes whose command line names a run directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(run).encode() in words and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def curve(path: Path) -> Any:
    return [{**row, "train_s": 0, "samples_per_s": 0} for row in records(path / "metrics.jsonl")]


@pytest.mark.core
def test_a_rehearsal_leaves_a_complete_run(rehearsal: Path) -> None:
    run = rehearsal / "run"
    # Curves are drawn where matplotlib is, and the page where Jinja2 is.
    assert sorted(path.name for path in run.iterdir() if path.stem not in ("curves", "report")) == [
        "asked.json", "checkpoints", "command.txt", "endings.jsonl", "engine.txt", "history.csv", "instance-000",
        "instance-001", "job.yaml", "launcher.json", "metrics.jsonl", "origins.json", "plan.json", "summary.json",
        "tensorboard",
    ]  # fmt: skip
    summary = json.loads((run / "summary.json").read_text())
    assert summary["updates"] == 12 and summary["samples"] == 48
    assert len(summary["samples_per_s_by_instance"]) == 2
    assert set(summary["metrics"]) == {"loss", "mae", "val_loss", "val_mae"}
    assert summary["checkpoint"] == "checkpoints/update-00000012"
    assert all(times["data"] and times["device"] and times["reduction"] for times in summary["times_s_by_instance"])
    for index in range(2):
        left = json.loads((run / f"instance-00{index}" / "done.json").read_text())
        assert left.pop("time_ns") and left == summary
    rows = records(run / "metrics.jsonl")
    assert [(row["epoch"], "val_loss" in row) for row in rows] == [(1, False), (2, False), (1, True), (2, True)]
    assert summary["best"]["val_mae"] == min(row["val_mae"] for row in rows[2:])
    events = [records(run / f"instance-00{i}" / "events.jsonl") for i in range(2)]
    starts = [next(event for event in each if event["event"] == "started") for each in events]
    assert [start["place"]["first_replica"] for start in starts] == [0, 2]
    for index in range(2):
        times = [each for each in records(run / f"instance-00{index}" / "events.jsonl") if each["event"] == "times"]
        assert [each["update"] for each in times] == [6, 12, 12, 12]  # two logs, the ends of training and validation
        assert all("reduction" in each["seconds"] for each in times[:2]) and "validation" in times[3]["seconds"]
    if discover("localhost").cores > 1:
        assert starts[0]["binding"]["cpus"] != starts[1]["binding"]["cpus"]
    assert living(run) == []


def test_a_rehearsal_tells_where_its_run_is_and_keeps_stdout_clean(rehearsal: Path) -> None:
    told = (rehearsal / "stderr").read_text(encoding="utf-8")
    assert "done in" in told and "run         run" in told
    assert (rehearsal / "stdout").read_text() == ""


def test_a_run_that_was_broken_off_is_resumed_to_the_same_end(rehearsal: Path, tmp_path: Path) -> None:
    """As if it had been killed after its first epoch: everything that came later is taken away."""
    whole, run = rehearsal / "run", tmp_path / "runs" / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints" / "update-00000012")
    for path in [run / "summary.json", run / "endings.jsonl", *run.glob("instance-*/done.json")]:
        path.unlink()
    done = ipulaunch("resume", "run", cwd=tmp_path, MY_API_TOKEN="any")
    assert done.returncode == 0, done.stderr
    expected, found = (load(path / "checkpoints" / "update-00000012") for path in (whole, run))
    for mine, theirs in zip([*found.weights, *found.optimizer], [*expected.weights, *expected.optimizer]):
        assert np.array_equal(mine, theirs)
    assert curve(run) == curve(whole)


def test_a_printed_command_pasted_into_a_shell_is_the_same_training(rehearsal: Path, tmp_path: Path) -> None:
    data = ["--data-dir", str(rehearsal / "volumes")]
    printed = ipulaunch(*REHEARSAL, *data, "--dry-run", cwd=tmp_path)
    assert printed.stdout.count("\n") == 1
    shell = ["sh", "-c", printed.stdout]
    pasted = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert pasted.returncode == 0, pasted.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert curve(run) == curve(rehearsal / "run")
    plans = [json.loads((path / "plan.json").read_text()) for path in (run, rehearsal / "run")]
    assert [plan.pop("system") for plan in plans] == ["4 IPUs", "pod4"]  # nobody has told it of a POD
    assert plans[0] == plans[1]
    assert f"{run.name}  cosmoflow  done   12/12" in ipulaunch("ps", cwd=tmp_path).stdout
    assert "is done: there is nothing to resume" in ipulaunch("resume", run.name, cwd=tmp_path).stderr


@pytest.mark.night
def test_checkpoints_of_a_pipelined_run_are_evaluated_again(tmp_path: Path) -> None:
    """At night: in process, test_train.py evaluates checkpoints and backends/ipu/test_pipeline.py pipelines."""
    mnist = ["mnist", "--pipelining", "--engine", "openmpi", "--micro-batch-size", "8", "--n-train", "128"]
    mnist += ["--n-valid", "50", "--validation-micro-batch-size", "8", "--num-epochs", "2"]
    trained = ipulaunch(*mnist, "--run-dir", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "--pipeline-validation-model is implied" in trained.stderr
    words = ["--no-training", "--checkpoint-input-dir", "run/checkpoints", "--run-dir", "again"]
    evaluated = ipulaunch(*mnist, *words, cwd=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    first, again = (
        [row for row in records(tmp_path / name / "metrics.jsonl") if "val_loss" in row] for name in ("run", "again")
    )
    assert [row["checkpoint"] for row in first] == ["update-00000002", "update-00000004"]
    assert first == again
    assert "best        update-0000000" in evaluated.stderr


@pytest.mark.night
def test_evaluation_without_a_checkpoint_says_that_weights_are_random(tmp_path: Path) -> None:
    """At night: test_train.py has the warning in process, and other runs show warnings."""
    words = ["--engine", "openmpi", "--n-train", "64", "--n-valid", "16", "--no-training", "--run-dir", "run"]
    done = ipulaunch("mnist", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warning: there is no checkpoint: random weights are evaluated" in done.stderr


def test_a_damaged_record_is_replaced_and_told(rehearsal: Path) -> None:
    run = rehearsal / "run"
    assert "replaced    1 sample that could not be read whole" in (rehearsal / "stderr").read_text(encoding="utf-8")
    assert json.loads((run / "summary.json").read_text())["replaced_samples"] == 1
    events = [event for instance in range(2) for event in records(run / f"instance-00{instance}" / "events.jsonl")]
    assert {(event["sample"], event["by"]) for event in events if event["event"] == "replacement"} == {(7, 8)}


def test_every_sample_was_trained_once_in_every_epoch(rehearsal: Path, tmp_path: Path) -> None:
    audited = ipulaunch("data", "audit", str(rehearsal / "run"), "--json", cwd=tmp_path)
    assert audited.returncode == 0, audited.stderr
    result = json.loads(audited.stdout)
    assert (result["rows"], result["replaced"], result["discrepancies"]) == (48, 2, 0)  # once in each of two epochs


@pytest.mark.night
def test_an_image_that_cannot_be_decoded_ends_the_job_with_its_place(tmp_path: Path) -> None:
    """At night: test_imagenet_bad_records.py has the error in process, and other runs the exit code."""
    words = ["--out", "images", "--side", "32", "--samples", "16", "--validation-samples", "4", "--files", "2"]
    assert ipulaunch("data", "make", "imagenet", *words, cwd=tmp_path).returncode == 0
    file = tmp_path / "images" / "train-00001-of-00002"
    index = scan(file)
    data = file.read_bytes()
    whole = [data[start : start + size] for start, size in zip(index.offsets.tolist(), index.lengths.tolist())]
    span = find_features(whole[5])["image/encoded"]
    whole[5] = encode_example({"image/encoded": whole[5][span.start : span.stop - 100], "image/class/label": [1]})
    write_records(file, whole)

    words = ["--pod", "4", "--num-instances", "2", "--oversubscribe", "--engine", "openmpi", "--model", "mnist_cnn"]
    words += ["--micro-batch-size", "4", "--dataset-path", "images", "--no-augment", "--no-validation"]
    done = ipulaunch("imagenet", *words, "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    place = f"{file}, record 5 at byte {sum(len(record) + 16 for record in whole[:5])}"
    assert f"{place}: the image cannot be decoded" in done.stderr
    assert living(tmp_path / "run") == []


def test_an_epoch_without_a_single_update_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = ipulaunch(*SYNTHETIC, "--no-rehearsal", "--n-train", "3", "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 6
    assert "3 training samples do not fill one global batch 4" in done.stderr
    assert not (tmp_path / "run").exists()


def test_without_tensorflow_the_job_ends_with_the_fix(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "tensorflow"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no TensorFlow on this host')")
    command = [*IPULAUNCH, *SYNTHETIC, "--run-dir", "run"]
    environ = {**os.environ, "PYTHONPATH": str(broken.parent)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    assert done.returncode == 4
    assert "NotReadyError: TensorFlow is not here: no TensorFlow on this host" in done.stderr
    assert "pip install 'ipulaunch[cpu]'" in done.stderr
