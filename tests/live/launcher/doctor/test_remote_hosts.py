from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Dict, List

import pytest

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.launcher.doctor.diagnosis import Check, Diagnosis, UsedDirectory
from ipulaunch.launcher.doctor.environment import Environment, this_machine
from ipulaunch.launcher.doctor.remote_hosts import check_hosts, require_hosts, unready_hosts

# An ssh whose hosts are all this machine; what is special about each is in its name.
FAKE_SSH = """#!/bin/sh
while [ "$1" != "${1#-}" ]; do
    case "$1" in -o) shift 2 ;; *) shift ;; esac
done
case "$1" in
    locked) echo "locked: Permission denied (publickey)." >&2; exit 255 ;;
    bare) exec env PATH=/nowhere /bin/sh -c "exec /nowhere/python" ;;
esac
exec /bin/sh -c "$2"
"""


@pytest.fixture()
def real_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(FAKE_SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}{os.pathsep}{os.environ['PATH']}")
    return this_machine()


def by_host(checks: List[Check]) -> Dict[str, Dict[str, str]]:
    found: Dict[str, Dict[str, str]] = {}
    for check in checks:
        found.setdefault(check.group[len("host ") :], {})[check.name] = check.state
    return found


def test_hosts_that_are_really_asked(real_environment: Environment, tmp_path: Path) -> None:
    data = tmp_path / "the data"
    data.mkdir()
    reads = (UsedDirectory("data", data, "--data-dir"),)
    diagnosis = Diagnosis(hosts=("good", "locked", "bare"), directory=tmp_path, reads=reads, python=sys.executable)
    found = by_host(check_hosts(diagnosis, real_environment))
    assert found == {
        "good": dict.fromkeys(("ssh", "Python", "ipulaunch", "run directory", "data", "clock"), "ok"),
        "locked": {"ssh": "missing"},
        "bare": {"ssh": "ok", "Python": "missing"},
    }
    assert not list(tmp_path.glob(".ipulaunch-doctor-*"))


def test_a_launch_is_refused_where_a_host_is_not_ready(real_environment: Environment, tmp_path: Path) -> None:
    diagnosis = Diagnosis(engine="openmpi", directory=tmp_path)
    require_hosts(diagnosis._replace(hosts=("good",)), real_environment)
    with pytest.raises(NotReadyError, match=r"host locked: ssh: .*Permission denied") as refused:
        require_hosts(diagnosis._replace(hosts=("good", "locked")), real_environment)
    assert "ssh-copy-id locked" in refused.value.hint


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "PBS_NODEFILE"])
def test_inside_a_job_ssh_is_not_needed(
    name: str, real_environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "4711")
    diagnosis = Diagnosis(engine="openmpi", hosts=("good", "locked"), python=sys.executable, directory=tmp_path)
    said = "host locked: not checked over ssh: locked: Permission denied (publickey)."
    assert require_hosts(diagnosis, this_machine()) == [said]
    assert unready_hosts(diagnosis, this_machine()) == {}
    with pytest.raises(NotReadyError, match="host bare: Python"):  # one that is reached is measured
        require_hosts(diagnosis._replace(hosts=("bare", "locked")), this_machine())


def test_hosts_that_could_not_take_part_are_told_with_the_first_reason(
    real_environment: Environment, tmp_path: Path
) -> None:
    hosts = ("localhost", "fine", "locked", "bare")
    diagnosis = Diagnosis(engine="openmpi", hosts=hosts, python=sys.executable, directory=tmp_path)
    wrong = unready_hosts(diagnosis, real_environment)
    assert sorted(wrong) == ["bare", "locked"]
    assert wrong["locked"] == "does not answer (locked: Permission denied (publickey).)"
    assert wrong["bare"].startswith("is not ready: Python (")


@pytest.mark.parametrize(("engine", "is_own"), [("poprun", False), ("poprun", True), ("openmpi", True)])
def test_of_poprun_and_of_own_programs_only_silent_hosts_are_blamed(
    engine: str, is_own: bool, real_environment: Environment, tmp_path: Path
) -> None:
    hosts = ("fine", "locked", "bare")
    diagnosis = Diagnosis(engine=engine, hosts=hosts, python=sys.executable, directory=tmp_path, is_own_program=is_own)
    assert sorted(unready_hosts(diagnosis, real_environment)) == ["locked"]
