from __future__ import annotations

import faulthandler
import os
import queue
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import Staging
from ipulaunch.workers.lifecycle.heartbeat import Heartbeat
from ipulaunch.workers.lifecycle.records import Records

Make = Callable[[int, float], Heartbeat]
MakeRecords = Callable[[int], Records]
HOUR_S = 3600.0
LONGEST_S = 600.0  # for a thread that beats a hundred times a second, on a busy machine


@pytest.fixture()
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


@pytest.fixture()
def records(run: RunDirectory) -> Iterator[MakeRecords]:
    """The records of an instance."""
    made: List[Records] = []

    def make(instance: int) -> Records:
        made.append(Records(run, instance))
        return made[-1]

    yield make
    for one in made:
        one.done({})


@pytest.fixture()
def ends() -> queue.Queue[str]:
    """Why instances have ended."""
    return queue.Queue()


@pytest.fixture()
def make(records: MakeRecords, ends: Any) -> Iterator[Make]:
    """A heart that beats a hundred times a second, and ends nothing but itself."""
    made: List[Heartbeat] = []

    def make(instance: int, stall_timeout_s: float) -> Heartbeat:
        heartbeat = Heartbeat(records(instance), stall_timeout_s, interval_s=0.01, later_s=0.1, end=ends.put)
        made.append(heartbeat)
        heartbeat.start()
        return heartbeat

    yield make
    for heartbeat in made:
        heartbeat.ended.set()
        for thread in heartbeat.threads:
            thread.join(LONGEST_S)
    faulthandler.cancel_dump_traceback_later()


def test_an_instance_that_only_waits_still_shows_life(run: RunDirectory, make: Make, ends: Any) -> None:
    make(0, HOUR_S)
    os.utime(run.heartbeat(0), (0, 0))
    deadline = time.monotonic() + LONGEST_S
    while not run.heartbeat(0).stat().st_mtime:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ends.empty()


def test_an_instance_that_nobody_ends_ends_itself(make: Make, ends: Any) -> None:
    since = time.monotonic()
    make(0, 0.5)
    assert "no progress for" in ends.get(timeout=LONGEST_S)
    assert time.monotonic() - since >= 0.6  # later than the launcher would


def test_own_progress_is_progress(make: Make, ends: Any) -> None:
    heartbeat = make(0, HOUR_S)
    heartbeat.last -= HOUR_S / 2
    heartbeat.progress()
    assert time.monotonic() - heartbeat.last < HOUR_S / 2
    assert ends.empty()


def test_the_progress_of_others_is_progress(
    records: MakeRecords, make: Make, ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instance 0 may stage data for an hour, say, while all others wait for it."""
    monkeypatch.setattr("ipulaunch.workers.lifecycle.heartbeat._LOOKS", 1e6)  # at the others, at every beat
    others, heartbeat = records(0), make(1, HOUR_S)
    deadline = time.monotonic() + LONGEST_S
    heartbeat.last = long_ago = time.monotonic() - HOUR_S / 2
    while heartbeat.last == long_ago:
        assert time.monotonic() < deadline
        others.event(Staging(1, 2))
        time.sleep(0.01)
    assert ends.empty()
    while ends.empty():  # the last event may be seen after the first time
        assert time.monotonic() < deadline
        heartbeat.last = time.monotonic() - 2 * HOUR_S
        time.sleep(0.01)
    assert "no progress for" in ends.get()


def test_an_instance_that_a_later_attempt_has_replaced_ends_and_leaves_its_heartbeat_alone(
    run: RunDirectory, records: MakeRecords, make: Make, ends: Any, tmp_path: Path
) -> None:
    make(0, HOUR_S)
    run.instance(0).rename(tmp_path / "earlier")
    records(0)
    run.heartbeat(0).touch()
    os.utime(run.heartbeat(0), (0, 0))
    assert "moved away" in ends.get(timeout=LONGEST_S)
    assert run.heartbeat(0).stat().st_mtime == 0
