"""What the user sees while benchmarks run, on stderr."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Collection, Sequence, TextIO, Tuple

from ipulaunch.configs.benchmarks import Benchmark
from ipulaunch.configs.runs.secrets import masked
from ipulaunch.launcher.bench.results import INTERRUPTED, OK, Round

_PLAIN_INTERVAL_S = 30.0
_TAIL_BYTES, _TAIL_LINES = 4096, 5


class PlainProgress:
    """Lines for the beginning and the end of each round, and one now and then."""

    def __init__(self, stream: TextIO, secrets: Collection[str] = ()) -> None:
        self.stream, self.secrets = stream, secrets
        self.what = ""
        self.next_line = 0.0

    def begin(self, what: str, command: str) -> None:
        """A round of a variant begins."""
        self.what, self.next_line = what, _PLAIN_INTERVAL_S
        self.line(f"{what}: {command}")

    def look(self, seconds: float, logs: Sequence[Path]) -> None:
        """Some time has passed."""
        if seconds >= self.next_line:
            self.next_line = seconds + _PLAIN_INTERVAL_S
            self.line(f"  {seconds:.0f} s: {last_line(logs)}")

    def end(self, benchmark: Benchmark, done: Round) -> None:
        """The round has ended."""
        seconds = done.values.get("test_duration") or 0.0
        self.line(f"  {done.outcome} after {seconds:.1f} s{self._numbers(benchmark, done)}", done.outcome)
        for problem in done.problems:
            self.line(f"  {problem}")
        if done.outcome not in (OK, INTERRUPTED):
            for line in tail((done.err,)) or tail((done.out,)):
                self.line(f"  | {line}")
            self.line(f"  logs: {done.out.parent}")

    def _numbers(self, benchmark: Benchmark, done: Round) -> str:
        shown = shown_metrics(benchmark)
        found = [(label, done.values.get(name)) for label, name in shown]
        return "".join(f", {label} {value:.6g}" for label, value in found if value is not None)

    def line(self, text: str, outcome: str = "") -> None:
        with contextlib.suppress(OSError):  # nobody listens any more; the benchmarks go on
            self.stream.write(masked(text, self.secrets) + "\n")
            self.stream.flush()

    def close(self) -> None:
        """Nothing is drawn any more."""


def make_progress(stream: TextIO, secrets: Collection[str] = ()) -> PlainProgress:
    """A line that moves on a terminal, plain lines elsewhere; the secrets are masked."""
    if not stream.isatty():
        return PlainProgress(stream, secrets)
    from ipulaunch.launcher.bench.live_progress import LiveProgress

    return LiveProgress(stream, secrets)


def shown_metrics(benchmark: Benchmark) -> Sequence[Tuple[str, str]]:
    """Label and name of the metrics to show: those of the output rows, else all."""
    names = [*(metric.name for metric in benchmark.metrics), *benchmark.derived]
    return benchmark.output or [(name, name) for name in names]


def tail(logs: Sequence[Path], most: int = _TAIL_LINES) -> Sequence[str]:
    """The last lines of the log that was written last, without what could move the cursor."""
    written = []
    for log in logs:
        with contextlib.suppress(OSError):
            status = log.stat()
            if status.st_size:
                written.append((status.st_mtime, log))
    if not written:
        return ()
    with max(written)[1].open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        text = file.read().decode("utf-8", "replace")
    lines = ("".join(each if each.isprintable() else " " for each in line).rstrip() for line in text.splitlines())
    return [line for line in lines if line][-most:]


def last_line(logs: Sequence[Path]) -> str:
    """The newest line of the logs."""
    return "".join(tail(logs, 1))
