"""`ipulaunch logs`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Tuple

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.cli.commands import logs
from ipulaunch.launcher.cli.commands.logs import Logs

Run = Callable[..., Any]


def test_logs(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", done_json="01")
    (path / "engine.txt").write_text("hello\n")
    code, out, _ = ipulaunch("logs", "a")
    assert code == 0
    assert sorted(out.splitlines()) == [
        "engine | hello",
        "localhost:0 | first line of 0",
        "localhost:0 | last of 0",
        "localhost:1 | first line of 1",
        "localhost:1 | last of 1",
    ]
    assert ipulaunch("logs", "a", "--instance", "1").out == "first line of 1\nlast of 1\n"


def test_logs_of_an_instance_that_is_not_there(make_run: Any, ipulaunch: Run) -> None:
    make_run("a")
    code, _, err = ipulaunch("logs", "a", "--instance", "2")
    assert code == 2
    assert "there is no instance 2: the run has 0 to 1" in err


def test_logs_of_a_job(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"}, done_json="01")
    (path / "scheduler.log").write_text("from Slurm\n")
    assert "scheduler | from Slurm\n" in ipulaunch("logs", "a").out
    assert ipulaunch("logs", "a", "--instance", "0").out.startswith("first line of 0\n")


@pytest.fixture()
def after_the_first_look(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Lets something happen to logs that are followed, as soon as they have been looked at once."""
    monkeypatch.setattr(logs, "STATE_INTERVAL_S", 0.05)
    monkeypatch.setattr(logs, "LOOK_INTERVAL_S", 0.01)

    def happens(what: Callable[[], None]) -> None:
        look, left = Logs.look, [what]

        def looked(self: Logs, paths: Dict[str, Path]) -> Iterator[Tuple[str, str]]:
            yield from look(self, paths)
            if left:
                left.pop()()

        monkeypatch.setattr(Logs, "look", looked)

    return happens


def test_logs_are_followed_until_the_run_ends(make_run: Any, ipulaunch: Run, after_the_first_look: Any) -> None:
    run = RunDirectory(make_run("a", heartbeat="01"))

    def end() -> None:
        with run.log(0).open("a") as file:
            file.write(", and more\n")
        for index in range(2):
            run.done(index).touch()

    after_the_first_look(end)
    out = ipulaunch("logs", "a", "-f", "--instance", "0").out
    assert out == "first line of 0\nlast of 0, and more\n"


def test_logs_are_followed_into_the_next_attempt(make_run: Any, ipulaunch: Run, after_the_first_look: Any) -> None:
    run = RunDirectory(make_run("a", heartbeat="01"))

    def begin_again() -> None:
        with run.log(0).open("a") as file:
            file.write(" that is cut off")
        run.attempts.mkdir()
        shutil.move(str(run.instance(0)), str(run.attempts / "1"))
        run.instance(0).mkdir()
        run.log(0).write_text("of the second attempt\n")
        for index in range(2):
            run.done(index).touch()

    after_the_first_look(begin_again)
    out = ipulaunch("logs", "a", "-f", "--instance", "0").out
    assert out == "first line of 0\nlast of 0 that is cut off\nof the second attempt\n"


def test_a_log_that_was_moved_away_is_read_until_there_is_another(tmp_path: Path) -> None:
    path, read = tmp_path / "log", Logs()
    look = lambda: [line for _, line in read.look({"a": path})]  # noqa: E731
    path.write_text("one\n")
    assert look() == ["one"]
    with path.open("a") as file:
        path.rename(tmp_path / "moved")
        file.write("two\n")
        file.flush()
        assert look() == ["two"]
        file.write("three\nfour")
    path.write_text("five\n")
    assert look() == ["three", "four", "five"]
    assert list(read.close({"a": path})) == []
