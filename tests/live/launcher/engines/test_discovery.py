from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Optional

import pytest

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.poprun_table import Sdk
from ipulaunch.launcher.engines.registry import choose_engine


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture()
def bin_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in front of the PATH, and a Python that has no mpirun beside it."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    return tmp_path / "bin"


@pytest.mark.parametrize(
    ("text", "version", "major"),
    [
        ("mpirun (Open MPI) 5.0.11", "5.0.11", 5),
        ("mpirun (Open MPI) 4.1.8\n\nReport bugs to ...", "4.1.8", 4),
        ("prterun (Open MPI) 5.1.0a1", "5.1.0", 5),
    ],
)
def test_version_of_open_mpi(text: str, version: str, major: int, bin_directory: Path) -> None:
    path = _script(bin_directory / "mpirun", f"echo '{text}'")
    found = discovery.open_mpi()
    assert (found.path, found.version, found.major) == (str(path), version, major)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param("echo 'HYDRA build details: Version: 4.0.3'", "is not Open MPI", id="mpich"),
        pytest.param("echo 'mpirun (Open MPI) 3.1.4'", "4 and 5 are supported", id="open-mpi-3"),
        pytest.param("exit 1", "is not Open MPI", id="silent"),
    ],
)
def test_other_mpirun_is_refused(script: str, said: str, bin_directory: Path) -> None:
    path = _script(bin_directory / "mpirun", script)
    with pytest.raises(NotReadyError, match=said) as caught:
        discovery.open_mpi()
    assert str(path) in caught.value.message


def test_mpirun_that_does_not_start_is_refused(bin_directory: Path) -> None:
    _script(bin_directory / "mpirun", "").write_text("#!/nowhere/sh\n")
    with pytest.raises(NotReadyError, match="does not start"):
        discovery.open_mpi()


def test_no_mpirun(bin_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bin_directory))
    with pytest.raises(NotReadyError) as caught:
        discovery.open_mpi()
    assert "ipulaunch[cpu]" in caught.value.hint


def test_mpirun_beside_our_python_comes_first(bin_directory: Path) -> None:
    _script(bin_directory / "mpirun", "")
    beside = _script(Path(sys.executable).with_name("mpirun"), "")
    assert discovery.find_mpirun() == str(beside)


def test_file_that_cannot_be_run_is_passed_over(bin_directory: Path) -> None:
    _script(bin_directory / "poprun", "").chmod(0o644)
    assert discovery.find_poprun() is None
    (bin_directory / "poprun").unlink()
    (bin_directory / "poprun").mkdir()
    assert discovery.find_poprun() is None


def test_directories_that_cannot_be_looked_at_are_passed_over(
    bin_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of another user, which this test may look at where it is root."""
    monkeypatch.setenv("PATH", f"/{'x' * 300}", prepend=os.pathsep)
    assert discovery.find_poprun() is None
    path = _script(bin_directory / "poprun", "")
    assert discovery.find_poprun() == str(path)


@pytest.mark.parametrize(
    ("enabled", "says", "sdk"),
    [
        pytest.param("/opt/poplar_sdk-ubuntu_20_04-3.3.0+1403-208993bbb7", None, (3, 3), id="directory"),
        pytest.param(
            "/opt/poplar_sdk-ubuntu_18_04-2.5.1+1001-64add8f33d/poplar-x", None, (2, 5), id="directory-within"
        ),
        pytest.param("", "PopRun 3.1.0 (abc)", (3, 1), id="poprun"),
        pytest.param("/opt/poplar_sdk-3.0.0+1", "PopRun 3.1.0", (3, 0), id="directory-before-poprun"),
        pytest.param("/opt/poplar", None, (3, 4), id="directory-without-a-number"),
        pytest.param("", "who knows", (3, 4), id="poprun-without-a-number"),
        pytest.param("", "PopRun 9.0.0", (3, 4), id="newer-than-we-know"),
        pytest.param("", None, (3, 4), id="nothing"),
    ],
)
def test_sdk_that_is_enabled(enabled: str, says: Optional[str], sdk: Sdk, bin_directory: Path) -> None:
    if says is not None:
        _script(bin_directory / "poprun", f"echo '{says}'")
    assert discovery.sdk_here({"POPLAR_SDK_ENABLED": enabled}) == sdk


@pytest.mark.parametrize(
    ("has_poprun", "asked", "dry_run", "name", "is_here"),
    [
        pytest.param(True, None, False, "poprun", True, id="pod"),
        pytest.param(True, "openmpi", False, "openmpi", False, id="rehearsal-on-a-pod"),
        pytest.param(False, None, False, "openmpi", False, id="laptop"),
        pytest.param(False, None, True, "poprun", False, id="dry-run-on-a-laptop"),
        pytest.param(False, "poprun", False, "poprun", False, id="poprun-by-force"),
    ],
)
def test_choice_of_engine(
    has_poprun: bool,
    asked: Optional[str],
    dry_run: bool,
    name: str,
    is_here: bool,
    bin_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(bin_directory))
    if has_poprun:
        _script(bin_directory / "poprun", "")
    engine = choose_engine(asked, dry_run)
    assert (engine.name, engine.is_here) == (name, is_here)
    assert engine.backend == {"poprun": "ipu", "openmpi": "cpu"}[name]
