"""How fast the CPUs of a rehearsal compute: `python -m ipulaunch.workers.device_rate`, as the tasks of data_pipeline.

All instances of a host compute at the same time, each bound to its cores. They do not reduce over each other.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection, wait
from typing import Any, Callable, Dict, List

from ipulaunch.configs.errors import JobError
from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.data_pipeline.reported import Report, reported, settle
from ipulaunch.topology.planning.plan import Plan, from_json
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
            process.terminate()
            process.join()
    rounds = [sum(each) / instances for each in zip(*rates)]
    return {"device_samples_per_s": {"low": min(rounds), "high": max(rounds)}}


def _answers(connections: List[Connection], report: Report) -> List[List[float]]:
    """What each instance has measured; an error as soon as one has ended without an answer."""
    found: List[List[float]] = []
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
    try:
        update = _update(job, plan, index, threads.data)
        update()  # compiles
        together.wait(_MOST_S)
        samples = plan.batch.global_size / plan.instances
        connection.send([samples * rate for rate in _rates(update, options["seconds"] / _ROUNDS)])
    except Exception as error:  # noqa: BLE001 - the parent says it
        connection.send(f"{type(error).__name__}: {error}")


def _rates(update: Callable[[], object], seconds: float) -> List[float]:
    """Weight updates/s of each round."""
    rates = []
    for _ in range(_ROUNDS):
        start, updates = time.perf_counter(), 0
        while not updates or time.perf_counter() < start + seconds:
            update()
            updates += 1
        rates.append(updates / (time.perf_counter() - start))
    return rates


def _update(job: Job, plan: Plan, index: int, threads: int) -> Any:
    """A function that makes a weight update of an instance, on samples that are in memory."""
    from ipulaunch.data_pipeline.sources.normalise import as_sent
    from ipulaunch.data_pipeline.sources.selection import make_sources
    from ipulaunch.data_pipeline.stream import Shuffle, training_stream
    from ipulaunch.topology.planning.host_events import events_of
    from ipulaunch.workers.backends.collective import Alone
    from ipulaunch.workers.backends.selection import make_backend, make_devices
    from ipulaunch.workers.state.training_state import prepare_training

    settings, batch = job.settings, plan.batch
    data = dataclasses.replace(
        settings.data,
        directory=None,
        stage_dir=None,
        bad_records="fail",
        synthetic_data="cpu",
        n_train=batch.global_size,
    )
    settings = dataclasses.replace(settings, data=data)
    job = job._replace(settings=settings)
    make_devices(job)
    backend = make_backend(job, plan, index, Alone())
    events, _ = events_of(settings.training, data.n_train, batch)
    trained, _ = prepare_training(backend, events, native_half=False)
    made = make_sources(job, plan, index, threads, meet=str, progress=lambda *done: None)
    stream = training_stream(
        made["train"], batch, backend.replicas, shuffle=Shuffle(0), updates=range(1), by_replica=True, threads=threads
    )
    inputs = iter(as_sent(stream, settings, threads).cache().repeat())
    function: Any = trained.make_train_function()  # type: ignore[attr-defined]
    return lambda: function(inputs)


if __name__ == "__main__":
    sys.exit(main())
