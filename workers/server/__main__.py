"""`python -m ipulaunch.workers.server TASK`: options as one JSON object on stdin, events as JSON lines on stdout.

`serving` answers requests until it is ended. `sending` sends them, with samples that `samples` has written.
`description` says what a SavedModel takes and gives. Only `serving` and `samples` load TensorFlow.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, Dict

from ipulaunch.configs.errors import NotReadyError, UsageError, near_miss
from ipulaunch.data_pipeline.reported import Report, reported, settle

TASKS = ("serving", "description", "samples", "sending")
_EXTRA = ("grpc", "google")


def main() -> int:
    """The exit code of one task."""
    settle(os.environ)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it logs as errors comes to us as errors, too
    if "sending" in sys.argv:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # senders are forked: NumPy must not have started threads
    return reported(lambda report: _run(sys.argv[1:], sys.stdin.read(), report))


def _run(words: Any, text: str, report: Report) -> Dict[str, Any]:
    if len(words) != 1 or words[0] not in TASKS:
        raise UsageError(f"{' '.join(words)!r} is not a task", hint=near_miss(words[0] if words else "", TASKS))
    try:
        task = importlib.import_module(f"ipulaunch.workers.server.{words[0]}")
    except ModuleNotFoundError as error:
        name = str(error.name)
        extra = "serving" if name.split(".")[0] in _EXTRA else "cpu"
        raise NotReadyError(
            f"serving needs {name}, which is not installed",
            hint=f"pip install 'ipulaunch[{extra}]'" + (", or enable the Poplar SDK" if extra == "cpu" else ""),
        ) from error
    result: Dict[str, Any] = task.run(json.loads(text), report)
    return result


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # all is reported and closed: taking TensorFlow apart would keep whoever waits for our end
