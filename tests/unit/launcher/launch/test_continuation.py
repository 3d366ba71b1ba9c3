"""A run that cannot be continued is refused before anything starts, with the options that make it work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import pytest
from fixtures.plans import plan_of

from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.identity import identity_of

Run = Callable[..., Any]

# 2 updates an epoch of 4 x 8 x 1 samples
TRAINING = ("--micro-batch-size", "8", "--num-epochs", "4")
WORDS = ("mnist", "--pod", "4", "--engine", "openmpi", "--synthetic-data", "cpu", "--n-train", "64", *TRAINING)
SETTINGS = ("data.synthetic_data=cpu", "data.n_train=64", "training.micro_batch_size=8", "training.num_epochs=4")


@pytest.fixture()
def trained(tmp_path: Path) -> Callable[..., Path]:
    """Makes a run that has made 4 updates."""

    def make(facts: Optional[Dict[str, Any]] = None, *, has_job: bool = True) -> Path:
        overrides = [assignment(text, "--set") for text in SETTINGS]
        settings = resolve("mnist", rehearsal=True, overrides=overrides).settings
        run = tmp_path / "runs" / "mine"
        checkpoint = run / "checkpoints" / "update-00000004"
        checkpoint.mkdir(parents=True)
        known = {"update": 4, **identity_of("mnist", settings, plan_of(Batch(8, 4, 1)), 64), **(facts or {})}
        (checkpoint / "manifest.json").write_text(json.dumps({"facts": known}))
        if has_job:
            (run / "job.yaml").write_text(to_yaml(Job("mnist", "cpu", settings)))
        return run

    return make


def test_the_same_training_goes_on(trained: Callable[..., Path], ipulaunch: Run) -> None:
    trained()
    for more in ((), ("--num-epochs", "8"), ("--num-epochs", "2"), ("--num-instances", "1")):
        assert ipulaunch(*WORDS, *more, "--resume", "mine", "--dry-run").code == 0


@pytest.mark.parametrize(
    ("more", "said", "hint"),
    [
        pytest.param(
            ("--n-train", "128"), "with samples 64, and this job has samples 128", "add --n-train 64;", id="samples"
        ),
        pytest.param(
            ("--num-epochs", "1"),
            "has made 4 updates, and this training is 2 long: 1 x 2",
            "give --num-epochs 2 or more, or evaluate it with --no-training --checkpoint-input-dir",
            id="fewer epochs",
        ),
        pytest.param(
            ("--micro-batch-size", "4"),
            "with global batch 32, and this job has global batch 16",
            "add --global-batch-size 32;",
            id="batch",
        ),
        pytest.param(
            ("--micro-batch-size", "16"),
            "with global batch 32, and this job has global batch 64",
            "add --micro-batch-size 8 --global-batch-size 32;",
            id="a batch that the micro-batch does not divide",
        ),
        pytest.param(
            ("--gradient-accumulation-count", "2"),
            "with global batch 32, and this job has global batch 64",
            "add --global-batch-size 32, and leave --gradient-accumulation-count out;",
            id="accumulation",
        ),
        pytest.param(
            ("--seed", "7", "--remainder", "repeat"),
            "with remainder drop and seed 0, and this job has remainder repeat and seed 7",
            "add --remainder drop --seed 0;",
            id="two at once",
        ),
        pytest.param(
            ("--set", "data.shuffle=false"), "with shuffle true, and", "add --set data.shuffle=true;", id="shuffle"
        ),
        pytest.param(
            ("--optimizer", "lars"), "with optimizer ", "add --optimizer ", id="optimizer",
        ),
    ],
)  # fmt: skip
def test_another_training_is_refused_before_anything_starts(
    more: Any, said: str, hint: str, trained: Callable[..., Path], ipulaunch: Run, fake_mpirun: Path, tmp_path: Path
) -> None:
    trained()
    code, _, err = ipulaunch(*WORDS, *more, "--resume", "mine")
    assert code == 6
    assert "update-00000004" in err and said in err
    assert f"hint: {hint}" in err
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"], "no run was made"


def test_the_samples_of_hosts_stay_with_as_many_hosts(trained: Callable[..., Path], ipulaunch: Run) -> None:
    trained({"shares": 2})
    code, _, err = ipulaunch(*WORDS, "--resume", "mine", "--dry-run")
    assert code == 6 and "with shares 2, and this job has shares 1" in err
    assert "hint: with --stage-shard samples belong to hosts: continue on 2 of them" in err


def test_a_checkpoint_alone_is_enough(trained: Callable[..., Path], ipulaunch: Run) -> None:
    path = trained({"optimizer": "sgd"}, has_job=False) / "checkpoints" / "update-00000004"
    code, _, err = ipulaunch(*WORDS, "--resume", str(path), "--dry-run")
    assert code == 6 and "with optimizer sgd, and this job has" in err and "hint: add --optimizer sgd;" in err
    trained_otherwise = {"network": "0123456789ab"}
    (path / "manifest.json").write_text(json.dumps({"facts": {"update": 4, **trained_otherwise}}))
    code, _, err = ipulaunch(*WORDS, "--resume", str(path), "--dry-run")
    assert code == 6 and "hint: resume with the settings of that run" in err


@pytest.mark.parametrize("text", ["{", "[]", '{"facts": 7}', '{"facts": {}}', '{"facts": {"update": "4"}}'])
def test_what_a_checkpoint_does_not_tell_is_left_to_the_instances(
    text: str, trained: Callable[..., Path], ipulaunch: Run
) -> None:
    run = trained()
    (run / "checkpoints" / "update-00000004" / "manifest.json").write_text(text)
    assert ipulaunch(*WORDS, "--num-epochs", "1", "--resume", "mine", "--dry-run").code == 0


def test_files_may_have_fewer_samples_than_the_job_asks_for(trained: Callable[..., Path], ipulaunch: Run) -> None:
    """Only the instances count them."""
    trained()
    words = (
        "mnist",
        "--pod",
        "4",
        *TRAINING,
        "--resume",
        "mine",
        "--dry-run",
        "--rehearsal",
        "--data-dir",
        "elsewhere",
    )
    assert ipulaunch(*words, "--n-train", "128").code == 0
    assert ipulaunch(*words, "--n-train", "32").code == 6
