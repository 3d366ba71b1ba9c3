"""A process that tells the launcher what it does: JSON lines on stdout, the last one its result or its error."""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Callable, Dict, MutableMapping, NoReturn, TextIO

from ipulaunch.configs.errors import INTERRUPTED, IpulaunchError
from ipulaunch.configs.keras_2 import use_keras_2

Report = Callable[[Dict[str, Any]], None]


def reported(work: Callable[[Report], Dict[str, Any]]) -> int:
    """Do some work and report what it returns, or the error that ended it; returns the exit code."""
    _end_quietly_on(signal.SIGINT, signal.SIGTERM)
    try:
        with _only_ours() as lines:
            return _work(work, lines)
    except (KeyboardInterrupt, BrokenPipeError):  # nobody waits for the result any more
        return INTERRUPTED


def _work(work: Callable[[Report], Dict[str, Any]], lines: TextIO) -> int:
    def report(event: Dict[str, Any]) -> None:
        lines.write(json.dumps(event) + "\n")
        lines.flush()

    try:
        result = work(report)
    except IpulaunchError as error:
        report({"event": "error", "message": error.message, "hint": error.hint, "exit_code": error.exit_code})
        return error.exit_code
    report({"event": "result", **result})
    return 0


def settle(environ: MutableMapping[str, str]) -> None:
    """Set what TensorFlow reads when it is imported: no greeting, no GPU, and the Keras of the IPU."""
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    environ["CUDA_VISIBLE_DEVICES"] = "-1"
    use_keras_2(environ)


def _only_ours() -> TextIO:
    """The real stdout; whatever else this process prints goes to stderr."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lines


def _end_quietly_on(*signals: signal.Signals) -> None:
    def interrupt(number: int, frame: Any) -> NoReturn:
        raise KeyboardInterrupt

    for number in signals:
        signal.signal(number, interrupt)
