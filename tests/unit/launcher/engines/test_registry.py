from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from ipulaunch.launcher.doctor import report
from ipulaunch.launcher.doctor.diagnosis import Check
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.discovery import ipus_in_sight  # as it is: tests of the launcher see no IPUs
from ipulaunch.launcher.engines.engine import MPI, POPRUN, SDK
from ipulaunch.launcher.engines.registry import ENGINES, default_engine, engine_class, is_default

Run = Callable[..., Any]
SEEN = "there is /dev/ipu0"
PROGRAM = ("run", "--pod", "4", "--host-layout", "1x4")
WORKLOAD = ("cosmoflow", "--pod", "4", "--host-layout", "1x4")


@pytest.fixture()
def at_ipus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of a POD whose SDK is not enabled, and without Open MPI: a rehearsal ends with that."""
    monkeypatch.setattr(discovery, "ipus_in_sight", lambda environ: SEEN)
    monkeypatch.setattr(discovery, "find_mpirun", lambda: None)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_has_the_name_of_its_module_and_needs_that_the_doctor_knows(name: str) -> None:
    assert engine_class(name).name == name
    assert set(engine_class(name).needs) <= {SDK, POPRUN, MPI} and engine_class(name).needs


def test_each_backend_has_a_default() -> None:
    assert {backend: default_engine(backend) for backend in ("ipu", "cpu")} == {"ipu": "poprun", "cpu": "openmpi"}
    assert [name for name in ENGINES if not is_default(name)] == ["direct"]


@pytest.mark.parametrize(
    ("environ", "device", "tool", "seen"),
    [
        pytest.param({}, "", "", "", id="laptop"),
        pytest.param({"POPLAR_SDK_ENABLED": "/opt/sdk"}, "", "", "POPLAR_SDK_ENABLED is set", id="sdk"),
        pytest.param({"POPLAR_SDK_ENABLED": ""}, "", "", "", id="sdk-disabled"),
        pytest.param({"IPUOF_VIPU_API_HOST": "h"}, "", "", "IPUOF_VIPU_API_HOST is set", id="fabric"),
        pytest.param({}, "ipu0", "", "there is {}/dev/ipu0", id="device"),
        pytest.param({}, "null", "", "", id="other-device"),
        pytest.param({}, "", "vipu", "there is {}/bin/vipu", id="vipu"),
        pytest.param({}, "", "gc-info", "there is {}/bin/gc-info", id="gc-info"),
        pytest.param({}, "", "gcc", "", id="other-tool"),
    ],
)
def test_what_shows_an_ipu_system(environ: Dict[str, str], device: str, tool: str, seen: str, tmp_path: Path) -> None:
    for name in ("dev", "bin"):
        (tmp_path / name).mkdir()
    if device:
        (tmp_path / "dev" / device).touch()
    if tool:
        (tmp_path / "bin" / tool).touch(mode=0o755)
    found = ipus_in_sight({**environ, "PATH": str(tmp_path / "bin")}, tmp_path / "dev")
    assert found == seen.format(tmp_path)


@pytest.mark.parametrize(
    ("words", "how"),
    [
        pytest.param(WORKLOAD, "--engine openmpi or --rehearsal", id="workload"),
        pytest.param((*WORKLOAD, "--no-rehearsal"), "--engine openmpi or --rehearsal", id="full-settings"),
        pytest.param((*PROGRAM, "--", "true"), "--engine openmpi", id="program"),
    ],
)
def test_nothing_is_rehearsed_silently_beside_ipus(words: Any, how: str, ipulaunch: Run, at_ipus: None) -> None:
    code, out, err = ipulaunch(*words)
    assert (code, out) == (4, "")
    assert f"this machine belongs to an IPU system ({SEEN}), and poprun is not on the PATH" in err
    assert f"hint: enable the SDK: source <sdk>/enable.sh; to rehearse, give {how}\n" in err


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((*WORKLOAD, "--engine", "openmpi"), id="engine"),
        pytest.param((*WORKLOAD, "--rehearsal"), id="rehearsal"),
        pytest.param(("mnist", "--no-use-ipu"), id="switch"),
        pytest.param((*PROGRAM, "--engine", "openmpi", "--", "true"), id="program"),
    ],
)
def test_a_rehearsal_that_is_asked_for_is_beside_ipus_as_elsewhere(words: Any, ipulaunch: Run, at_ipus: None) -> None:
    code, _, err = ipulaunch(*words)
    assert (code, "there is no mpirun here" in err) == (4, True)


@pytest.mark.parametrize("words", [WORKLOAD, ("plan", *WORKLOAD), (*PROGRAM, "true")], ids=["run", "plan", "program"])
def test_beside_ipus_lines_are_printed_as_elsewhere(words: Any, ipulaunch: Run, at_ipus: None) -> None:
    more = () if words[0] == "plan" else ("--dry-run",)
    assert ipulaunch(*words[:3], *more, *words[3:]).code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(WORKLOAD, 4, id="workload"),
        pytest.param(("program", *WORKLOAD[1:]), 4, id="program"),
        pytest.param(WORKLOAD[1:], 4, id="any"),
        pytest.param((*WORKLOAD, "--rehearsal"), 0, id="rehearsal"),
        pytest.param((*WORKLOAD, "--engine", "openmpi"), 0, id="engine"),
    ],
)
def test_beside_ipus_the_doctor_looks_at_what_would_start(
    words: Any, code: int, ipulaunch: Run, at_ipus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = Check("poprun, on IPUs", "poprun", "missing", "not on the PATH", "enable it", ("poprun",))
    monkeypatch.setattr(report, "diagnose", lambda case, world: [lacking])
    found = ipulaunch("doctor", *words)
    engine = "poprun" if code else "openmpi"
    assert found.code == code
    assert f"on pod4 with {engine}, " in found.out.splitlines()[-1]


@pytest.mark.parametrize("flag", ["--hosts", "--host", "-H"])
def test_hosts_are_also_named_as_poprun_names_them(flag: str, ipulaunch: Run) -> None:
    words = ("cosmoflow", "--pod", "128", flag, "host[0-1]", "--dry-run")
    code, out, _ = ipulaunch(*words)
    assert (code, shlex.split(out)[1]) == (0, "--host=host[0-1]")
