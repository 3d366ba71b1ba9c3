"""Running a command to its end: output to the logs, records to the display, signals to everybody."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from types import FrameType
from typing import Any, Callable, Dict, Mapping, Optional

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.launcher import processes
from ipulaunch.launcher.command import Command
from ipulaunch.launcher.instance_logs import InstanceLogs

LOOK_INTERVAL_S = 0.1
GRACE_S = 2.0  # between asking mpirun to end its instances and ending everything ourselves

# What each signal to the launcher means for the run.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """Runs one command; everything it started is gone when run() returns."""

    def __init__(self, look: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.look, self.clock = look, clock
        self.signal: Optional[int] = None
        self.signals = 0

    def run(self, command: Command, environ: Mapping[str, str], logs: InstanceLogs) -> int:
        """The exit code of the command."""
        processes.adopt_orphans()
        before = self._catch_signals()
        process: Optional[subprocess.Popen[bytes]] = None
        try:
            try:
                process = processes.start(command.argv, {**environ, **command.env})
            except OSError as error:
                raise NotReadyError(f"{command.argv[0]} does not start: {error}") from error
            reader = threading.Thread(target=_read, args=(process, logs), daemon=True)
            reader.start()
            self._wait(process)
            processes.end_all()  # also closes the pipe that a left-over process would hold open
            reader.join(timeout=5)
            self.look()
            return process.returncode
        finally:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
            processes.end_all()
            logs.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline: Optional[float] = None
        asked = 0
        while process.poll() is None:
            if self.signals > asked:
                asked = self.signals
                if asked > 1:
                    break
                os.killpg(process.pid, signal.SIGTERM)
                deadline = self.clock() + GRACE_S
            if deadline is not None and self.clock() > deadline:
                break
            self.look()
            try:
                process.wait(LOOK_INTERVAL_S)
            except subprocess.TimeoutExpired:
                continue
        if process.poll() is None:  # before all others, so that its exit code is not lost among theirs
            process.kill()
            process.wait()

    def _catch_signals(self) -> Dict[signal.Signals, Any]:
        def note(number: int, frame: Optional[FrameType]) -> None:
            self.signal, self.signals = number, self.signals + 1

        # What is ignored stays ignored: that is how nohup keeps a run alive after its terminal has gone.
        caught = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        return {number: signal.signal(number, note) for number in caught}


def _read(process: subprocess.Popen[bytes], logs: InstanceLogs) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        try:
            for line in output:
                logs.feed(line)
        except OSError as error:  # a full disk, say
            logs.engine_lines.append(f"the output could not be kept: {error}")
            while output.read(1 << 16):  # an engine whose output nobody takes would stand still
                pass
