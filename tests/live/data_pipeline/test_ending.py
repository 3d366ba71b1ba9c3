from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from ipulaunch.data_pipeline.ending import InterpreterEnds, _Calls

# Reading gives up Python's lock and takes it back many times: most such programs hung. All of them are forks of one
# process, which has imported TensorFlow and not used it yet; each ends as any program does.
PROGRAM = """
import os, sys
import numpy as np
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.source import ArraySource
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.topology import Batch

class Busy(ArraySource):
    samples = 1000
    inputs, targets = (np.float64, (1,)), (np.int64, ())
    zeros = os.open("/dev/zero", os.O_RDONLY)

    def load(self, ids):
        for _ in range(400):
            os.read(self.zeros, 1 << 17)
        return np.zeros((len(ids), 1)), ids

def first_of_a_stream():
    alone = range(1)
    stream = training_stream(
        Busy(), Batch(1, 1, 1), alone, shuffle=Shuffle(0), updates=range(10**9), by_replica=True, threads=2
    )
    batches = iter(stream)
    next(batches)
    return batches

children = {}
for way in sys.argv[1:]:
    child = os.fork()
    if not child:
        batches = first_of_a_stream()
        if way == "in a cycle":
            cycle = [batches]
            cycle.append(cycle)
            del cycle, batches
        print(way, "done", flush=True)
        break  # to the end of the program
    children[child] = way
else:
    for child, way in children.items():
        _, status = os.waitpid(child, 0)
        print(way, "ended with", status, flush=True)
"""


def test_a_program_ends_while_its_stream_is_alive() -> None:
    ways = ["held", "in a cycle"] * 2
    words = [sys.executable, "-c", PROGRAM, *ways]
    # In a group of its own, so that none is left where one hangs.
    program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        output, errors = program.communicate(timeout=600)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()
    expected = [f"{way} {end}" for way in ways for end in ("done", "ended with 0")]
    assert sorted(output.splitlines()) == sorted(expected), errors[-2000:]


def test_calls_are_refused_from_the_end_on() -> None:
    calls = _Calls()
    calls.begin()
    ending = threading.Thread(target=calls.end)
    ending.start()
    while not calls.is_over:
        pass
    with pytest.raises(InterpreterEnds):
        calls.begin()
    assert ending.is_alive()  # one is still running
    calls.finish()
    ending.join(600)
    assert not ending.is_alive()


def test_nothing_is_waited_for_where_nothing_was_called() -> None:
    calls = _Calls()
    calls.end()
    assert calls.is_over
