"""What an instance leaves behind: events as they happen, and a last record that tells how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import time
import traceback
from typing import Any, Callable, Dict, Mapping, Tuple

from ipulaunch.configs.errors import IpulaunchError, JobError, StoppedError
from ipulaunch.configs.runs.directory import RunDirectory, write_whole
from ipulaunch.configs.runs.events import Event, Started
from ipulaunch.configs.runs.last_records import Done, Failed, LastRecord, Stopped, path_of, to_text
from ipulaunch.configs.runs.secrets import masked, secret_values
from ipulaunch.workers.lifecycle.failures import failure_of

UNEXPECTED = JobError.exit_code


class Records:
    """The records of one instance."""

    def __init__(self, run: RunDirectory, instance: int) -> None:
        self.run, self.instance = run, instance
        self._hidden = secret_values(os.environ)
        run.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        run.instance(instance).mkdir(exist_ok=True)
        self._events = run.events(instance).open("a", encoding="utf-8", buffering=1)
        self._identity = _identity(os.fstat(self._events.fileno()))
        self.on_event: Callable[[], None] = lambda: None

    @property
    def are_current(self) -> bool:
        """Whether the run is still ours: the next attempt moves our directory away and makes one of its own.

        An instance on a host that was cut off may live on after others have taken over the run. It must not write into
        the run any more.
        """
        try:
            return _identity(self.run.events(self.instance).stat()) == self._identity
        except FileNotFoundError:
            return False
        except OSError:  # the file system does not answer, so we do not know
            return True

    def require_current(self) -> None:
        """Call this before writing anything that belongs to the run as a whole."""
        if not self.are_current:
            raise JobError("another attempt has taken over the run", hint="nothing was lost: see the newest attempt")

    def event(self, event: Event) -> None:
        """Add a line to events.jsonl; its time is in nanoseconds, which shows whose failure is the first."""
        fields = event.to_json()
        record = {"event": fields.pop("event"), "time_ns": time.time_ns(), **self._shown(fields)}
        self._events.write(json.dumps(record) + "\n")
        self.on_event()
        self._say(event)

    def _say(self, event: Event) -> None:
        """Log the event. The instances train together, so instance 0 logs it for all."""
        text = masked(event.text, self._hidden) if self.instance == 0 or isinstance(event, Started) else ""
        if text:
            with contextlib.suppress(OSError):  # nobody reads the log any more, and others decide whether to go on
                print(text, flush=True)

    def done(self, summary: Mapping[str, Any]) -> None:
        """The last record of a good instance."""
        self._write(Done(time.time_ns(), summary))

    def stopped(self, error: StoppedError) -> None:
        """The last record of an instance that was asked to stop."""
        self._write(Stopped(time.time_ns(), error.message))

    def error(self, error: BaseException) -> None:
        """The last record of a failed instance."""
        failure = failure_of(error, self.run.path)
        code = error.exit_code if isinstance(error, IpulaunchError) else UNEXPECTED
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self._write(Failed(time.time_ns(), failure.kind, failure.message, failure.hint, code, trace))

    def _write(self, record: LastRecord) -> None:
        with contextlib.suppress(OSError):  # lines that found no room; this record may still find some
            self._events.close()
        if not self.are_current:
            return
        write_whole(path_of(record, self.run, self.instance), to_text(self._shown(record.to_json())))

    def _shown(self, fields: Mapping[str, Any]) -> Dict[str, Any]:
        """The fields without secrets: messages of errors may quote what they were given."""
        return {key: masked(value, self._hidden) if isinstance(value, str) else value for key, value in fields.items()}


def _identity(status: os.stat_result) -> Tuple[int, int]:
    return status.st_dev, status.st_ino
