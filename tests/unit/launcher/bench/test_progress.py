from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import pytest

from ipulaunch.configs.benchmarks import COMPILE_TIME, Benchmark, Metric
from ipulaunch.launcher.bench.progress import PlainProgress, last_line, make_progress, tail
from ipulaunch.launcher.bench.results import DURATION, FAILED, OK, Round

BENCHMARK = Benchmark("it", "a.yml:1", "x", metrics=(Metric("loss", re.compile("x")),), output=(("the loss", "loss"),))


def _round(place: Path, outcome: str, *problems: str) -> Round:
    values = {"loss": 0.25 if outcome == OK else None, DURATION: 61.04, COMPILE_TIME: None}
    return Round(outcome, 0, values, "", "", place / "stdout", place / "stderr", problems)


@pytest.fixture()
def logs(tmp_path: Path) -> Any:
    (tmp_path / "stdout").write_bytes(b"one\ntwo 10%\rtwo 20%\n")
    (tmp_path / "stderr").write_bytes(b"\x1b[31mred\x1b[0m and \xff\n\n")
    os.utime(tmp_path / "stdout", (1, 1))
    os.utime(tmp_path / "stderr", (2, 2))
    return (tmp_path / "stdout", tmp_path / "stderr")


def test_lines_elsewhere_than_on_a_terminal(logs: Any, tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = make_progress(stream, ["s3cr3t"])
    progress.begin("[1/2] it", "run s3cr3t")
    for seconds in (0.1, 29.9, 30.1, 30.2, 61.0):
        progress.look(seconds, logs)
    progress.end(BENCHMARK, _round(tmp_path, OK))
    assert stream.getvalue().splitlines() == [
        "[1/2] it: run ***",
        "  30 s:  [31mred [0m and \ufffd",
        "  61 s:  [31mred [0m and \ufffd",
        "  ok after 61.0 s, the loss 0.25",
    ]


def test_a_failure_shows_why_and_the_last_lines(logs: Any, tmp_path: Path) -> None:
    stream = io.StringIO()
    PlainProgress(stream).end(BENCHMARK, _round(tmp_path, FAILED, "exit code 3"))
    assert stream.getvalue().splitlines() == [
        "  failed after 61.0 s",
        "  exit code 3",
        "  |  [31mred [0m and \ufffd",
        f"  logs: {tmp_path}",
    ]


def test_the_log_that_was_written_last_is_shown(logs: Any) -> None:
    os.utime(logs[0], (3, 3))
    assert tail(logs) == ["one", "two 10%", "two 20%"]
    assert last_line(logs) == "two 20%"


def test_logs_that_are_empty_or_missing_show_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert last_line((tmp_path / "empty", tmp_path / "missing")) == ""


def test_a_line_that_moves_on_a_terminal(logs: Any, tmp_path: Path, terminal: Any) -> None:
    progress = make_progress(terminal.stream)
    assert type(progress) is not PlainProgress
    progress.begin("[1/2] it", "run")
    progress.look(3.0, logs)
    progress.end(BENCHMARK, _round(tmp_path, OK))
    progress.close()


def test_a_terminal_that_has_gone_stops_nothing(logs: Any, tmp_path: Path, terminal: Any) -> None:
    progress = make_progress(terminal.stream)
    progress.begin("[1/2] it", "run")
    terminal.vanish()
    progress.look(3.0, logs)
    progress.end(BENCHMARK, _round(tmp_path, OK))
