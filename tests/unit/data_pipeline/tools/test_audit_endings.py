"""Audits of runs that did not go straight to their end: samples replaced, stopped, killed, continued."""

from __future__ import annotations

import json
import shutil
from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.data_pipeline.tools import audit

HEAD = "epoch,update,step,replica,sample\n"
SAID = {"samples": 50, "epochs": 2, "updates_per_epoch": 2}
Events = List[Dict[str, Any]]
MakeRun = Callable[..., RunDirectory]


def begin(run: RunDirectory, instance: int, **said: int) -> None:
    """What an instance writes when it begins to train, and before and after."""
    lines = [{"event": "started", "host": "h"}, {"event": "training", "left_out": 0, **said}]
    run.events(instance).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"event": "upd')


def check(run: RunDirectory, events: Events) -> Dict[str, Any]:
    return audit.run({"run": str(run.path)}, events.append)


def messages(events: Events) -> List[str]:
    return [event["message"] for event in events if event["event"] == "defect"]


def repeat(lines: List[str], at: int = 1) -> None:
    lines[at] = lines[at].rsplit(",", 1)[0] + "," + lines[at + 1].rsplit(",", 1)[1]


def record(run: RunDirectory, instance: int, **event: Any) -> None:
    """One more event of an instance, in the place of its half line."""
    lines, _, _ = run.events(instance).read_text().rpartition("\n")
    run.events(instance).write_text(lines + "\n" + json.dumps(event) + "\n")


def lines_of(run: RunDirectory, instance: int) -> List[str]:
    return run.samples(instance).read_text().splitlines(keepends=True)


def replace_first(run: RunDirectory) -> Tuple[int, int]:
    """The first sample of instance 0 was replaced by its neighbour."""
    lines = lines_of(run, 0)
    place, sample = lines[1].rsplit(",", 1)
    by = (int(sample) + 1) % 50
    lines[1] = f"{place},{by}\n"
    run.samples(0).write_text("".join(lines))
    return int(sample), by


@pytest.mark.parametrize("remainder", ["drop", "repeat", "pad"])
def test_samples_that_were_replaced_are_counted_apart(remainder: str, traced: MakeRun, events: Events) -> None:
    run = traced(remainder)
    sample, by = replace_first(run)
    record(run, 0, event="replacement", sample=sample, by=by, message="damaged")
    result = check(run, events)
    assert (result["discrepancies"], result["replaced"], messages(events)) == (0, 1, [])


@pytest.mark.parametrize("wrong", [None, (0, 1), (1, 0)], ids=["unrecorded", "of another sample", "by another sample"])
def test_a_sample_that_is_not_recorded_as_replaced_is_told(wrong: Any, traced: MakeRun, events: Events) -> None:
    run = traced()
    sample, by = replace_first(run)
    if wrong:
        record(run, 0, event="replacement", sample=sample + wrong[0], by=by + wrong[1], message="damaged")
    result = check(run, events)
    assert result["discrepancies"] >= 1 and result["replaced"] == 0
    assert "epoch 0, update 0, step 0, replica 0 took" in messages(events)[0]


def cut(run: RunDirectory, updates: int, more: int = 0) -> None:
    """The run ended after so many updates, `more` rows of each instance into the next one."""
    for instance in range(2):
        run.samples(instance).write_text("".join(lines_of(run, instance)[: 1 + updates * 12 + more]))
        run.done(instance).unlink()


@pytest.mark.parametrize("remainder", ["drop", "repeat", "pad"])
@pytest.mark.parametrize("updates", [1, 2, 3])
def test_a_run_that_was_stopped_is_checked_up_to_there(
    updates: int, remainder: str, traced: MakeRun, events: Events
) -> None:
    run = traced(remainder)
    cut(run, updates)
    record(run, 0, event="checkpoint", update=updates, path="checkpoints/update", epoch=0)
    result = check(run, events)
    assert (result["discrepancies"], messages(events)) == (0, [])
    assert (result["last_update"], result["rows"]) == (updates, 24 * updates)


def test_what_a_stopped_run_lost_is_told(traced: MakeRun, events: Events) -> None:
    run = traced()
    cut(run, 3)
    run.samples(1).write_text("".join(lines_of(run, 1)[:-1]))
    record(run, 0, event="checkpoint", update=3, path="checkpoints/update", epoch=0)
    check(run, events)
    assert messages(events) == [
        "instance 1 took 35 samples, instance 0 took 36",
        "epoch 1, update 2, step 1, replica 3 took 2 samples, expected 3",
    ]


def test_of_a_run_that_was_killed_all_whole_updates_are_checked(traced: MakeRun, events: Events) -> None:
    run = traced()
    record(run, 0, event="update", update=1, samples_per_s=1.0)
    cut(run, 2, more=3)
    with run.samples(0).open("a") as file:
        file.write("1,2,0,0")
    result = check(run, events)
    assert (result["discrepancies"], messages(events)) == (0, [])
    assert (result["last_update"], result["rows"]) == (2, 48)
    lines = lines_of(run, 0)
    repeat(lines, 13)  # in the last whole update
    run.samples(0).write_text("".join(lines))
    assert check(run, events)["discrepancies"] > 0


def test_a_run_that_is_done_is_whole(traced: MakeRun, events: Events) -> None:
    run = traced()
    cut(run, 2)
    for instance in range(2):
        run.done(instance).touch()
    result = check(run, events)
    assert (result["discrepancies"], result["last_update"]) == (16, 4)


def continued(run: RunDirectory, at: int, made: int) -> RunDirectory:
    """The run as it lies there when it went on from update `at`, after `made`; returns its first attempt."""
    earlier = RunDirectory(run.attempts / "1")
    for instance in range(2):
        lines = lines_of(run, instance)
        earlier.instance(instance).mkdir(parents=True)
        earlier.samples(instance).write_text("".join(lines[: 1 + 12 * made + 5]))
        begin(earlier, instance, **SAID, first_update=0)
        run.samples(instance).write_text("".join([lines[0], *lines[1 + 12 * at :]]))
        begin(run, instance, **SAID, first_update=at)
    job = run.job.read_text()
    run.job.write_text(job.replace("resume: null", f"resume: {run.path}"))
    assert run.job.read_text() != job
    return earlier


@pytest.mark.parametrize(("at", "made"), [(1, 1), (1, 3), (3, 3), (4, 4)])
def test_passes_are_proved_across_attempts(at: int, made: int, traced: MakeRun, events: Events) -> None:
    run = traced()
    earlier = continued(run, at, made)
    result = check(run, events)
    assert (result["discrepancies"], messages(events)) == (0, [])
    assert (result["attempts"], result["first_update"], result["last_update"], result["rows"]) == (2, 0, 4, 96)

    lines = lines_of(earlier, 1)
    repeat(lines)
    earlier.samples(1).write_text("".join(lines))
    check(run, events)
    assert [message for message in messages(events) if "was taken more than once" in message]


def test_an_update_that_no_attempt_made_is_told(traced: MakeRun, events: Events) -> None:
    run = traced()
    earlier = continued(run, 3, 3)
    for instance in range(2):
        earlier.samples(instance).write_text("".join(lines_of(earlier, instance)[: 1 + 12 * 2]))
    assert check(run, events)["discrepancies"] == 8
    assert "epoch 1, update 2, step 0, replica 0 took 0 samples, expected 3" in messages(events)


def test_attempts_that_left_nothing_are_passed_over(traced: MakeRun, events: Events) -> None:
    run = traced()
    continued(run, 2, 3)
    failed, redone = RunDirectory(run.attempts / "2"), RunDirectory(run.attempts / "10")
    for instance in range(2):
        failed.instance(instance).mkdir(parents=True)
        redone.instance(instance).mkdir(parents=True)
        begin(redone, instance, **SAID, first_update=2)  # killed before it had a trace
    result = check(run, events)
    assert (result["discrepancies"], messages(events), result["attempts"]) == (0, [], 2)


def test_an_attempt_on_other_instances_is_read_as_well(traced: MakeRun, events: Events) -> None:
    run = traced()
    earlier = continued(run, 2, 2)
    both = [HEAD, *lines_of(earlier, 0)[1:], *lines_of(earlier, 1)[1:]]
    earlier.samples(0).write_text("".join(both))
    shutil.rmtree(earlier.instance(1))
    assert (check(run, events)["discrepancies"], messages(events)) == (0, [])
