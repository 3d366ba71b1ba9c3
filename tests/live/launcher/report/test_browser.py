"""Pages about runs, opened in a real browser: all is there, nothing is loaded, and nothing executes."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
from fixtures.browser import Browser, find_browser
from fixtures.pages import Page
from fixtures.runs import BEGAN_NS, beginning, untraced_copy, write_events, write_run

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import WarningEvent
from ipulaunch.topology import Plan

pytest.importorskip("jinja2", reason="pages need the extra [report]")

ROWS = [{"update": n, "epoch": n / 9, "loss": 1 / n, "val_loss": 2 / n, "train_s": n * 1.0} for n in range(1, 10)]


@pytest.fixture()
def browser(tmp_path: Path) -> Browser:
    program = find_browser()
    if program is None:
        pytest.skip("there is no Chromium here: .ci/install-chromium")
    return Browser(program, tmp_path)


@pytest.fixture()
def plan(make_plan: Callable[..., Plan]) -> Plan:
    return make_plan(2, 2)


@pytest.fixture()
def asked() -> Iterator[List[str]]:
    """What a server on loopback was asked for; its address is the first."""
    found: List[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.append(self.path)
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        found.append(f"http://127.0.0.1:{server.server_port}/")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def good(place: Path, plan: Plan) -> RunDirectory:
    return untraced_copy("done", place)


def failed(place: Path, plan: Plan) -> RunDirectory:
    return untraced_copy("failed", place)


def restarted(place: Path, plan: Plan) -> RunDirectory:
    endings: List[Dict[str, Any]] = [
        {"attempt": 1, "exit_code": 7, "headline": "it was ended", "time": "2026-09-21T13:55:00Z"},
        {"attempt": 2, "exit_code": 0, "headline": "done", "time": "2026-09-21T14:00:00Z"},
    ]
    text = "".join(json.dumps(ending) + "\n" for ending in endings)
    run = write_run(RunDirectory(place / "restarted"), plan, ROWS, endings__jsonl=text)
    write_events(run.attempt(1), 0, beginning(0, plan, updates=5), began_ns=BEGAN_NS - 400 * 10**9)
    for instance in range(plan.instances):
        run.done(instance).write_text("{}")
    return run


def running(place: Path, plan: Plan) -> RunDirectory:
    run = write_run(RunDirectory(place / "running"), plan, ROWS[:5])
    run.heartbeat(0).touch()
    return run


SHOWN = {
    good: ("done", "loss by update"),
    failed: ("failed", "The attempts on one line of time"),
    restarted: ("done", "loss by update"),
    running: ("running", "loss by update"),
}


@pytest.mark.parametrize("make", SHOWN, ids=lambda make: make.__name__)
def test_a_page_opens_without_a_word_on_the_console(
    make: Callable[[Path, Plan], RunDirectory],
    browser: Browser,
    plan: Plan,
    tmp_path: Path,
    ipulaunch: Callable[..., Any],
) -> None:
    run = make(tmp_path, plan)
    done = ipulaunch("report", str(run.path))
    assert done.code == 0, done.err
    opened = browser.open(run.report)
    assert opened.console == []
    page = Page(opened.dom)
    state, picture = SHOWN[make]
    assert state in page.texts_in("span")
    assert any(str(svg.get("aria-label")).startswith(picture) for svg in page.tags("svg"))
    assert (make is failed) == (not page.tags("polyline"))  # it failed before its first log
    assert all(str(line["points"]).count(",") >= 1 for line in page.tags("polyline"))
    assert page.texts_in("h2")[:2] == ["What ran", "Settings"]


def test_what_a_run_says_neither_runs_nor_loads_anything(
    browser: Browser, plan: Plan, tmp_path: Path, asked: List[str], ipulaunch: Callable[..., Any]
) -> None:
    hostile = f"</title></style></pre><script src='{asked[0]}s'></script><img src=\"{asked[0]}i\"><svg onload=alert(1)>"
    rows = [{"update": n, hostile: n / 3, "loss": 1.0} for n in range(1, 4)]
    run = write_run(RunDirectory(tmp_path / "run"), plan, rows, command__txt=hostile)
    write_events(run, 0, [WarningEvent(hostile)])
    run.error(0).write_text(json.dumps({"time_ns": 1, "type": hostile, "message": hostile, "traceback": hostile}))
    run.log(0).write_text(hostile)
    assert ipulaunch("report", str(run.path)).code == 0
    opened = browser.open(run.report)
    assert opened.console == [] and len(asked) == 1
    page = Page(opened.dom)
    page.require_harmless()
    assert page.text.count("<script src=") >= 5


def test_the_policy_of_a_page_stops_what_would_load_or_run(
    browser: Browser, plan: Plan, tmp_path: Path, asked: List[str], ipulaunch: Callable[..., Any]
) -> None:
    """Even if some text came to be markup."""
    run = write_run(RunDirectory(tmp_path / "run"), plan, ROWS)
    assert ipulaunch("report", str(run.path)).code == 0
    text = run.report.read_text()
    more = f"<main><script>document.title = 'taken'</script><img src='{asked[0]}i'><script src='{asked[0]}s'></script>"
    run.report.write_text(text.replace("<main>", more))
    opened = browser.open(run.report)
    assert len(opened.console) == 3 and all("Content Security Policy" in line for line in opened.console)
    assert len(asked) == 1 and "<title>taken" not in opened.dom


def test_a_page_is_drawn_in_light_and_dark_and_can_be_printed(
    browser: Browser, tmp_path: Path, ipulaunch: Callable[..., Any]
) -> None:
    run = untraced_copy("done", tmp_path)
    assert ipulaunch("report", str(run.path)).code == 0
    light = browser.screenshot(run.report, tmp_path / "light.png", "--blink-settings=preferredColorScheme=1")
    dark = browser.screenshot(run.report, tmp_path / "dark.png", "--blink-settings=preferredColorScheme=0")
    assert light.startswith(b"\x89PNG") and dark.startswith(b"\x89PNG") and light != dark
    assert browser.print(run.report, tmp_path / "page.pdf").startswith(b"%PDF")
