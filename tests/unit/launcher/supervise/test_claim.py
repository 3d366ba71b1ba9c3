from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import time
from pathlib import Path
from typing import Callable, ContextManager, List

import pytest

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.supervise.claim import PATIENCE_S, Holder, claim, has_gone, holder_of, signed

Sign = Callable[[RunDirectory], ContextManager[None]]


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> List[float]:
    """How long somebody has slept, by a clock that nobody else moves."""
    slept: List[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(slept))
    return slept


@pytest.mark.parametrize(
    "sign",
    [pytest.param(claim, id="run"), pytest.param(lambda run: signed(run.launcher), id="session")],
)
def test_who_only_looks_keeps_nobody_away(
    sign: Sign, waits: List[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def busy(descriptor: int, kind: int) -> None:
        if len(waits) < 2:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        flock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", busy)
    run = RunDirectory(tmp_path)
    with sign(run):
        assert holder_of(run) == Holder(platform.node(), os.getpid())
    assert len(waits) == 2 and has_gone(run.launcher)


def test_a_session_without_its_lock_is_nobodys_to_remove(
    waits: List[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(descriptor: int, kind: int) -> None:
        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))

    monkeypatch.setattr(fcntl, "flock", busy)
    with signed(tmp_path / "session.json"):
        monkeypatch.undo()
        assert not has_gone(tmp_path / "session.json")
    assert sum(waits) == pytest.approx(PATIENCE_S, abs=0.1)


def test_a_run_has_one_launcher_at_a_time(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert holder_of(run) is None
    with claim(run):
        assert holder_of(run) == Holder(platform.node(), os.getpid())
        who = f"process {os.getpid()} on {platform.node()} works on"
        with pytest.raises(UsageError, match=who) as error, claim(run):
            pass
        assert "ipulaunch cancel" in error.value.hint
    assert holder_of(run) is None
    with claim(run):
        assert json.loads(run.launcher.read_text())["pid"] == os.getpid()


def test_the_record_of_a_launcher_that_has_gone_claims_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.launcher.write_text('{"host": "elsewhere", "pid": 1}')
    assert holder_of(run) is None
    with claim(run):
        pass


def test_a_launcher_of_this_host_that_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)
    assert not has_gone(run.launcher)
    with claim(run):
        assert not has_gone(run.launcher)
    assert has_gone(run.launcher)

    def flock(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", flock)  # where there are no locks, nobody can tell
    assert (has_gone(run.launcher), holder_of(run)) == (False, None)
    monkeypatch.undo()
    run.launcher.write_text('{"host": "elsewhere", "pid": 12}')
    assert not has_gone(run.launcher)


@pytest.mark.parametrize(
    "text", ["", "[", "{}", '{"host": "", "pid": 12}', '{"host": "a", "pid": 1}', '{"host": "a", "pid": -1}']
)
def test_a_damaged_record_still_claims(text: str, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with claim(run):
        run.launcher.write_text(text)
        holder = holder_of(run)
        assert holder is not None and not holder.is_known and not holder.is_here
        with pytest.raises(UsageError, match="another launcher works on"), claim(run):
            pass


def test_a_run_that_cannot_be_written_cannot_be_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)

    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(NotReadyError, match="cannot be written: No space left on device"), claim(run):
        pass
    monkeypatch.undo()
    run.launcher.unlink()
    run.launcher.mkdir()
    with pytest.raises(NotReadyError, match="cannot be written: Is a directory"), claim(run):
        pass


def test_an_error_while_a_run_is_claimed_is_not_one_of_the_claim(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of the body"), claim(RunDirectory(tmp_path)):
        raise OSError("of the body")
