"""Measures what the model of a plan's capacity needs of this machine, in a few seconds: disk, preparation, memory.

The preparation of a sample is measured by processor time, so that others who use the same cores hardly change it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy as np

from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.parallel import Report, cores
from ipulaunch.data_pipeline.records import gzip_files
from ipulaunch.data_pipeline.sources.normalise import as_sent
from ipulaunch.data_pipeline.sources.selection import make_sources
from ipulaunch.data_pipeline.sources.source import Source, data_errors
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.data_pipeline.tools.capacity_set import Found, open_set
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.plan import from_json

_ROUNDS = 3
_ENDLESS = range(10**9)  # weight updates: more than a measurement takes
_READERS, _PIECE = 4, 1 << 23
_COPIERS, _COPIED = 32, 1 << 25  # threads at most, and bytes of each: more than its share of a cache

Rates = Dict[str, float]


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """The rates of this machine; without a set, of a small one that is made in the form of options["form"]."""
    job = from_yaml(options["job"], "the job")
    plan = from_json(options["plan"])
    seconds: float = options["seconds"]
    result: Dict[str, Any] = {"memory_bytes_per_s": _copied(seconds / 3)}
    if job.settings.data.synthetic_data == "ipu":
        return result
    with contextlib.ExitStack() as stack:
        if job.settings.data.is_synthetic:
            source = make_sources(job, plan, 0, cores(), meet=str, progress=lambda *progress: None)["train"]
        elif options["form"]:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ipulaunch-capacity-"))
            found = open_set(job, options["form"], options["is_made"], Path(directory), report)
            source = found.source
            result.update(_about(found, options, seconds / 3))
        else:
            source = make_sources(job, plan, 0, cores(), meet=str, progress=lambda *progress: None)["train"]
        report({"event": "progress", "what": "measurements", "done": 1, "total": 2})
        size = min(plan.batch.micro_size, source.samples)
        with data_errors(source):
            result["samples_per_core_s"] = _prepared(job, source, size, seconds)
    return result


def _about(found: Found, options: Dict[str, Any], seconds: float) -> Dict[str, Any]:
    """The form of a set, the bytes of its samples, and how fast its disk is."""
    about: Dict[str, Any] = {"form": found.form, "uses_isal": gzip_files.uses_isal()}
    if not options["is_made"]:
        about["stored_bytes"] = found.stored_bytes
    if options["reads_disk"]:
        about["disk_bytes_per_s"] = _range_of(_read(found.files, seconds / _ROUNDS) for _ in range(_ROUNDS))
    return about


def _prepared(job: Job, source: Source, size: int, seconds: float) -> Rates:
    """Samples/s of a core: micro-batches of this size, as they leave the host."""
    threads = cores()
    stream = training_stream(
        source, Batch(size, 1, 1), range(1), shuffle=Shuffle(0), updates=_ENDLESS, by_replica=False, threads=threads
    )
    batches = iter(as_sent(stream, job.settings, threads))
    _taken(batches, seconds / _ROUNDS)  # drains what is read ahead, and starts all threads
    return _range_of(size / _taken(batches, seconds / _ROUNDS) for _ in range(_ROUNDS))


def _taken(batches: Iterator[Any], seconds: float) -> float:
    """Take micro-batches for some time: the processor time of one."""
    start, before, count = time.perf_counter(), time.process_time(), 0
    while count < 1 or time.perf_counter() < start + seconds:
        next(batches)
        count += 1
    return (time.process_time() - before) / count


def _read(files: Sequence[Path], seconds: float) -> float:
    """Bytes/s of several threads that read files which are not in memory."""
    start = time.perf_counter()
    places = itertools.cycle(_pieces(files))

    def read(place: Tuple[Path, int]) -> int:
        path, offset = place
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(offset)
            return len(file.read(_PIECE))

    with ThreadPoolExecutor(_READERS) as pool:
        count = 0
        while not count or time.perf_counter() < start + seconds:
            count += sum(pool.map(read, itertools.islice(places, 2 * _READERS)))
    return count / (time.perf_counter() - start)


def _pieces(files: Sequence[Path]) -> List[Tuple[Path, int]]:
    return [(path, offset) for path in files for offset in range(0, path.stat().st_size, _PIECE)]


def _copied(seconds: float) -> Rates:
    """Bytes/s that all cores copy together."""
    threads = min(cores(), _COPIERS)
    pairs = [(np.ones(_COPIED, np.uint8), np.empty(_COPIED, np.uint8)) for _ in range(threads)]

    def copy(pair: Tuple[np.ndarray, np.ndarray]) -> int:
        start, count = time.perf_counter(), 0
        while time.perf_counter() < start + seconds / _ROUNDS:
            np.copyto(pair[1], pair[0])  # NumPy lets other threads run
            count += _COPIED
        return count

    def together() -> float:
        start = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(copy, pairs)) / (time.perf_counter() - start)

    for source, target in pairs:
        np.copyto(target, source)  # fresh pages would count otherwise
    return _range_of(together() for _ in range(_ROUNDS))


def _range_of(rates: Iterable[float]) -> Rates:
    found = list(rates)
    return {"low": min(found), "high": max(found)}
