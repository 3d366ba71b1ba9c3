"""What an instance leaves behind: events as they happen, and at the end one of error.json and done.json."""

from __future__ import annotations

import json
import time
import traceback
from typing import Any, Callable, Mapping

from ipulaunch.configs.errors import IpulaunchError, StoppedError
from ipulaunch.configs.run_directory import RunDirectory, write_whole

UNEXPECTED = 7


class Records:
    """The records of one instance."""

    def __init__(self, run: RunDirectory, instance: int) -> None:
        self.run, self.instance = run, instance
        run.instance(instance).mkdir(parents=True, exist_ok=True)
        self._events = run.events(instance).open("a", encoding="utf-8", buffering=1)
        self.on_event: Callable[[], None] = lambda: None

    def event(self, kind: str, **fields: Any) -> None:
        """One line in events.jsonl; time in nanoseconds, so that the first failure can be told."""
        self._events.write(json.dumps({"event": kind, "time_ns": time.time_ns(), **fields}) + "\n")
        self.on_event()

    def done(self, fields: Mapping[str, Any]) -> None:
        """The last record of a good instance."""
        self._write("done", {"time_ns": time.time_ns(), **fields})

    def stopped(self, error: StoppedError) -> None:
        """The last record of an instance that was asked to stop."""
        self._write("stopped", {"time_ns": time.time_ns(), "message": error.message})

    def error(self, error: BaseException) -> None:
        """The last record of a failed instance."""
        fields = {
            "time_ns": time.time_ns(),
            "type": type(error).__name__,
            "message": str(error),
            "hint": getattr(error, "hint", ""),
            "exit_code": error.exit_code if isinstance(error, IpulaunchError) else UNEXPECTED,
            "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
        }
        self._write("error", fields)

    def _write(self, name: str, fields: Mapping[str, Any]) -> None:
        self._events.close()
        path = getattr(self.run, name)(self.instance)
        write_whole(path, json.dumps(fields, indent=1) + "\n")
