"""Running a command to its end: output to the logs, records to the display, signals to everybody."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from types import FrameType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.launcher import processes
from ipulaunch.launcher.command import Command
from ipulaunch.launcher.instance_logs import InstanceLogs

LOOK_INTERVAL_S = 0.1
GRACE_S = 2.0  # between asking mpirun to end its instances and ending everything ourselves

# The signals that end a run, whatever it is; a training also takes those of its settings.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_at_once(number: int) -> float:
    """What a signal means to a program that knows of no other way to stop."""
    return 0.0


class Supervisor:
    """Runs one command; everything it started is gone when run() returns.

    `ask_to_stop(signal)` is called for the first signal and returns the seconds to wait for the run to end by itself;
    `is_hung()` is asked all the time, and ends the run.
    """

    def __init__(
        self,
        look: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        signals: Sequence[signal.Signals] = END_SIGNALS,
        ask_to_stop: Callable[[int], float] = end_at_once,
        is_hung: Callable[[], bool] = lambda: False,
    ) -> None:
        self.look, self.clock = look, clock
        self.caught, self.ask_to_stop, self.is_hung = signals, ask_to_stop, is_hung
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
        asked_at: Optional[float] = None  # to stop by itself
        told_at: Optional[float] = None  # to end
        grace = 0.0
        while process.poll() is None:
            now = self.clock()
            if self.signals > 1 or (told_at is not None and now > told_at + GRACE_S) or self.is_hung():
                break
            if self.signals and asked_at is None:
                assert self.signal is not None
                asked_at, grace = now, self.ask_to_stop(self.signal)
            if asked_at is not None and told_at is None and now >= asked_at + grace:
                os.killpg(process.pid, signal.SIGTERM)
                told_at = now
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
            self.signal, self.signals = self.signal or number, self.signals + 1

        # What is ignored stays ignored: that is how nohup keeps a run alive after its terminal has gone.
        caught = [number for number in self.caught if signal.getsignal(number) is not signal.SIG_IGN]
        return {number: signal.signal(number, note) for number in caught}


def pause(seconds: float) -> Optional[int]:
    """Wait; a signal that ends runs ends the wait, and is returned."""
    found: List[int] = []
    before = {number: signal.signal(number, lambda number, frame: found.append(number)) for number in END_SIGNALS}
    try:
        deadline = time.monotonic() + seconds
        while not found and time.monotonic() < deadline:
            time.sleep(min(LOOK_INTERVAL_S, seconds))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return found[0] if found else None


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
