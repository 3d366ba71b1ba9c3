"""How fast the CPUs of a rehearsal compute: `python -m ipulaunch.workers.device_rate`, as the tasks of data_pipeline.

All instances of a host compute at the same time, each bound to its cores. They do not reduce over each other.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing.connection import Connection, wait
from typing import Any, Callable, Dict, List

from ipulaunch.configs.errors import JobError
from ipulaunch.configs.runs.job import from_yaml
from ipulaunch.data_pipeline.reported import Report, reported, settle
from ipulaunch.topology.capacity.ranges import Range, total
from ipulaunch.topology.planning.plan import from_json
from ipulaunch.workers.lifecycle.binding import bind_as_planned, size_pools

_ROUNDS = 5
_MOST_S = 600.0  # for all instances to have compiled


def main() -> int:
    settle(os.environ)
    return reported(lambda report: run(json.loads(sys.stdin.read()), report))


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """The samples/s of an instance, with as many others as the first host of the plan has."""
    plan = from_json(options["plan"])
    instances = plan.instances_per_host
    # Fresh interpreters: they must be bound before TensorFlow is imported and counts the cores.
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(instances)
    pipes = [context.Pipe(duplex=False) for _ in range(instances)]
    processes = [
        context.Process(target=_measure, args=(options, index, together, ours), daemon=True)
        for index, (_, ours) in enumerate(pipes)
    ]
    try:
        for process, (_, theirs) in zip(processes, pipes):
            process.start()
            theirs.close()
        rates = _answers([connection for connection, _ in pipes], report)
    finally:
        for process in processes:
            if process.pid is not None:
                process.terminate()
                process.join()
    rounds = [total(each).times(1 / instances) for each in zip(*rates)]
    low, high = min(each.low for each in rounds), statistics.median(each.high for each in rounds)
    return {"device_samples_per_s": {"low": low, "high": high}}


def _answers(connections: List[Connection], report: Report) -> List[List[Range]]:
    """What each instance has measured; an error as soon as one has ended without an answer."""
    found: List[List[Range]] = []
    waiting = list(connections)
    while waiting:
        for connection in wait(waiting):
            assert isinstance(connection, Connection)
            hint = "if memory ran out, measure with fewer --num-instances; --no-measure does without"
            try:
                answer = connection.recv()
            except EOFError:
                raise JobError("an instance of the measurement ended early", hint=hint) from None
            if isinstance(answer, str):
                raise JobError(f"an instance of the measurement failed: {answer}", hint=hint)
            found.append(answer)
            waiting.remove(connection)
            done, total = len(found), len(connections)
            report({"event": "progress", "what": "instances measured", "done": done, "total": total})
    return found


def _measure(options: Dict[str, Any], index: int, together: Any, connection: Connection) -> None:
    """Measure one instance, once all have compiled."""
    job, plan = from_yaml(options["job"], "the job"), from_json(options["plan"])
    binding = bind_as_planned(plan.placements[index])
    threads = size_pools(binding.cores, job, os.environ).in_force()
    from ipulaunch.workers.one_update import make_update  # imports TensorFlow, which counts the cores

    try:
        update = make_update(job, plan, index, threads.data)
        update()  # compiles
        together.wait(_MOST_S)
        samples = plan.batch.global_size / plan.instances
        rates = _rates(update, options["seconds"] / _ROUNDS, is_one_thread=threads.intra_op == 1)
        connection.send([rate.times(samples) for rate in rates])
    except Exception as error:  # noqa: BLE001 - the parent says it
        connection.send(f"{type(error).__name__}: {error}")


def _rates(update: Callable[[], object], seconds: float, *, is_one_thread: bool) -> List[Range]:
    """Weight updates/s of each round: by the clock, and at most by the processor time, if others use the same cores."""
    rates = []
    for _ in range(_ROUNDS):
        start, before, updates = time.perf_counter(), time.process_time(), 0
        while not updates or time.perf_counter() < start + seconds:
            update()
            updates += 1
        by_clock = updates / (time.perf_counter() - start)
        alone = updates / (time.process_time() - before) if is_one_thread else by_clock
        rates.append(Range(by_clock, max(by_clock, alone)))
    return rates


if __name__ == "__main__":
    sys.exit(main())
