"""Running a command to its end: output to the logs, records to the display, requests to stop to everybody."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set

from ipulaunch.configs.errors import JobError, NotReadyError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.supervise import processes
from ipulaunch.launcher.supervise.instance_logs import InstanceLogs
from ipulaunch.launcher.supervise.session_files import own_session, remove_segments, segments_of
from ipulaunch.launcher.supervise.stop_signals import StopSignals

LOOK_INTERVAL_S = 0.1
GRACE_S = 2.0  # between asking mpirun to end its instances and ending everything ourselves
TIDY_INTERVAL_S = 1.0  # between looks for what instances have left behind; what is found twice is ended
READ_S = 5.0  # for a line of output that is there to be taken
WAKE_S = 3.0  # for instances that were stopped to dump their stacks as soon as they go on, and for these to get here


def end_at_once(number: int) -> float:
    """What a signal means to instances that know of no other way to stop."""
    return 0.0


class Supervisor:
    """Runs one command; everything it started is gone when run() returns.

    `ask_to_stop(signal)` is called for the first signal, and for TERM if `is_leaving()`: an instance asks to be
    continued. It returns the seconds to wait for the run to end by itself. A run that `is_hung()` is ended.
    `removes_files` also removes temporary files of instances.
    """

    def __init__(
        self,
        look: Callable[[], None],
        signals: StopSignals,
        clock: Callable[[], float] = time.monotonic,
        *,
        ask_to_stop: Callable[[int], float] = end_at_once,
        is_hung: Callable[[], bool] = lambda: False,
        is_leaving: Callable[[], bool] = lambda: False,
        removes_files: bool = False,
    ) -> None:
        self.look, self.signals, self.clock = look, signals, clock
        self.ask_to_stop, self.is_hung, self.is_leaving = ask_to_stop, is_hung, is_leaving
        self.removes_files = removes_files
        self.engine: Optional[int] = None  # the process, while it lives
        self.ended_ns: Optional[int] = None  # when we began to end the run
        self.segments: Dict[int, Set[Path]] = {}  # shared memory by the process that has it
        self.tidied_at = clock()
        self.left: List[int] = []

    def run(self, command: Command, environ: Mapping[str, str], logs: InstanceLogs) -> int:
        """The exit code of the command."""
        given = {**environ, **command.env}
        with own_session(given, with_files=self.removes_files) as session:
            return self._run(command.argv, {**given, **session}, logs)

    def pass_on(self, number: int) -> bool:
        """Send a signal to the instances on this machine; whether there is one."""
        return self.engine is not None and processes.pass_on(number, self.engine)

    def _run(self, argv: Sequence[str], environ: Mapping[str, str], logs: InstanceLogs) -> int:
        processes.adopt_orphans()
        process: Optional[subprocess.Popen[bytes]] = None
        try:
            try:
                process = processes.start(argv, environ)
            except OSError as error:
                raise NotReadyError(f"{argv[0]} does not start: {error}") from error
            self.engine = process.pid
            reader = threading.Thread(target=_read, args=(process, logs), daemon=True)
            reader.start()
            self._wait(process, logs.run)
            processes.end_all()  # also closes the pipe that a left-over process would hold open
            _finish_reading(reader, logs)
            self.look()
            return process.returncode
        finally:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
            processes.end_all()
            remove_segments(path for found in self.segments.values() for path in found)
            logs.close()

    def _wait(self, process: subprocess.Popen[bytes], run: RunDirectory) -> None:
        asked_at: Optional[float] = None  # to stop by itself
        told_at: Optional[float] = None  # to end
        grace = 0.0
        while process.poll() is None:
            now = self.clock()
            if self.signals.requests > 1 or (told_at is not None and now > told_at + GRACE_S):
                break
            if self.is_hung():
                if processes.wake():
                    time.sleep(WAKE_S)
                break
            _require(run)
            self._tidy(process.pid, now)
            number = self.signals.first or (signal.SIGTERM if asked_at is None and self.is_leaving() else None)
            if number is not None and asked_at is None:
                asked_at, grace = now, self.ask_to_stop(number)
            if asked_at is not None and told_at is None and now >= asked_at + grace:
                self.ended_ns = time.time_ns()
                os.killpg(process.pid, processes.ENGINE_ENDS_ON)
                told_at = now
            self.look()
            try:
                process.wait(LOOK_INTERVAL_S)
            except subprocess.TimeoutExpired:
                continue
        if process.poll() is None:  # before all others, so that its exit code is not lost among theirs
            self.ended_ns = self.ended_ns or time.time_ns()
            self._note_segments()
            process.kill()
            process.wait()
        _require(run)  # instances notice it too, and may have ended the engine first

    def _tidy(self, engine: int, now: float) -> None:
        """End what outlives the instance that started it: the engine would wait for it."""
        if now < self.tidied_at + TIDY_INTERVAL_S:
            return
        self._note_segments()
        left = processes.left_behind(engine)
        processes.end(pid for pid in left if pid in self.left)
        self.tidied_at, self.left = now, left

    def _note_segments(self) -> None:
        """Instances that are killed cannot remove what they share, and only living ones show what is theirs."""
        for pid in processes.descendants():
            if not self.segments.get(pid):
                self.segments[pid] = segments_of(pid)


def _finish_reading(reader: threading.Thread, logs: InstanceLogs) -> None:
    """Wait until all output is in the logs. Only who takes no line in a long time, as nobody reads our own, is left."""
    taken = -1
    while reader.is_alive() and taken != logs.taken:
        taken = logs.taken
        reader.join(READ_S)


def _require(run: RunDirectory) -> None:
    """Refuse to go on without a run directory: nothing could be recorded, not even the end."""
    try:
        run.engine_log.stat()
    except FileNotFoundError as error:
        raise JobError(
            f"the run directory {run.path} has gone while the run went on: every instance was ended",
            hint="start it again; --resume continues from checkpoints kept elsewhere (--checkpoint-output-dir)",
        ) from error
    except OSError:  # the file system does not answer now, so we do not know
        return


def _read(process: subprocess.Popen[bytes], logs: InstanceLogs) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            logs.feed(line)
