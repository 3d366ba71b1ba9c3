"""Tasks: processes that do the work on data sets and models, and what they report, drawn as it comes.

The launcher never loads TensorFlow; `python -m ipulaunch.data_pipeline TASK` and others do, where a task needs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, TextIO

from ipulaunch.configs.errors import INTERRUPTED, IpulaunchError, JobError
from ipulaunch.launcher.supervise.processes import die_with_parent

_PLAIN_INTERVAL_S = 5.0
_GRACE_S = 10.0  # for a task to remove what is half-written
_TAIL_LINES = 5


class TaskResult(NamedTuple):
    """What a task came to: its result, and the defects it reported on the way."""

    result: Dict[str, Any]
    defects: List[Dict[str, Any]]


def run_task(task: str, options: Mapping[str, Any]) -> TaskResult:
    """Run a task to its end, with its progress on stderr. Its error is raised as ours."""
    return follow(task_argv(task), options, make_progress(sys.stderr))


def task_argv(task: str) -> List[str]:
    return [sys.executable, "-m", "ipulaunch.data_pipeline", task]


def follow(argv: Sequence[str], options: Mapping[str, Any], progress: PlainProgress, *, task: str = "") -> TaskResult:
    """Start a task, show what it reports and wait for its result; without a name it is called by its last word."""
    result: Dict[str, Any] = {}
    defects: List[Dict[str, Any]] = []
    with tempfile.TemporaryFile() as stderr, _half_written() as half_written:
        with _started(argv, options, stderr) as process, progress:
            for event in _events(process.stdout):
                kind = event.pop("event", "")
                if kind == "progress":
                    progress.show(event["what"], event["done"], event["total"])
                elif kind == "note":
                    progress.note(str(event["text"]))
                elif kind == "defect":
                    defects.append(event)
                elif kind == "making":
                    half_written.append(Path(event["path"]))
                elif kind == "error":
                    raise TaskError(event)
                elif kind == "result":
                    result = event
        if process.returncode == INTERRUPTED:  # someone else ended it
            raise KeyboardInterrupt
        if process.returncode or not result:
            tail = _tail(stderr)
            raise JobError(f"{task or argv[-1]} ended with exit code {process.returncode} and no result", hint=tail)
    return TaskResult(result, defects)


class TaskError(IpulaunchError):
    """What a task says is wrong; the exit code is the task's."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        super().__init__(str(event["message"]), hint=str(event["hint"]))
        self.exit_code = int(event["exit_code"])


class PlainProgress:
    """A line every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.next_line = time.monotonic() + _PLAIN_INTERVAL_S
        self.has_shown = False  # what was begun to be counted is counted to its end

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, text: str) -> None:
        """A line by itself."""
        self.stream.write(text + "\n")
        self.stream.flush()

    def show(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        self.has_shown = self.has_shown or now >= self.next_line
        if now >= self.next_line or (done == total and self.has_shown):
            self.next_line = now + _PLAIN_INTERVAL_S
            self.stream.write(f"{done}/{total} {what}\n")
            self.stream.flush()


class BarProgress(PlainProgress):
    """A bar on a terminal, gone when the task has ended."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(file=stream), transient=True)
        self.tasks: Dict[str, Any] = {}

    def __enter__(self) -> BarProgress:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)

    def show(self, what: str, done: int, total: int) -> None:
        if what not in self.tasks:
            self.tasks[what] = self.bar.add_task(what, total=total)
        self.bar.update(self.tasks[what], completed=done)


def make_progress(stream: TextIO) -> PlainProgress:
    """A bar on a terminal, plain lines elsewhere."""
    return BarProgress(stream) if stream.isatty() else PlainProgress(stream)


@contextlib.contextmanager
def _started(argv: Sequence[str], options: Mapping[str, Any], stderr: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a task in its own session; it has ended when this is left, one way or the other."""
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    try:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already, and says why
            process.stdin.write(json.dumps(dict(options)).encode())
            process.stdin.close()
        yield process
        process.wait()
    finally:
        _end(process)
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def _half_written() -> Iterator[List[Path]]:
    """The directories that a task is writing: what is left of them is removed if the task had to be killed."""
    paths: List[Path] = []
    try:
        yield paths
    except BaseException:
        for path in reversed(paths):
            shutil.rmtree(path, ignore_errors=True)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _events(stream: Any) -> Iterator[Dict[str, Any]]:
    for line in stream:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def _tail(stderr: IO[bytes]) -> str:
    """The last lines a task wrote about itself."""
    stderr.seek(0)
    return "\n".join(stderr.read().decode("utf-8", "replace").strip().splitlines()[-_TAIL_LINES:])
