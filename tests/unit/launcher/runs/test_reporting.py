from __future__ import annotations

import io
import sys
import time
import webbrowser
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
from fixtures.pages import Page
from fixtures.runs import untraced_copy

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.runs import reporting
from ipulaunch.launcher.runs.reporting import report_at_end, write_report
from ipulaunch.launcher.runs.states import state_of, statuses
from ipulaunch.launcher.schedulers.scheduler import DONE, RUNNING, JobState
from ipulaunch.launcher.show.display import Display

pytest.importorskip("jinja2", reason="pages need the extra [report]")


@pytest.fixture()
def run(tmp_path: Path) -> RunDirectory:
    return untraced_copy("done", tmp_path)


@pytest.fixture()
def display() -> Display:
    return Display(io.StringIO(), io.StringIO())


def said(display: Display) -> str:
    return display.stream.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_run_ends_with_its_page(run: RunDirectory, display: Display) -> None:
    report_at_end(run, "a name", display)
    assert said(display) == "  report      done/report.html\n"
    assert Page(run.report.read_text()).texts_in("h1") == ["a name"]


def test_a_page_that_cannot_be_written_is_a_note(run: RunDirectory, display: Display) -> None:
    run.report.mkdir()
    report_at_end(run, "a name", display)
    assert said(display).startswith("note: the report could not be written: the report ")


def test_a_run_ends_without_a_page_where_the_extra_is_missing(
    run: RunDirectory, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    report_at_end(run, "a name", display)
    assert (said(display), run.report.exists()) == ("", False)


def test_the_command_says_what_to_install(
    run: RunDirectory, ipulaunch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = ipulaunch("report", str(run.path))
    assert (done.code, done.out) == (4, "")
    assert done.err == "error: a report needs Jinja2, which is not installed here: pip install 'ipulaunch[report]'\n"


def test_the_page_lies_in_the_run_or_where_the_user_wants_it(
    run: RunDirectory, ipulaunch: Callable[..., Any], tmp_path: Path
) -> None:
    done = ipulaunch("report", str(run.path))
    assert (done.code, done.out) == (0, f"{run.report}\n"), done.err
    again = ipulaunch("report", "done", "--runs-dir", str(tmp_path), "-o", "page.html")
    assert (again.code, again.out) == (0, "page.html\n"), again.err
    pages = [Page(path.read_text()) for path in (run.report, tmp_path / "page.html")]
    assert pages[0].texts_in("h1") == pages[1].texts_in("h1") == ["done"]
    refused = ipulaunch("report", str(run.path), "-o", "missing/page.html")
    assert refused.code == 2 and "cannot be written: No such file or directory" in refused.err
    assert "hint: give -o another place" in refused.err


@pytest.mark.parametrize("has_browser", [True, False])
def test_the_page_is_opened(
    has_browser: bool, run: RunDirectory, ipulaunch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: List[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)) or has_browser)
    done = ipulaunch("report", str(run.path), "--open")
    assert done.code == 0 and opened == [run.report.as_uri()]
    assert ("there is no browser here" in done.err) is not has_browser


def test_the_page_is_renewed_until_the_run_has_ended(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    states: Iterator[str] = iter([RUNNING, RUNNING, DONE])
    renewed: List[bool] = []

    def observed(path: Path) -> Any:
        story = read(path)
        return story.__class__(**{**story.__dict__, "state": JobState(next(states))})

    def sleep(seconds: float) -> None:
        renewed.append('http-equiv="refresh"' in run.report.read_text())

    read = reporting.told
    monkeypatch.setattr(reporting, "told", observed)
    monkeypatch.setattr(time, "sleep", sleep)
    assert list(write_report(run.path, None, follows=True)) == [run.report] * 3
    assert renewed == [True, True] and 'http-equiv="refresh"' not in run.report.read_text()


@pytest.mark.parametrize(("name", "word"), [("done", "done"), ("failed", "failed"), ("stopped", "stopped")])
def test_the_state_of_one_run_is_that_of_its_status(name: str, word: str, tmp_path: Path) -> None:
    path = untraced_copy(name, tmp_path).path
    (status,), _ = statuses([path])
    assert state_of(path) == JobState(status.state, status.said) and status.state == word
