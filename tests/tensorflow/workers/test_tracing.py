from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.workers.feeds import tracing
from ipulaunch.workers.lifecycle.records import Records

HEAD = "epoch,update,step,replica,sample"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


@pytest.fixture
def trace(run: RunDirectory) -> Iterator[Any]:
    """What traces samples, of which number 3 cannot be read."""
    instance = SimpleNamespace(
        settings=SimpleNamespace(training=SimpleNamespace(trace_samples=True)),
        run=run,
        index=0,
        records=Records(run, 0),
    )
    source = SimpleNamespace(bad={3: DataError("part-0, record 3: damaged")})
    with tracing(instance, source) as trace:  # type: ignore[arg-type]
        yield trace
    instance.records.done({})


def replacements(run: RunDirectory) -> List[Any]:
    events = [json.loads(line) for line in run.events(0).read_text().splitlines()]
    return [(event["sample"], event["by"], event["message"]) for event in events if event["event"] == "replacement"]


def test_what_was_read_is_on_disk_at_once(run: RunDirectory, trace: Any) -> None:
    assert run.samples(0).read_text() == f"{HEAD}\n"
    trace(0, 7, 1, 2, np.array([5, 6]), np.array([5, 6]))
    assert run.samples(0).read_text() == f"{HEAD}\n0,7,1,2,5\n0,7,1,2,6\n"
    assert replacements(run) == []


def test_a_replacement_is_recorded_once(run: RunDirectory, trace: Any) -> None:
    for update in range(2):
        trace(0, update, 0, 0, np.array([3, 6]), np.array([4, 6]))
    assert run.samples(0).read_text().splitlines()[1:] == ["0,0,0,0,4", "0,0,0,0,6", "0,1,0,0,4", "0,1,0,0,6"]
    assert replacements(run) == [(3, 4, "part-0, record 3: damaged")]


def test_a_sample_that_nobody_found_bad_is_not_recorded_as_replaced(run: RunDirectory, trace: Any) -> None:
    trace(0, 0, 0, 0, np.array([5]), np.array([6]))
    assert run.samples(0).read_text().splitlines()[1:] == ["0,0,0,0,6"]
    assert replacements(run) == []
