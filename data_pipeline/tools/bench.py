"""Measures the input pipeline of a workload, a conventional one, and the limit of the machine.

Every instance is a process of its own, bound to its share of the cores. All run the same pipeline at the same time;
the pipelines take turns, several times, so that noise affects all of them. Compare the ratios, not the rates; where
others use the same cores, compare those of the processor time.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import IpulaunchError, JobError
from ipulaunch.data_pipeline.parallel import Report
from ipulaunch.data_pipeline.tools import bench_set

PIPELINES = ("ours", "reference", "limit")
COLD = ", cold"  # of a pipeline's name: its files are dropped from memory before each pass
_ROUNDS = 5
_WARM_UP = 0.5  # as a fraction of the measured time; drains what was read ahead before the measurement


class Task(NamedTuple):
    """What an instance measures."""

    workload: str
    data_dir: str
    instance: int
    instances: int
    cores: Tuple[int, ...]


class Reading(NamedTuple):
    """One instance's measurement of one pipeline."""

    samples_per_s: float
    processor_s: float  # of all threads, for a sample
    first_batch_s: float
    first_batch_processor_s: float
    memory_mb: float


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Measure each pipeline for options["seconds"], in rounds."""
    workload, instances = options["workload"], options["instances"]
    pipelines: Sequence[str] = options.get("pipelines", PIPELINES)
    if options.get("cold"):
        pipelines = [name + state for state in ("", COLD) for name in pipelines]
    seconds = options["seconds"] / _ROUNDS
    with contextlib.ExitStack() as stack:
        data_dir = options.get("data_dir")
        if data_dir is None:
            data_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="ipulaunch-bench-"))
            bench_set.make(workload, Path(data_dir), report)
        shares = core_shares(sorted(os.sched_getaffinity(0)), instances)
        tasks = [Task(workload, str(data_dir), n, instances, share) for n, share in enumerate(shares)]
        connections = [stack.enter_context(_instance(task)) for task in tasks]
        record_mb, *_ = [_answer(connection) for connection in connections]
        readings: Dict[str, List[List[Reading]]] = {name: [] for name in pipelines}
        for turn in range(_ROUNDS):
            for place, name in enumerate(pipelines):
                for connection in connections:
                    connection.send((name, seconds))
                readings[name].append([_answer(connection) for connection in connections])
                done, total = turn * len(pipelines) + place + 1, _ROUNDS * len(pipelines)
                report({"event": "progress", "what": "measurements", "done": done, "total": total})
    cores = len({core for share in shares for core in share})
    rows = [_row(name, readings[name], record_mb, cores) for name in pipelines]
    rounds = {row["pipeline"]: row["rounds"] for row in rows}
    ratios, spreads = _ratios(rounds, "")
    for found, more in zip((ratios, spreads), _ratios(rounds, COLD)):
        found.update(more)
    return {"rows": rows, "ratios": ratios, "ratio_spreads": spreads}


def core_shares(cores: Sequence[int], instances: int) -> List[Tuple[int, ...]]:
    """The cores of each instance: as even as possible, or one core for several instances."""
    if instances > len(cores):
        return [(cores[n % len(cores)],) for n in range(instances)]
    edges = [n * len(cores) // instances for n in range(instances + 1)]
    return [tuple(cores[start:stop]) for start, stop in zip(edges, edges[1:])]


def _row(name: str, rounds: List[List[Reading]], record_mb: float, cores: int) -> Dict[str, Any]:
    """The medians of the rounds, how far they lie apart, and the rounds themselves."""
    totals = [_total(turn) for turn in rounds]
    medians = {key: statistics.median(each[key] for each in totals) for key in totals[0]}
    rate = medians["samples_per_s"]
    return {
        "pipeline": name,
        **medians,
        "mb_per_s": rate * record_mb,
        "per_core": rate / cores,
        "memory_mb": max(each["memory_mb"] for each in totals),
        "spreads": {key: _spread([each[key] for each in totals]) for key in totals[0]},
        "rounds": totals,
    }


def _total(readings: List[Reading]) -> Dict[str, float]:
    """What all instances did together in one round."""
    rate = sum(each.samples_per_s for each in readings)
    return {
        "samples_per_s": rate,
        "processor_ms": 1000 * sum(each.processor_s * each.samples_per_s for each in readings) / rate,
        "first_batch_s": max(each.first_batch_s for each in readings),
        "first_batch_processor_s": max(each.first_batch_processor_s for each in readings),
        "memory_mb": sum(each.memory_mb for each in readings),
    }


def _ratios(rounds: Dict[str, List[Dict[str, float]]], state: str) -> Tuple[Dict[str, float], Dict[str, float]]:
    """The medians of the ratios of each round, more than 1 where ours is better, and how far they lie apart."""
    found: Dict[str, List[float]] = {}
    for other in ("reference", "limit"):
        for ours, theirs in zip(rounds.get(f"ours{state}", []), rounds.get(other + state, [])):
            found.setdefault(f"ours / {other}{state}", []).append(ours["samples_per_s"] / theirs["samples_per_s"])
            per_core_second = theirs["processor_ms"] / ours["processor_ms"]
            found.setdefault(f"ours / {other}{state}, per core-second", []).append(per_core_second)
    medians = {name: statistics.median(values) for name, values in found.items()}
    return medians, {name: _spread(values) for name, values in found.items()}


def _spread(values: Sequence[float]) -> float:
    """The distance of the largest and the smallest value, as a part of the median."""
    median = statistics.median(values)
    return (max(values) - min(values)) / median if median else 0.0


@contextlib.contextmanager
def _instance(task: Task) -> Iterator[Connection]:
    """A process that answers with the size of a record, and then to each pipeline's name with a reading of it."""
    # A fresh interpreter: it must be bound before TensorFlow is imported and counts the cores.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure_on_request, args=(theirs, task), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    except BaseException:  # nobody waits for its measurement any more
        process.terminate()
        raise
    finally:
        ours.close()
        process.join(10)
        process.terminate()


def _answer(connection: Connection) -> Any:
    try:
        answer = connection.recv()
    except EOFError:
        hint = "if it was killed because memory ran out, measure with fewer --instances"
        raise JobError("an instance of the measurement ended early", hint=hint) from None
    if isinstance(answer, IpulaunchError):
        raise answer
    return answer


def _measure_on_request(connection: Connection, task: Task) -> None:
    os.sched_setaffinity(0, task.cores)
    from ipulaunch.data_pipeline.records.page_cache import forget, require_forgotten
    from ipulaunch.data_pipeline.tools.bench_pipelines import bound_tensorflow, open_pipelines

    bound_tensorflow(len(task.cores))
    try:
        opened = open_pipelines(task)
        connection.send(opened.record_mb)
        cold = Passes(max(1, opened.records // task.instances), lambda: forget(opened.paths))
        with contextlib.suppress(EOFError):
            while True:
                name, seconds = connection.recv()
                passes = None
                if name.endswith(COLD):
                    passes, name = cold, name[: -len(COLD)]
                    passes.begin()
                    require_forgotten(opened.paths[0])
                connection.send(_measure(opened.pipelines[name](), seconds, passes))
    except IpulaunchError as error:
        connection.send(error)


class Passes:
    """Begins every pass over a set in the same way: after so many samples."""

    def __init__(self, samples: int, begin: Callable[[], None]) -> None:
        self.samples, self.begin_one, self.left = samples, begin, samples

    def begin(self) -> None:
        self.begin_one()
        self.left = self.samples

    def count(self, samples: int) -> Tuple[float, float]:
        """Some samples more; the seconds that it took to begin another pass, of the clock and of the processor."""
        self.left -= samples
        if self.left > 0:
            return 0.0, 0.0
        start, before = time.perf_counter(), time.process_time()
        self.begin()
        return time.perf_counter() - start, time.process_time() - before


def _measure(batches: Iterator[int], seconds: float, passes: Optional[Passes] = None) -> Reading:
    """Take batches, each a number of samples, for some time."""
    start, before = time.perf_counter(), time.process_time()
    next(batches)
    first = (time.perf_counter() - start, time.process_time() - before)
    _take(batches, _WARM_UP * seconds, passes)
    samples, elapsed, processor = _take(batches, seconds, passes)
    return Reading(samples / elapsed, processor / samples, *first, _memory_mb())


def _take(batches: Iterator[int], seconds: float, passes: Optional[Passes] = None) -> Tuple[int, float, float]:
    """Take batches for some time: the samples, the seconds, and the processor time of this process."""
    start, before = time.perf_counter(), time.process_time()
    now, samples = start, 0
    while now < start + seconds:
        size = next(batches)
        samples += size
        if passes is not None:
            pause, work = passes.count(size)
            start, before = start + pause, before + work
        now = time.perf_counter()
    return samples, now - start, time.process_time() - before


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
