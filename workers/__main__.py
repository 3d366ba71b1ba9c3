"""The program every engine starts, once per instance: find our place, bind, and only then import TensorFlow."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Callable, List, NoReturn, Optional, Tuple

from ipulaunch.configs.errors import INTERRUPTED, IpulaunchError, NotReadyError, StoppedError
from ipulaunch.configs.runs.directory import RunDirectory, write_whole
from ipulaunch.configs.runs.events import Started
from ipulaunch.configs.runs.job import Job, from_yaml, to_yaml
from ipulaunch.configs.runs.untrusted import read_text
from ipulaunch.configs.settings.paths import with_whole_paths
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import WORKLOADS, resolve
from ipulaunch.topology.machines import cpulist
from ipulaunch.topology.planning import popdist
from ipulaunch.topology.planning.batch import Batch, make_batch
from ipulaunch.topology.planning.ipu_refusals import ipus_needed
from ipulaunch.topology.planning.pipelines import check_pipeline
from ipulaunch.topology.planning.plan import Plan, from_json, to_json
from ipulaunch.workers.backends.ipu.environment import flags
from ipulaunch.workers.lifecycle.binding import Binding, bind, bind_share
from ipulaunch.workers.lifecycle.heartbeat import Heartbeat
from ipulaunch.workers.lifecycle.lifetime import end_with_parent
from ipulaunch.workers.lifecycle.plan_of_pasted_line import plan_of_pasted_line
from ipulaunch.workers.lifecycle.records import UNEXPECTED, Records
from ipulaunch.workers.lifecycle.threads import read_back, size_pools


def main() -> NoReturn:
    arguments = _arguments(sys.argv[1:])
    place: Optional[popdist.Place] = None
    records: Optional[Records] = None
    end_with_parent()
    try:
        place = popdist.read_place(os.environ, arguments.num_replicas)
        run, plan, job = _read_run(arguments.run_dir) if arguments.run_dir else (None, None, _job(arguments))
        if job.backend == "ipu" and not popdist.is_told(os.environ):
            place = place._replace(ipus_per_replica=ipus_needed(job.settings.pipeline))
        if run is not None:  # now: where the others cannot be reached, MPI waits for them as long as it takes to start
            records = _show_life(run, place, job)
        batch = _planned_batch(plan, place) if plan else _batch(job, place)
        binding = _bind(plan, place, job.backend)
        threads = size_pools(binding.cores, job, os.environ)
        if job.backend == "ipu":
            os.environ.update(flags(job.settings, os.environ))

        from ipulaunch.workers.backends.collective import texts_of
        from ipulaunch.workers.backends.selection import make_backend, make_devices, stack

        threads = read_back(threads)
        make_devices(job)
        backend = make_backend(job, batch, place)
        if run is None:
            plan = plan_of_pasted_line(job, batch, place, binding, lambda text: texts_of(backend.collective, text))
            run = _make_run(job, plan, place, backend.collective.first)
        records = records or _show_life(run, place, job)
        backend.report_to(run.profile(place.instance))
        records.event(
            Started(
                platform.node(),
                os.getpid(),
                job.backend,
                place._asdict(),
                asdict(binding),
                asdict(threads),
                **stack(),
            )
        )

        from ipulaunch.workers.instance import Instance
        from ipulaunch.workers.lifecycle.stopping import StopRequest
        from ipulaunch.workers.work import run_instance

        stop = StopRequest(run, place, backend.collective)
        stop.listen(*(signal.Signals[f"SIG{name}"] for name in job.settings.survival.stop_signals))
        instance = Instance(job, batch, place, backend, run, records, threads.data, stop)
        try:
            records.done(run_instance(instance))
            code = 0
        except StoppedError as error:
            records.stopped(error)
            backend.collective.first("recorded")  # mpirun ends the others as soon as one has left
            code = _report(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - the edge of the program: whatever it was becomes a record
        with contextlib.suppress(OSError, MemoryError):  # nowhere to write it to; the log will have it
            if records is None and arguments.run_dir and place is not None:
                records = Records(RunDirectory(Path(arguments.run_dir)), place.instance)
            if records is not None:
                records.error(error)
        code = _report(error)
    _leave(code)


def _arguments(argv: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ipulaunch.workers",
        description="One instance of a training, as ipulaunch, poprun or mpirun start it; alone when started by hand.",
    )
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--backend", choices=("ipu", "cpu"), default="ipu", help="where the model runs")
    parser.add_argument(
        "--num-replicas", type=int, metavar="N", help="replicas of a process that is alone, without poprun or mpirun"
    )
    parser.add_argument("--rehearsal", action="store_true", help="use the small job of the rehearsal: section")
    parser.add_argument("--config", help="a published configuration of the workload")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="assignments")
    parser.add_argument(
        "--run-dir", help="a run directory that the launcher has made; without it, instance 0 makes one"
    )
    return parser.parse_args(argv)


def _read_run(path: str) -> Tuple[RunDirectory, Plan, Job]:
    run = RunDirectory(Path(path))
    try:
        plan = from_json(read_text(run.plan))
        job = from_yaml(read_text(run.job), str(run.job))
    except OSError as error:
        hint = "every host must see the run directory under this path; see --run-dir of ipulaunch"
        raise NotReadyError(f"the run directory cannot be read: {error}", hint=hint) from error
    return run, plan, job


def _planned_batch(plan: Plan, place: popdist.Place) -> Batch:
    if (plan.replicas, plan.instances) != (place.replicas, place.instances):
        raise NotReadyError(
            f"the plan has {plan.replicas} replicas in {plan.instances} instances,"
            f" POPDIST_* say {place.replicas} in {place.instances}",
            hint="start the command in command.txt of the run directory as it is",
        )
    return plan.batch


def _bind(plan: Optional[Plan], place: popdist.Place, backend: str) -> Binding:
    if plan is None:
        # poprun has bound its instances before they start: all that we see is ours.
        return bind_share(0, 1) if backend == "ipu" else bind_share(place.local_index, place.local_instances)
    planned = plan.placements[place.instance]
    return bind(cpulist.parse(planned.cpus), planned.cores, planned.numa_nodes)


def _job(arguments: argparse.Namespace) -> Job:
    overrides = [assignment(text, "--set") for text in arguments.assignments]
    resolved = resolve(arguments.workload, rehearsal=arguments.rehearsal, config=arguments.config, overrides=overrides)
    check_pipeline(resolved.settings)
    for note in resolved.notes:
        print(f"note: {note}", file=sys.stderr)
    return Job(arguments.workload, arguments.backend, with_whole_paths(resolved.settings))


def _batch(job: Job, place: popdist.Place) -> Batch:
    training = job.settings.training
    batch, warnings = make_batch(
        training.micro_batch_size,
        place.replicas,
        training.gradient_accumulation_count,
        training.global_batch_size,
        job.settings.micro_batches_per_turn,
        job.settings.least_accumulation,
    )
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return batch


def _make_run(job: Job, plan: Plan, place: popdist.Place, agree: Callable[[str], str]) -> RunDirectory:
    """The run directory of a line that was pasted: instance 0 makes it, all use it."""
    run = RunDirectory(Path(agree(f"runs/{job.workload}-{time.strftime('%Y%m%d-%H%M%S')}")))
    if place.instance == 0:
        run.path.mkdir(parents=True, mode=0o700)
        write_whole(run.plan, to_json(plan))
        write_whole(run.job, to_yaml(job))
        print(f"run directory: {run.path}", flush=True)
    agree("made")  # nobody writes before it is there
    return run


def _show_life(run: RunDirectory, place: popdist.Place, job: Job) -> Records:
    """The records of this instance, which show that it lives from now on."""
    records = Records(run, place.instance)
    heartbeat = Heartbeat(records, job.settings.survival.stall_timeout_s)
    heartbeat.start()
    records.on_event = heartbeat.progress
    return records


def _report(error: BaseException) -> int:
    if isinstance(error, StoppedError):  # which is no error
        print(error.message, file=sys.stderr)
        return error.exit_code
    if isinstance(error, IpulaunchError):
        print(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return error.exit_code
    sys.excepthook(type(error), error, error.__traceback__)
    return UNEXPECTED


def _leave(code: int) -> NoReturn:
    """End at once on failure: MPI's own exit would wait for instances that wait for us."""
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        os._exit(code)
    sys.exit(0)


if __name__ == "__main__":
    main()
