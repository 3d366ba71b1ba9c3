"""The program every engine starts, once per instance: find our place, bind, and only then import TensorFlow."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from dataclasses import asdict
from typing import NoReturn, Optional

from ipulaunch.configs.errors import INTERRUPTED, IpulaunchError, StoppedError
from ipulaunch.configs.runs.events import Joining, Started
from ipulaunch.topology.planning.popdist import Place, read_place
from ipulaunch.workers.arguments import job_of, read_arguments, require_same_job
from ipulaunch.workers.lifecycle.heartbeat import show_life
from ipulaunch.workers.lifecycle.lifetime import end_with_parent
from ipulaunch.workers.lifecycle.records import UNEXPECTED, Records
from ipulaunch.workers.pasted_line import make_run
from ipulaunch.workers.startup import prepare_tensorflow, start_launched, start_pasted


def main() -> NoReturn:
    arguments = read_arguments(sys.argv[1:])
    place: Optional[Place] = None
    records: Optional[Records] = None
    end_with_parent()
    try:
        place = read_place(os.environ, arguments.num_replicas)
        if arguments.run_dir:
            start = start_launched(arguments.run_dir, place)
            require_same_job(arguments, start.job)
        else:
            start = start_pasted(job_of(arguments), place)
        job, place, stall_timeout_s = start.job, start.place, start.job.settings.survival.stall_timeout_s
        if start.launched:  # now: where the others cannot be reached, MPI waits for them as long as it takes to start
            records = show_life(start.launched[0], place.instance, stall_timeout_s)
        threads = prepare_tensorflow(start)

        from ipulaunch.workers.backends.selection import join_instances, make_backend, make_devices, stack

        threads = threads.in_force()
        make_devices(job)
        if records and place.instances > 1:
            records.event(Joining())
        collective = join_instances(job, place.instance, place.instances)
        run, plan = start.launched or make_run(job, start.batch, place, start.binding, collective)
        records = records or show_life(run, place.instance, stall_timeout_s)
        backend = make_backend(job, plan, place.instance, collective)
        backend.report_to(run.profile(place.instance))
        records.event(
            Started(
                platform.node(),
                os.getpid(),
                job.backend,
                place._asdict(),
                asdict(start.binding),
                asdict(threads),
                **stack(),
            )
        )

        from ipulaunch.workers.instance import make_instance
        from ipulaunch.workers.run import run_instance

        instance = make_instance(job, plan, place.instance, backend, run, records, threads.data)
        try:
            records.done(run_instance(instance))
            code = 0
        except StoppedError as error:
            records.stopped(error)
            collective.first("recorded")  # mpirun ends the others as soon as one has left
            code = _report(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - the edge of the program: whatever it was becomes a record
        with contextlib.suppress(OSError, MemoryError):  # nowhere to write it to; the log will have it
            if records is None and arguments.run_dir and place is not None:
                records = Records(arguments.run_dir, place.instance)
            if records is not None:
                records.error(error)
        code = _report(error)
    _leave(code)


def _report(error: BaseException) -> int:
    if isinstance(error, StoppedError):  # a stop is not an error
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
