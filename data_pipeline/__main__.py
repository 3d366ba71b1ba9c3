"""`python -m ipulaunch.data_pipeline TASK`: options as one JSON object on stdin, events as JSON lines on stdout."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any, Dict, MutableMapping, NoReturn, TextIO

from ipulaunch.configs.errors import (
    INTERRUPTED,
    DataError,
    IpulaunchError,
    NotReadyError,
    UsageError,
    near_miss,
)
from ipulaunch.configs.keras_2 import use_keras_2

TASKS = ("make_cosmoflow", "make_images", "index", "verify", "build_imagenet", "audit", "bench")


def main() -> int:
    """The exit code of one task."""
    _end_quietly_on(signal.SIGINT, signal.SIGTERM)
    _settle(os.environ)
    try:
        with _only_ours() as lines:
            return _run_task(sys.argv[1:], sys.stdin.read(), lines)
    except (KeyboardInterrupt, BrokenPipeError):  # nobody waits for the result any more
        return INTERRUPTED


def _run_task(words: Any, text: str, lines: TextIO) -> int:
    def report(event: Dict[str, Any]) -> None:
        lines.write(json.dumps(event) + "\n")
        lines.flush()

    try:
        result = _run(words, text, report)
    except IpulaunchError as error:
        report({"event": "error", "message": error.message, "hint": error.hint, "exit_code": error.exit_code})
        return error.exit_code
    report({"event": "result", **result})
    return 0


def _run(words: Any, text: str, report: Any) -> Dict[str, Any]:
    if len(words) != 1 or words[0] not in TASKS:
        raise UsageError(f"{' '.join(words)!r} is not a task", hint=near_miss(words[0] if words else "", TASKS))
    try:
        options = json.loads(text)
        if not isinstance(options, dict):
            raise ValueError("it is not an object")
    except ValueError as error:
        raise UsageError(f"the options on stdin are not a JSON object: {error}") from error
    try:
        task = importlib.import_module(f"ipulaunch.data_pipeline.tools.{words[0]}")
        result: Dict[str, Any] = task.run(options, report)
    except BrokenPipeError:
        raise
    except ModuleNotFoundError as error:
        hint = "pip install 'ipulaunch[cpu]', or enable the Poplar SDK"
        raise NotReadyError(f"{words[0]} needs {error.name}, which is not installed", hint=hint) from error
    except OSError as error:
        raise DataError(f"{error.filename or words[0]}: {error.strerror or error}") from error
    return result


def _settle(environ: MutableMapping[str, str]) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
