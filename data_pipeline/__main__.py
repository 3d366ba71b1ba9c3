"""`python -m ipulaunch.data_pipeline TASK`: options as one JSON object on stdin, events as JSON lines on stdout."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, Dict

from ipulaunch.configs.errors import DataError, NotReadyError, UsageError, near_miss
from ipulaunch.data_pipeline.reported import reported, settle

TASKS = ("make_cosmoflow", "make_images", "index", "verify", "build_imagenet", "audit", "bench", "capacity")


def main() -> int:
    """The exit code of one task."""
    settle(os.environ)
    return reported(lambda report: _run(sys.argv[1:], sys.stdin.read(), report))


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


if __name__ == "__main__":
    sys.exit(main())
