from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from fixtures.pages import Page
from fixtures.runs import BEGAN_NS, beginning, untraced_copy, write_events, write_run

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import CheckpointWritten, Event, Log, Started, Update, WarningEvent
from ipulaunch.launcher.report.audit import Audit
from ipulaunch.launcher.report.run_page import run_page
from ipulaunch.launcher.report.story import read_story
from ipulaunch.launcher.runs.run_state import plan_of
from ipulaunch.launcher.schedulers.scheduler import DONE, FAILED, RUNNING, JobState
from ipulaunch.topology import Plan

pytest.importorskip("jinja2", reason="pages need the extra [report]")

MOST_BYTES = 2_000_000
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>&lt;i&gt; \u202egnp.exe\x1b[31m{{ 7 * 7 }}"
STATES = {
    "done": JobState(DONE),
    "failed": JobState(FAILED, "it broke"),
    "stopped": JobState("stopped", "with a checkpoint"),
    "images-stopped": JobState("stopped"),
}


def page_of(run: RunDirectory, state: JobState, **more: Any) -> Page:
    text = run_page(read_story(run, plan_of(run), state, run.path.name), None, **more)
    assert len(text.encode()) < MOST_BYTES
    page = Page(text)
    page.require_harmless()
    assert len(page.ids) == len(set(page.ids))
    return page


@pytest.mark.parametrize("name", STATES)
def test_a_run_of_version_0_1_0_has_its_page(name: str, tmp_path: Path) -> None:
    page = page_of(untraced_copy(name, tmp_path), STATES[name])
    headings = [text for level in ("h1", "h2") for text in page.texts_in(level)]
    assert headings == [name, "What ran", "Settings", "How it went", "How it ended"]
    assert f"{STATES[name].word}" in page.texts_in("span")
    assert "Where each setting came from is not recorded" in page.text
    assert ("mpirun" in page.text, "TensorFlow" in page.text) == (True, True)
    pictures = [str(each["aria-label"]) for each in page.tags("svg") if each.get("role") == "img"]
    if name == "failed":
        assert "the loss is not finite any more after update 2" in page.text
        assert "Hint: lower the learning rate" in page.text and "Nothing was logged" in page.text
    else:
        assert any(label.startswith("loss by update: training from ") for label in pictures)
        assert page.tags("polyline")


def test_every_picture_and_every_wide_part_has_a_label_and_can_be_reached(tmp_path: Path) -> None:
    page = page_of(untraced_copy("done", tmp_path), JobState(DONE))
    assert all(each.get("aria-label") or each.get("aria-hidden") for each in page.tags("svg"))
    assert all(each.get("tabindex") == "0" and each.get("aria-label") for each in page.tags("pre"))
    assert all(each.get("scope") in ("col", "row") for each in page.tags("th"))
    assert len(page.tags("details")) == len(page.tags("summary"))


def test_settings_stand_with_where_they_came_from(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    run = write_run(RunDirectory(tmp_path / "r"), make_plan(1, 1), [])
    origins = json.loads(run.origins.read_text())
    run.origins.write_text(json.dumps({**origins, "training.num_epochs": "my.yaml:12"}))
    story = read_story(run, plan_of(run), JobState(DONE), "r")
    text = run_page(story, None)
    chosen = text[text.index("Chosen for this run") : text.index("All other settings")]
    assert "training.num_epochs" in chosen and "my.yaml:12" in chosen and "data.n_train" not in chosen
    assert "configs/workloads/mnist.yaml" in text


def test_nothing_that_a_run_says_is_markup(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(2, 2)
    rows: List[Dict[str, Any]] = [{"update": 1, HOSTILE: 0.5, "loss": 1.0}, {"update": 2, HOSTILE: 0.7, "loss": 2.0}]
    ending = json.dumps({"attempt": 1, "exit_code": 7, "headline": HOSTILE, "time": HOSTILE})
    summary = {"metrics": {HOSTILE: 1.0}, "best": {"checkpoint": HOSTILE, "val_loss": 1}, "judged_by": HOSTILE}
    run = write_run(
        RunDirectory(tmp_path / "run"),
        plan,
        rows,
        command__txt=HOSTILE,
        endings__jsonl=ending + "\n",
        engine__txt=HOSTILE,
        summary__json=json.dumps({**summary, "target": {"value": HOSTILE, "reached_by": {"checkpoint": HOSTILE}}}),
        origins__json=json.dumps({"training.num_epochs": HOSTILE}),
    )
    started = Started(
        HOSTILE, 1, HOSTILE, {}, {"cpus": HOSTILE, "memory": HOSTILE}, {HOSTILE: HOSTILE}, HOSTILE, HOSTILE
    )
    write_events(run, 1, [started, WarningEvent(HOSTILE), CheckpointWritten(HOSTILE, 1)])
    error = {"time_ns": 1, "type": HOSTILE, "message": HOSTILE, "hint": HOSTILE, "traceback": HOSTILE}
    run.error(1).write_text(json.dumps(error))
    run.log(1).write_text(HOSTILE + "\n")
    text = run_page(read_story(run, plan, JobState(FAILED, HOSTILE), HOSTILE), Audit(False, HOSTILE, (HOSTILE,)))
    page = Page(text)
    page.require_harmless()
    assert page.text.count("<script>alert(1)</script>") > 15
    assert "\u202e" not in text and "\x1b" not in text
    assert "{{ 7 * 7 }}" in page.text and "49" not in page.texts_in("h1")[0]


def test_ten_megabytes_of_text_become_a_page_that_can_be_mailed(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    long = "<b>" + "y" * 10_000_000
    run = write_run(RunDirectory(tmp_path / "run"), make_plan(1, 1), [], command__txt=long, engine__txt=long)
    run.log(0).write_text(long)
    run.error(0).write_text(json.dumps({"time_ns": 1, "type": "E", "message": long, "hint": long, "traceback": long}))
    write_events(run, 0, [WarningEvent("<i>" + "z" * 900_000)])
    page = page_of(run, JobState(FAILED, long))
    assert "more characters" in page.text and len(page.text) < 200_000


def test_secrets_of_the_environment_are_on_no_page(
    tmp_path: Path, make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-<&>'\"-hunter2"  # which markup would write in other characters
    monkeypatch.setenv("MY_API_TOKEN", secret)
    run = write_run(
        RunDirectory(tmp_path / "run"), make_plan(1, 1), [{"update": 1, secret: 1.0}], command__txt=f"run --x {secret}"
    )
    write_events(
        run, 0, [WarningEvent(f"no answer from db://me:{secret}@host, API_KEY=abcdef and db://me:pw1234@host")]
    )
    run.error(0).write_text(
        json.dumps({"time_ns": 1, "type": "E", "message": "x" * 7990 + secret, "traceback": secret})
    )
    text = run_page(read_story(run, plan_of(run), JobState(FAILED, secret), secret), None)
    assert "hunter2" not in text and "pw1234" not in text and "abcdef" not in text
    assert Page(text).text.count("***") >= 7


def test_large_runs_have_small_pages_that_say_what_they_leave_out(
    tmp_path: Path, make_plan: Callable[..., Plan]
) -> None:
    plan = make_plan(256, 256, layout=(8, 256))
    values = {"epoch": 1.0, "samples_per_s": 9.0, "learning_rate": 0.1}
    rows = [
        {"update": n, **values, "train_s": n / 7, **{f"measure {m}": (n * 7919) % 104_729 for m in range(20)}}
        for n in range(1, 5_001)
    ]
    rows[3_210]["measure 0"] = 1e9
    run = write_run(RunDirectory(tmp_path / "run"), plan, rows)
    page = page_of(run, JobState(DONE))
    assert "5,000 values, drawn as " in page.text and "No extreme is lost" in page.text
    assert any("measure 0 by update: training from" in str(svg.get("aria-label")) for svg in page.tags("svg"))
    assert any("to 1,000,000,000" in str(svg.get("aria-label")) for svg in page.tags("svg"))
    assert "Only the first 16 measures are drawn." in page.text
    assert "instance 255" not in page.texts_in("th") and "instance 0" in page.texts_in("th")  # the slowest


def test_attempts_stand_on_one_line_of_time(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(1, 1)
    endings = [
        {"attempt": 1, "exit_code": 7, "headline": "no progress for 60 s", "time": "2026-09-21T13:55:00Z"},
        {"attempt": 2, "exit_code": 0, "headline": "done", "time": "2026-09-21T14:00:00Z"},
    ]
    text = "".join(json.dumps(ending) + "\n" for ending in endings)
    run = write_run(RunDirectory(tmp_path / "run"), plan, [{"update": 5, "loss": 1.0}], endings__jsonl=text)
    write_events(run.attempt(1), 0, beginning(0, plan, updates=40), began_ns=BEGAN_NS - 300 * 10**9)
    page = page_of(run, JobState(DONE))
    bars = [each for each in page.tags("rect") if each.get("class") in ("good", "bad")]
    assert [each["class"] for each in bars] == ["bad", "good"]
    assert float(str(bars[0]["x"])) < float(str(bars[1]["x"]))
    assert "exit code 7: no progress for 60 s" in page.text and "0 to 40" in page.text


def test_where_the_time_went(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(2, 2)
    run = write_run(RunDirectory(tmp_path / "run"), plan, [])
    for instance, waits in ((0, 1.0), (1, 3.0)):
        seconds = {"data": waits, "device": 4.0 - waits, "validation": 1.0}
        record = {"event": "times", "time_ns": 1, "update": 9, "seconds": seconds}
        with run.events(instance).open("a") as file:
            file.write(json.dumps(record) + "\n")
    page = page_of(run, JobState(DONE))
    assert "for data 75 % of the time" in page.text  # of the instance that holds up the others
    assert "60.0 % (instance 1)" in page.text and "waiting for data" in page.texts_in("th")


def test_only_a_page_about_a_run_that_goes_on_renews_itself(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    run = write_run(RunDirectory(tmp_path / "run"), make_plan(1, 1), [])
    going = page_of(run, JobState(RUNNING), renewed_s=5)
    assert [each["content"] for each in going.tags("meta") if each.get("http-equiv") == "refresh"] == ["5"]
    assert "renews itself every 5 s" in going.text and "so far" in going.text
    for state, more in ((JobState(RUNNING), {}), (JobState(DONE), {"renewed_s": 5})):
        page = page_of(run, state, **more)
        assert not [each for each in page.tags("meta") if each.get("http-equiv") == "refresh"]


def test_a_directory_with_a_plan_alone_and_one_with_less_have_their_pages(
    tmp_path: Path, make_plan: Callable[..., Plan]
) -> None:
    run = write_run(RunDirectory(tmp_path / "run"), make_plan(2, 2), [])
    for path in [*run.path.rglob("*.*")]:
        if path.is_file() and path != run.plan:
            path.unlink()
    page_of(run, JobState("unknown", "no records"))
    run.plan.write_text("{")
    page = page_of(run, JobState("unknown", "its plan cannot be read"))
    assert "its plan cannot be read" in page.text


def test_what_is_not_finite_is_said(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    rows = [{"update": 1, "loss": 1.0}, {"update": 2, "loss": float("nan")}]
    page = page_of(write_run(RunDirectory(tmp_path / "run"), make_plan(1, 1), rows), JobState(DONE))
    assert "Not drawn, as not finite: 1 value." in page.text


def test_reading_takes_the_last_update_and_the_time_of_now(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    events: List[Event] = [Update(7, 3.0, {}), Log(1, 4.0, 8, 0.5, {})]
    run = write_run(RunDirectory(tmp_path / "run"), make_plan(1, 1), [])
    write_events(run, 0, events, began_ns=BEGAN_NS + 10**11)
    story = read_story(run, plan_of(run), JobState(RUNNING), "run")
    assert story.instances[0].update == 8 and abs(story.last_s - time.time()) < 60
