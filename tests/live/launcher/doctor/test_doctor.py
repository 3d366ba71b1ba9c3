from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ipulaunch.launcher.doctor import environment as worlds
from ipulaunch.launcher.doctor.environment import Output

FAKES = Path(__file__).parents[3] / "fakes"
STANDIN = Path(__file__).parents[3] / "standin" / "site"


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        pytest.param(["-c", "print('x')"], 0, "", id="ends"),
        pytest.param(["-c", "import sys; sys.exit(3)"], 3, "", id="fails"),
        pytest.param(["-c", "import time; time.sleep(3600)"], None, "no answer within", id="hangs"),
        pytest.param(["-c", "x\0y"], None, "does not start", id="zero-byte"),
    ],
)
def test_a_command_has_a_limit(words: List[str], code: Any, err: str) -> None:
    output = worlds._run([sys.executable, "-S", *words], 0.5 if "sleep" in words[1] else 600)
    assert (output.code, err in output.err) == (code, True)


def test_a_command_that_leaves_something_behind_does_not_hold_us_up() -> None:
    stay = "[sys.executable, '-c', 'import time; time.sleep(3600)']"
    code = f"import subprocess, sys; print(subprocess.Popen({stay}).pid)"
    output = worlds._run([sys.executable, "-S", "-c", code], 600)
    os.kill(int(output.out), signal.SIGKILL)  # it is still there, and nobody has waited for it


def test_a_program_that_is_not_there() -> None:
    assert worlds._run(["/no/program"], 1) == Output(None, "", "does not start: No such file or directory")


# A TensorFlow that loads at once, where the test is not of TensorFlow; with what an SDK and Estimators add.
LIGHT = {
    "tensorflow/__init__.py": """
__version__ = "2.15.0"
class keras:
    __version__ = "2.15.0"
    class Model:
        __module__ = "tensorflow.keras"
class estimator:
    class Estimator:
        pass
""",
    "tensorflow/python/__init__.py": "",
}
SDK = {"tensorflow/python/ipu.py": "", "popdist.py": ""}


@pytest.fixture()
def light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts the light TensorFlow before the real one, for the Python that the doctor asks."""

    def put(**more: str) -> None:
        for name, text in {**LIGHT, **more}.items():
            path = tmp_path / "light" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "light"))

    return put


def assert_engines(outcome: Any, code: int, engines: Dict[str, bool]) -> None:
    data = json.loads(outcome.out)
    assert (outcome.code, {name: engine["ready"] for name, engine in data["engines"].items()}) == (code, engines), data


@pytest.mark.parametrize(("engine", "code", "is_ready"), [("poprun", 4, False), ("openmpi", 0, True)])
def test_a_plan_is_judged_by_its_engine(
    engine: str, code: int, is_ready: bool, light: Callable[..., None], ipulaunch: Callable[..., Any], mpirun: str
) -> None:
    light()
    outcome = ipulaunch("doctor", "cosmoflow", "--pod", "16", "--engine", engine, "--json")
    assert_engines(outcome, code, {engine: is_ready})


def test_this_very_machine(ipulaunch: Callable[..., Any], mpirun: str) -> None:
    """Everything is really asked here, where there is no SDK, and Open MPI and TensorFlow are."""
    outcome = ipulaunch("doctor", "--json", env={"MY_SECRET_TOKEN": "canary-5f1e"})
    assert_engines(outcome, 0, {"poprun": False, "openmpi": True})
    data = json.loads(outcome.out)
    assert {check["state"] for check in data["checks"]} <= {"ok", "warning", "missing"}
    assert all(check["fix"] for check in data["checks"] if check["state"] != "ok")
    assert not [check for check in data["checks"] if "could not be checked" in check["found"]]
    assert "canary-5f1e" not in outcome.out + outcome.err


def test_a_machine_with_the_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ipulaunch: Callable[..., Any]) -> None:
    """The stand-in of the SDK and the strict poprun in place: a plan for IPUs can run."""
    sdk = tmp_path / "poplar_sdk-ubuntu_20_04-3.4.0+1507"
    (sdk / "bin").mkdir(parents=True)
    shutil.copy(FAKES / "poprun", sdk / "bin" / "poprun")
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(sdk / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    monkeypatch.setenv("POPLAR_SDK_ENABLED", str(sdk))
    monkeypatch.setenv("IPU_STANDIN_SDK", "3.4")
    monkeypatch.setenv("PYTHONPATH", str(STANDIN))
    outcome = ipulaunch("doctor", "cosmoflow", "--pod", "16", "--host-layout", "8x16", "--json")
    data = json.loads(outcome.out)
    states = {check["name"]: check["state"] for check in data["checks"] if check["group"] == "poprun, on IPUs"}
    assert states == dict.fromkeys(("SDK", "poprun", "popdist", "TensorFlow for IPUs"), "ok"), data
    assert (outcome.code, data["plan"]["engine"], data["plan"]["instances"]) == (0, "poprun", 16)


@pytest.fixture()
def with_sdk(monkeypatch: pytest.MonkeyPatch, fake_mpirun: Path, light: Callable[..., None]) -> None:
    """The strict poprun and what looks like the SDK's TensorFlow, so that plans for IPUs can run here."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(FAKES), str(Path(sys.executable).parent), os.environ["PATH"]]))
    light(**SDK)


def test_compiling_alone_needs_no_controller(with_sdk: None, tmp_path: Path, ipulaunch: Callable[..., Any]) -> None:
    words = ["doctor", "cosmoflow", "--pod", "4", "--compile-only", "--vipu-server-host", "127.0.0.1"]
    words += ["--vipu-server-port", "1", "--engine", "poprun", "--json", "--executable-cache-path"]
    code, out, err = ipulaunch(*words, str(tmp_path / "cache"))
    assert code == 0, err
    states = {check["name"]: check["state"] for check in json.loads(out)["checks"]}
    assert (states["executable cache"], "V-IPU server" in states) == ("ok", False)
    (tmp_path / "file").touch()
    code, out, err = ipulaunch(*words, str(tmp_path / "file"))
    assert (code, "missing: executable cache" in err) == (4, True), err


def test_an_estimator_to_test_needs_its_directory(with_sdk: None, ipulaunch: Callable[..., Any]) -> None:
    words = ["doctor", "cifar10", "--ipus", "1", "--api", "estimator", "--test-only", "--engine", "poprun"]
    code, _, err = ipulaunch(*words, "--synthetic-data", "cpu", "--model-dir", "nowhere")
    assert (code, "model directory" in err) == (4, True), err
