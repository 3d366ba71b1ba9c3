"""`ipulaunch cancel`."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.settings.sections import Survival
from ipulaunch.launcher.schedulers import slurm
from ipulaunch.launcher.schedulers.tools import NoAnswer
from ipulaunch.launcher.supervise.claim import claim
from ipulaunch.launcher.supervise.endings import within_preemptions
from ipulaunch.launcher.supervise.verdict import Verdict

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("job", "command"),
    [
        ({"scheduler": "slurm", "id": "12"}, ["scancel", "12"]),
        ({"scheduler": "pbs", "id": "7.p"}, ["qdel", "7.p"]),
    ],
)
def test_cancel_by_id(job: Any, command: Any, make_run: Any, ipulaunch: Run, scheduler: Any, state_of: Any) -> None:
    path = make_run("a", job=job)
    code, out, _ = ipulaunch("cancel", "a")
    assert (code, out) == (0, f"cancelled {job['scheduler']} job {job['id']}\n")
    assert scheduler.calls[-1] == command
    assert json.loads((path / "job.json").read_text())["cancelled"]
    assert state_of("a") == "cancelled"


def test_job_that_has_ended_is_not_cancelled(make_run: Any, ipulaunch: Run, scheduler: Any) -> None:
    make_run("a", job={"scheduler": "slurm", "id": "12"})
    scheduler.says("squeue", "12|COMPLETED|n1|None")
    code, _, err = ipulaunch("cancel", "a")
    assert code == 2
    assert "slurm job 12 has ended: COMPLETED" in err
    assert [call[0] for call in scheduler.calls] == ["squeue"]


def test_job_is_cancelled_where_its_state_cannot_be_asked(
    make_run: Any, ipulaunch: Run, scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(words: List[str]) -> Any:
        raise NoAnswer(f"{words[0]} does not answer within 120 s")

    monkeypatch.setattr(slurm, "ask", hang)
    make_run("a", job={"scheduler": "slurm", "id": "12"})
    assert ipulaunch("cancel", "a").out == "cancelled slurm job 12\n"
    assert scheduler.calls == [["scancel", "12"]]


def test_cancel_without_the_commands_of_the_scheduler(make_run: Any, ipulaunch: Run, no_scheduler: None) -> None:
    make_run("a", job={"scheduler": "slurm", "id": "4711"})
    code, _, err = ipulaunch("cancel", "4711")
    assert code == 4
    assert err == "error: there is no scancel here\nhint: do this where the scheduler's commands are\n"


def test_refused_cancel_is_told(make_run: Any, ipulaunch: Run, scheduler: Any) -> None:
    make_run("a", job={"scheduler": "slurm", "id": "12"})
    scheduler.says("refuse", "Access/permission denied")
    code, _, err = ipulaunch("cancel", "a")
    assert code == 7
    assert "scancel refused to cancel job 12: Access/permission denied" in err


def test_run_of_this_machine_is_cancelled_through_its_launcher(
    make_run: Any, ipulaunch: Run, tmp_path: Path, state_of: Any
) -> None:
    path = make_run("a")
    assert "a is not running" in ipulaunch("cancel", "a").err
    code = f"""
import pathlib, time
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.settings.sections import Survival
from ipulaunch.launcher.supervise.claim import claim
with claim(RunDirectory(pathlib.Path({str(path)!r}))):
    print("ready", flush=True)
    time.sleep(3600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, encoding="utf-8") as launcher:
        try:
            assert launcher.stdout is not None
            assert launcher.stdout.readline() == "ready\n"
            assert state_of("a") == "running"
            assert ipulaunch("cancel", "a").out == f"asked process {launcher.pid} to end\n"
            assert launcher.wait(600) == -signal.SIGTERM
        finally:
            launcher.kill()
    assert state_of("a") != "running"
    verdict = within_preemptions(RunDirectory(path), Verdict(75, "stopped"), Survival())
    assert (verdict.exit_code, verdict.headline) == (130, "stopped")


def test_a_launcher_that_left_no_name_is_not_signalled(
    make_run: Any, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(make_run("a"))
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("nobody knows whom to signal"))
    with claim(run):
        for pid in (1, 0, -1):
            run.launcher.write_text(json.dumps({"host": platform.node(), "pid": pid}))
            code, out, err = ipulaunch("cancel", "a")
            assert (code, out) == (2, "")
            assert "another launcher works on a, and its launcher.json does not say which" in err
    assert not run.cancel.exists()
