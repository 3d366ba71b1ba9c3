from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ipulaunch.data_pipeline.ending import InterpreterEnds, _Calls

# Reading gives up Python's lock and takes it back many times: most such programs hung.
PROGRAM = """
import os, sys
import numpy as np
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.source import ArraySource
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place

class Busy(ArraySource):
    samples = 1000
    inputs, targets = (np.float64, (1,)), (np.int64, ())
    zeros = os.open("/dev/zero", os.O_RDONLY)

    def load(self, ids):
        for _ in range(400):
            os.read(self.zeros, 1 << 17)
        return np.zeros((len(ids), 1)), ids

alone = Place(0, 1, 0, 1, 0, 1, 1, 1)
stream = training_stream(
    Busy(), Batch(1, 1, 1), alone, shuffle=Shuffle(0), updates=range(10**9), by_replica=True, threads=2
)
batches = iter(stream)
next(batches)
if sys.argv[1] == "in a cycle":
    cycle = [batches]
    cycle.append(cycle)
    del cycle, batches
print("done", flush=True)
"""


def test_a_program_ends_while_its_stream_is_alive() -> None:
    ways = ["held", "in a cycle"] * 2
    programs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, way], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for way in ways
    ]
    try:
        for program in programs:
            output, errors = program.communicate(timeout=600)
            assert (program.returncode, output) == (0, b"done\n"), errors.decode()[-2000:]
    finally:
        for program in programs:
            program.kill()
            program.communicate()


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
    ending.join(60)
    assert not ending.is_alive()


def test_nothing_is_waited_for_where_nothing_was_called() -> None:
    calls = _Calls()
    calls.end()
    assert calls.is_over
