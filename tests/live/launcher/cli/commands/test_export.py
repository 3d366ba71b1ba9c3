"""`ipulaunch export` and the processes that it starts: from a training to the answers of plain TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ipulaunch.launcher.cli import data_tasks

Run = Callable[..., Any]
FAKE = Path(__file__).parents[4] / "fakes" / "data_task.py"
LONGEST_S = 1800  # bounds a hang
# Knows a SavedModel and the published format of CIFAR-10, and nothing of ipulaunch.
PLAIN = """
import json, sys
import numpy as np
import tensorflow as tf
records = np.fromfile(sys.argv[2], np.uint8).reshape(-1, 3073)
labels, images = records[:, 0], records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
loaded = tf.saved_model.load(sys.argv[1])  # TensorFlow 2.6 forgets the variables with it
serve = loaded.signatures["serving_default"]
size = serve.structured_input_signature[1]["input"].shape[0]
missing = -len(images) % size
images = np.concatenate([images, np.zeros((missing, 32, 32, 3), np.uint8)])
answers = [serve(input=tf.constant(batch))["output"].numpy() for batch in np.split(images, len(images) // size)]
guesses = np.concatenate(answers).argmax(axis=1)[: len(labels)]
ours = [name for name in sys.modules if name.startswith("ipulaunch")]
print(json.dumps({"right": int((guesses == labels).sum()), "of": len(labels), "size": size, "ours": ours}))
"""


def run(*words: str, env: Dict[str, str]) -> Any:
    """The result of a process, as JSON."""
    done = subprocess.run(words, env=env, capture_output=True, encoding="utf-8", timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout


@pytest.mark.core
def test_plain_tensorflow_finds_the_accuracy_that_validation_reported(
    own_environment: Dict[str, str], tmp_path: Path
) -> None:
    launcher = [sys.executable, "-m", "ipulaunch.launcher"]
    sizes = ["--samples", "64", "--validation-samples", "45"]
    run(*launcher, "data", "make", "cifar10", "--out", "set", *sizes, env=own_environment)
    small = ["--model", "toy_model_bn", "--num-epochs", "1", "--set", "data.n_train=64", "--set", "data.n_valid=45"]
    alone = ["--engine", "openmpi", "--num-instances", "1", "--run-dir", "trained"]
    run(*launcher, "cifar10", *small, "--data-dir", "set", *alone, env=own_environment)
    reported = json.loads(Path("trained", "summary.json").read_text())["metrics"]["val_accuracy"]

    exported = run(*launcher, "export", "trained", "--export-dir", "models", "--json", env=own_environment)
    assert (exported["path"], exported["warnings"]) == (str(tmp_path / "models" / "1"), [])
    assert exported["weights"]["run"] == str(tmp_path / "trained")
    (test_batch,) = tmp_path.glob("set/**/test_batch.bin")
    found = run(sys.executable, "-c", PLAIN, exported["path"], str(test_batch), env=own_environment)
    assert (found["of"], found["size"], found["ours"]) == (45, exported["batch_size"], [])
    assert found["right"] / 45 == pytest.approx(reported, abs=1e-9)


def test_the_sdk_exports_in_a_process_of_its_own(sdk_environment: Callable[[str], Dict[str, str]]) -> None:
    words = ["mnist", "--backend", "ipu", "--rehearsal", "--set", "model.name=toy_model", "--export-dir", "models"]
    done = subprocess.run(
        [sys.executable, "-m", "ipulaunch.workers.serving", *words],
        env=sdk_environment("3.1"), capture_output=True, encoding="utf-8", timeout=LONGEST_S, check=False,
    )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["making", "result"], done.stderr
    assert (events[1]["backend"], events[1]["input"]["dtype"]) == ("ipu", "uint8")
    assert len(list(Path("models", "1", "assets").iterdir())) == 1


def fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *events: Any, **more: Any) -> List[str]:
    """The options of an export that a fake process does, which reports these events."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -IS '{FAKE}' \"$@\"\n")
    path.chmod(0o755)
    monkeypatch.setenv("FAKE_TASK_SEEN", str(tmp_path / "seen.json"))
    monkeypatch.setenv("FAKE_TASK", json.dumps({"events": events, **more}))
    return ["export", "mnist", "--export-dir", "models", "--python", str(path)]


@pytest.mark.parametrize("hang", ["polite", "stubborn"])
@pytest.mark.parametrize("is_new", [True, False], ids=["a new directory", "another version"])
def test_ctrl_c_leaves_nothing(
    hang: str, is_new: bool, lifeline: Any, monkeypatch: pytest.MonkeyPatch, ipulaunch: Run, tmp_path: Path
) -> None:
    """The process is killed if it does not end, and the launcher removes what it has begun."""
    making = Path("models") if is_new else Path("models", ".2.4711")
    monkeypatch.setattr(data_tasks, "_GRACE_S", 0.2)
    events = [{"event": "making", "path": str(making)}, {"event": "progress", "what": "files", "done": 1, "total": 2}]
    words = fake_python(tmp_path, monkeypatch, *events, hang=hang)
    if not is_new:
        Path("models", "1").mkdir(parents=True)
        words += ["--model-version", "2"]

    def interrupted(self: Any, what: str, done: int, total: int) -> None:
        lifeline.wait_for(1)
        Path("models", ".2.4711").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(data_tasks.PlainProgress, "show", interrupted)
    assert ipulaunch(*words).code == 130
    assert lifeline.has_ended(600)
    assert list(tmp_path.glob("models/*")) == ([] if is_new else [tmp_path / "models" / "1"])
    assert (tmp_path / "models").exists() is not is_new


@pytest.mark.parametrize(
    ("event", "more", "code", "message"),
    [
        ({"event": "error", "message": "no", "hint": "do", "exit_code": 6}, {"exit_code": 6}, 6, "error: no\nhint: do"),
        (
            {"event": "progress", "what": "a", "done": 1, "total": 1},
            {"exit_code": 3, "stderr": "why\n"},
            7,
            "hint: why",
        ),
    ],
    ids=["an error that is ours", "another end"],
)
def test_an_export_that_fails_says_why(
    event: Dict[str, Any],
    more: Dict[str, Any],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    ipulaunch: Run,
    tmp_path: Path,
) -> None:
    found = ipulaunch(*fake_python(tmp_path, monkeypatch, event, **more))
    assert (found.code, found.out) == (code, "")
    assert message in found.err
