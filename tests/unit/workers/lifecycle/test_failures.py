from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.workers.lifecycle.failures import Failure, failure_of


class ResourceExhaustedError(Exception):
    """Named as TensorFlow's."""


class InvalidArgumentError(Exception):
    """Named as TensorFlow's."""


REPORT = """Graph execution error:

Detected at node PyFunc defined at (most recent call last):
  File "/app/training.py", line 73, in train

ValueError: no such sample
Traceback (most recent call last):

  File "/app/source.py", line 41, in guard
    raise ValueError("no such sample")

ValueError: no such sample


\t [[{{node PyFunc}}]]
\t [[while/IteratorGetNext]] [Op:__inference__update_1649]"""
OLD_REPORT = """ ValueError: no such sample
Traceback (most recent call last):

  File "/app/source.py", line 41, in guard
    raise ValueError("no such sample")

ValueError: no such sample


\t [[node PyFunc (defined at work/replicated.py:72) ]]
\t [[while/IteratorGetNext]] [Op:__inference__update_1649]

Function call stack:
_update"""
NEW_REPORT = REPORT.replace(
    "\nValueError: no such sample\nTraceback",
    "\nError in user-defined function passed to ParallelMapDatasetV2:4 transformation with iterator:"
    " Iterator::Root::Prefetch::ParallelMapV2: ValueError: no such sample\nTraceback",
)
NATIVE_REPORT = """Graph execution error:

Detected at node 'MatMul' defined at (most recent call last):
  File "/app/training.py", line 73, in train
Matrix size-incompatible: In[0]: [1,2], In[1]: [3,4]
\t [[{{node MatMul}}]] [Op:__inference__update_1649]"""


@pytest.mark.parametrize("report", [NEW_REPORT, REPORT, OLD_REPORT], ids=["2.21", "2.15", "2.6"])
def test_what_our_function_raised_is_found_in_the_report_of_a_graph(report: str, tmp_path: Path) -> None:
    assert failure_of(InvalidArgumentError(report), tmp_path) == Failure("ValueError", "no such sample")


def test_an_error_of_an_operation_keeps_its_own_line(tmp_path: Path) -> None:
    found = failure_of(InvalidArgumentError(NATIVE_REPORT), tmp_path)
    assert found == Failure("InvalidArgumentError", "Matrix size-incompatible: In[0]: [1,2], In[1]: [3,4]")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ResourceExhaustedError(REPORT.replace("ValueError: no such sample", "MemoryError: ")),
        ResourceExhaustedError("OOM when allocating tensor with shape[1000000]"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtensorflow.so: failed to map segment from shared object"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_is_said_with_the_numbers(error: Exception, tmp_path: Path) -> None:
    message = failure_of(error, tmp_path).message
    assert re.match(r"out of memory: this instance has [\d.]+ GiB in [\d.]+ GiB of address space", message)
    assert re.search(r"its host [\d.]+ GiB available$", message)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        ResourceExhaustedError("events.out.tfevents; No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
    ],
    ids=["full", "full-tensorflow", "quota"],
)
def test_a_full_disk_is_said_with_its_place(error: Exception, tmp_path: Path) -> None:
    message = failure_of(error, tmp_path).message
    assert re.match(rf"no space left: the disk of {re.escape(str(tmp_path))} has [\d.]+ of [\d.]+ MiB free$", message)


def test_errors_of_ours_are_told_as_they_are(tmp_path: Path) -> None:
    error = DataError("record 3 has the wrong checksum", hint="copy the file again")
    assert failure_of(error, tmp_path) == Failure("DataError", error.message, error.hint)


def test_other_errors_keep_their_text(tmp_path: Path) -> None:
    assert failure_of(KeyError("x"), tmp_path) == Failure("KeyError", "'x'")
