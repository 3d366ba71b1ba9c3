from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from fixtures.pages import Page
from fixtures.runs import untraced_copy, write_run

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.report.compare_page import compare_page
from ipulaunch.launcher.report.comparison import SAMPLE, UPDATE, Comparison, compared
from ipulaunch.launcher.report.effects import effects_of
from ipulaunch.launcher.report.story import RunStory, read_story
from ipulaunch.launcher.runs.run_state import plan_of
from ipulaunch.launcher.schedulers.scheduler import DONE, JobState
from ipulaunch.topology import Plan
from ipulaunch.topology.planning.batch import Batch

MakeRun = Callable[..., RunStory]


@pytest.fixture()
def make_run(tmp_path: Path, make_plan: Callable[..., Plan]) -> MakeRun:
    def make(name: str, *, micro: int = 4, gain: float = 0.1, rate: float = 10.0, **training: Any) -> RunStory:
        plan = make_plan(1, 1)._replace(batch=Batch(micro, 1, 1))
        rows: List[Dict[str, Any]] = [
            {"update": n, "accuracy": gain * n * micro / 4, "train_s": n * micro / rate, "samples_per_s": rate}
            for n in range(1, 9)
        ]
        run = write_run(RunDirectory(tmp_path / name), plan, rows, summary__json=_summary(rate))
        settings = resolve("mnist", rehearsal=True).settings
        training = {"micro_batch_size": micro, **training}
        settings = dataclasses.replace(settings, training=dataclasses.replace(settings.training, **training))
        run.job.write_text(to_yaml(Job("mnist", "cpu", settings)))
        return read_story(run, plan_of(run), JobState(DONE), name)

    return make


def _summary(rate: float) -> str:
    return json.dumps({"samples_per_s": rate, "samples_per_s_by_instance": [rate]})


def differing(comparison: Comparison) -> Dict[str, Any]:
    return {each.name: each.texts for each in comparison.differences}


def test_what_differs_is_told_and_nothing_else(make_run: MakeRun) -> None:
    comparison = compared([make_run("one"), make_run("two", seed=5)], {})
    assert differing(comparison) == {"training.seed": ("0", "5")}
    assert comparison.axis == UPDATE


def test_two_runs_of_one_job_have_no_effects(make_run: MakeRun) -> None:
    comparison = compared([make_run("one"), make_run("two")], {})
    assert (differing(comparison), effects_of(comparison)) == ({}, [])


def test_runs_with_other_batches_are_compared_by_sample(make_run: MakeRun) -> None:
    comparison = compared([make_run("one"), make_run("two", micro=8, rate=12.0)], {"accuracy": 0.8})
    assert comparison.axis == SAMPLE and comparison.scale(1) == 8.0
    assert differing(comparison)["global batch"] == ("4", "8")
    (outcome,) = comparison.outcomes
    # Half the updates, as many samples, and less time.
    assert [each.update for each in outcome.reached] == [8.0, 4.0]
    assert [each.seconds for each in outcome.reached] == pytest.approx([3.2, 32 / 12])
    throughput, learning = effects_of(comparison)
    assert throughput.text == "20% faster than one"
    assert "training.micro_batch_size (4 and 8)" in throughput.explained_by
    assert learning.advice == "the batch differs, so its curves are comparable by sample, not by update"


def test_without_a_target_it_is_what_all_have_reached(make_run: MakeRun) -> None:
    (outcome,) = compared([make_run("one"), make_run("two", gain=0.05)], {}).outcomes
    assert (outcome.target, [each.update for each in outcome.reached]) == (pytest.approx(0.4), [4.0, 8.0])
    (far,) = compared([make_run("three"), make_run("four")], {"accuracy": 2.0}).outcomes
    assert [each.update for each in far.reached] == [None, None]


def test_differences_explain_only_what_they_can_change(make_run: MakeRun) -> None:
    slow = make_run("slow", rate=5.0, gain=0.05, seed=7, deterministic=False)
    throughput, learning = effects_of(compared([make_run("one"), slow], {}))
    assert (throughput.what, throughput.explained_by) == ("throughput", ("training.deterministic (yes and no)",))
    assert (learning.what, learning.explained_by) == ("learning", ("training.seed (0 and 7)",))
    assert learning.text == "best accuracy 0.4, worse than 0.8"


def test_what_nothing_explains_is_said(make_run: MakeRun) -> None:
    effects = effects_of(compared([make_run("one"), make_run("two", rate=5.0, gain=0.2)], {}))
    assert [effect.explained_by for effect in effects] == [(), ()]
    assert "other load on the machines" in effects[0].advice and "the same updates" in effects[1].advice


def test_the_page_has_the_curves_of_all_runs_over_each_other(make_run: MakeRun) -> None:
    pytest.importorskip("jinja2", reason="pages need the extra [report]")
    hostile = "<script>alert(1)</script>"
    stories = [make_run("one"), make_run("two", micro=8), dataclasses.replace(make_run("three"), name=hostile)]
    comparison = compared(stories, {})
    page = Page(compare_page(comparison, effects_of(comparison)))
    page.require_harmless()
    assert page.texts_in("h1") == [f"one and two and {hostile}"]
    assert len(page.tags("polyline")) == 6  # accuracy and throughput
    assert any(str(each.get("aria-label")).startswith("accuracy by sample: one from") for each in page.tags("svg"))
    assert "their curves are drawn by sample" in page.text


def test_the_command_prints_tables_and_what_can_explain_them(ipulaunch: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("done", "stopped"):
        untraced_copy(name, tmp_path)
    done = ipulaunch("compare", "done", "stopped", "--runs-dir", str(tmp_path), "-o", "page.html")
    assert done.code == 0, done.err
    assert "training.num_epochs       1     3" in done.out
    assert "can explain it: training.num_epochs (1 and 3)" in done.out
    assert done.out.endswith("page: page.html\n") and Page(Path("page.html").read_text()).tags("polyline")
    data = json.loads(ipulaunch("compare", "done", "stopped", "--runs-dir", str(tmp_path), "--json").out)
    assert [run["state"] for run in data["runs"]] == ["done", "stopped"]
    assert data["compared_by"] == "update" and data["effects"][0]["what"] == "learning"
    assert {"kind": "settings", "name": "training.num_epochs", "values": ["1", "3"]} in data["differences"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["done"], "1 run to compare, expected 2 to 6"),
        (["done", "failed", "--target", "accuracy"], "expected a measure and a number"),
        (["done", "failed", "--target", "top5=0.9"], "no run has measured top5"),
        (["done", "failed", "-o", "missing/page.html"], "cannot be written"),
        (["done", "gone"], "there is no run gone"),
    ],
)
def test_wrong_command_lines_are_refused(
    words: List[str], said: str, ipulaunch: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("done", "failed"):
        untraced_copy(name, tmp_path)
    done = ipulaunch("compare", *words, "--runs-dir", str(tmp_path))
    assert done.code == 2 and said in done.err


def test_the_terminal_and_json_show_no_secrets_and_steer_nothing(
    ipulaunch: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-hunter2"
    monkeypatch.setenv("MY_API_TOKEN", secret)
    for name in ("done", "stopped"):
        run = untraced_copy(name, tmp_path)
        text = run.events(0).read_text().replace('"2.15.1"', f'"{secret} {name} \\u001b[31m"')
        run.events(0).write_text(text)
    for words in ([], ["--json"]):
        done = ipulaunch("compare", "done", "stopped", "--runs-dir", str(tmp_path), *words)
        assert done.code == 0 and "hunter2" not in done.out and "***" in done.out
        assert "\x1b" not in done.out and "\\u001b" not in done.out


def test_a_run_that_waits_longer_says_so(make_run: MakeRun) -> None:
    slow = make_run("slow", rate=5.0)
    slow.instances[0].seconds.update({"data": 3.0, "device": 1.0, "validation": 9.0})
    fast = make_run("fast")
    fast.instances[0].seconds.update({"data": 1.0, "device": 9.0})
    (effect,) = effects_of(compared([fast, slow], {}))
    assert effect.text == "50% slower than fast; it waits for data 75% of the time, and fast 10%"
