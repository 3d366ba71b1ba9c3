"""One run of a command, under supervision: its output in files, its end in time, nothing left running."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, Mapping, NamedTuple, Optional

from ipulaunch.launcher.bench.results import FAILED, INTERRUPTED, OK, TIMEOUT
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.supervise import processes
from ipulaunch.launcher.supervise.stop_signals import StopSignals

LOOK_INTERVAL_S = 0.1
GRACE_S = 10.0  # between asking a command to end, as Ctrl-C does, and ending it
_NOT_FOUND, _NOT_STARTED = 127, 126  # what shells answer


class Ending(NamedTuple):
    """How a command ended."""

    outcome: str
    exit_code: int
    seconds: float
    problem: str = ""


def _become_command() -> None:
    """For a command to call before it becomes its program: Ctrl-C ends it, and so does our death."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # shells let their background jobs ignore it
    processes.die_with_parent()


def run_command(
    command: Command,
    environ: Mapping[str, str],
    directory: Path,
    out: Path,
    err: Path,
    *,
    timeout_s: float,
    signals: StopSignals,
    look: Callable[[float], None],
) -> Ending:
    """Run a command to its end, or until its time is over or a signal asks us to stop."""
    processes.adopt_orphans()
    began = time.monotonic()
    with out.open("wb") as output, err.open("wb") as errors:
        try:
            process = subprocess.Popen(
                list(command.argv),
                cwd=directory,
                env={**environ, **command.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                preexec_fn=_become_command,
            )
        except FileNotFoundError:
            return Ending(FAILED, _NOT_FOUND, 0.0, f"there is no program {command.argv[0]}")
        except (OSError, ValueError) as error:  # ValueError: a character that no program takes
            return Ending(FAILED, _NOT_STARTED, 0.0, f"{command.argv[0]} does not start: {error}")
    outcome = OK
    try:
        outcome = _wait(process, began, timeout_s, signals, look)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        processes.end_all()
    seconds = time.monotonic() - began
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if outcome == TIMEOUT:
        return Ending(TIMEOUT, code, seconds, f"not done after {timeout_s:g} s")
    if outcome == INTERRUPTED:
        return Ending(INTERRUPTED, code, seconds)
    if process.returncode < 0:
        return Ending(FAILED, code, seconds, f"ended by signal {-process.returncode}")
    return Ending(FAILED, code, seconds, f"exit code {code}") if code else Ending(OK, 0, seconds)


def _wait(
    process: subprocess.Popen[bytes],
    began: float,
    timeout_s: float,
    signals: StopSignals,
    look: Callable[[float], None],
) -> str:
    """Wait for a command; the outcome is OK if it ended by itself, whatever its exit code."""
    asked_at: Optional[float] = None
    outcome, requests = OK, 0
    while process.poll() is None:
        now = time.monotonic()
        if asked_at is None and (signals.requests or now >= began + timeout_s):
            outcome = INTERRUPTED if signals.requests else TIMEOUT
            asked_at, requests = now, signals.requests
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
        if asked_at is not None and (signals.requests > requests or now >= asked_at + GRACE_S):
            break
        look(now - began)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_INTERVAL_S)
    return outcome
