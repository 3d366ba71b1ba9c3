"""Where the time of a training goes, by a clock that only the source of its samples moves."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Tuple

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import plan_of
from fixtures.trainings import LONGEST_S, TINY

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.data_pipeline.sources.source import ArraySource
from ipulaunch.topology import Batch
from ipulaunch.workers import run as run_module
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest
from ipulaunch.workers.run import run_instance

SLOW_S = 10.0  # for a micro-batch


class Clock:
    """Stands still, but for what the source does while an update waits for it."""

    def __init__(self) -> None:
        self.now, self.readings, self.changed = 0.0, 0, threading.Condition()

    def read(self) -> np.ndarray:
        """In an update: before it asks for a micro-batch, and when it has it."""
        with self.changed:
            self.readings += 1
            self.changed.notify_all()
            return np.array(self.now)

    def pass_when_read(self, readings: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.readings >= readings, LONGEST_S)
            self.now += SLOW_S


class SlowSource(ArraySource):
    """Makes a micro-batch when the update has asked for it; validation always does, before it comes to its end."""

    inputs, targets = (np.int16, (8, 8, 8, 4)), (np.float32, (4,))

    def __init__(self, clock: Clock, samples: int, is_training: bool) -> None:
        super().__init__()
        self.clock, self.samples, self.is_training, self.made = clock, samples, is_training, 0

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        self.clock.pass_when_read(2 * self.made + 1 if self.is_training else 0)
        self.made += 1
        return np.ones((len(ids), 8, 8, 8, 4), np.int16), np.zeros((len(ids), 4), np.float32)


def test_a_slow_source_is_time_for_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = Clock()
    sources = {"train": SlowSource(clock, 17, True), "validation": SlowSource(clock, 5, False)}
    monkeypatch.setattr(run_module, "make_sources", lambda *given, **more: sources)
    monkeypatch.setattr(tf, "timestamp", lambda: tf.ensure_shape(tf.numpy_function(clock.read, [], tf.float64), []))
    settings: Any = TINY
    plan, directory = plan_of(Batch(1, 2, 2)), RunDirectory(tmp_path)
    backend, records = CpuBackend(settings, plan, 0, Alone()), Records(directory, 0)
    backend.times.clock = lambda: clock.now
    stop = StopRequest(directory, 0, Alone())
    summary = run_instance(Instance(Job("cosmoflow", "cpu", settings), plan, 0, backend, directory, records, 1, stop))
    records.done(summary)
    events = [json.loads(line) for line in directory.events(0).read_text().splitlines()]
    waits = [event["seconds"] for event in events if event["event"] == "times"]
    # 2 epochs of 4 updates, each with 2 steps of 2 replicas; then 2 checkpoints on 3 steps of 2 replicas.
    assert waits == [{"data": 16 * SLOW_S}] * 2 + [{}, {"validation": 12 * SLOW_S}]
    totals = {part: seconds for part, seconds in summary["times_s"].items() if seconds}
    assert totals == {"data": 32 * SLOW_S, "validation": 12 * SLOW_S} and sum(totals.values()) == clock.now
