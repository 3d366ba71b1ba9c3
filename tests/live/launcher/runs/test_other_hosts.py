"""The moment in which other hosts are asked, before anything is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

SLOW_SSH = """#!/bin/sh
echo $$ > "$0.tmp" && mv "$0.tmp" "$0.pid"
exec sleep 3600
"""
LONGEST_S = 600.0


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        ("cosmoflow", signal.SIGTERM, 75),
        ("cosmoflow", signal.SIGUSR1, 75),
        ("cosmoflow", signal.SIGINT, 130),
        ("run", signal.SIGTERM, 130),
    ],
    ids=str,
)
def test_a_launch_that_is_stopped_while_it_asks_its_hosts(
    command: str, number: signal.Signals, code: int, tmp_path: Path, fake_mpirun: Path, own_environment: Dict[str, str]
) -> None:
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(SLOW_SSH)
    ssh.chmod(0o755)
    pid = ssh.with_name("ssh.pid")
    path = f"{ssh.parent}{os.pathsep}{own_environment['PATH']}"
    options = ["--pod", "4", "--hosts", "left", "--host-layout", "1x2", "--engine", "openmpi", "--run-dir", "run"]
    program = ["--", "prog"] if command == "run" else []
    process = subprocess.Popen(
        [sys.executable, "-m", "ipulaunch.launcher", command, *options, *program],
        cwd=tmp_path,
        env={**own_environment, "PATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + LONGEST_S
        while not pid.exists():
            assert process.poll() is None and time.monotonic() < deadline, "ssh was not asked"
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=LONGEST_S)
    finally:
        process.kill()
        process.communicate()
    assert not Path("/proc", pid.read_text().strip()).exists(), "ssh is left"
    assert process.returncode == code, said
    assert not (tmp_path / "run").exists()
    if code == 75:
        assert f"error: {number.name}: stopped before anything was started" in said


def put(directory: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command before all others."""
    path = directory / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")


def test_a_rehearsal_inside_a_job_starts_where_ssh_is_locked(
    tmp_path: Path, fake_mpirun: Path, ipulaunch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "ssh", "#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n", monkeypatch)
    options = ("--pod", "4", "--hosts", "nodea,nodeb", "--num-instances", "2", "--host-layout", "1x2")
    words = ("run", *options, "--engine", "openmpi", "--", "prog")
    assert ipulaunch(*words).code == 4
    code, _, err = ipulaunch(*words, env={"SLURM_JOB_ID": "4711"})
    assert code == 0, err
    assert "note: host nodea, host nodeb: not checked over ssh: Permission denied" in err


# Every host answers, and has a Python without ipulaunch.
BARE_SSH = """#!/bin/sh
echo 'ipulaunch-doctor {"version": "", "directory": true, "python": "3.8.1"}'
"""
REFUSING_POPRUN = """#!/bin/sh
echo "Partition p1 is not active" >&2
exit 1
"""


def test_a_poprun_that_refuses_is_not_blamed_on_its_hosts(
    tmp_path: Path, ipulaunch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "ssh", BARE_SSH, monkeypatch)
    put(tmp_path, "poprun", REFUSING_POPRUN, monkeypatch)
    options = ("--pod", "4", "--hosts", "nodea,nodeb", "--num-instances", "2", "--host-layout", "1x2")
    code, _, err = ipulaunch("run", *options, "--engine", "poprun", "--sdk-version", "3.3", "--", "prog")
    assert code == 7
    assert "the engine ended with exit code 1" in err and "Partition p1 is not active" in err
    assert "nodea is not ready" not in err
