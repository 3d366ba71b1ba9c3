from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from ipulaunch.configs.cosmoflow import CosmoflowData, CosmoflowSettings
from ipulaunch.configs.errors import DataError
from ipulaunch.configs.job import Job, to_yaml
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.sections import Training
from ipulaunch.data_pipeline.order import Shuffle, whole_updates
from ipulaunch.data_pipeline.tools import audit
from ipulaunch.topology import Batch, Placement, Plan
from ipulaunch.topology.plan import to_json

HEAD = "epoch,update,step,replica,sample\n"
BATCH = Batch(micro_size=3, replicas=4, accumulation=2)
Events = List[Dict[str, Any]]
MakeRun = Callable[..., RunDirectory]


@pytest.fixture
def traced(tmp_path: Path) -> MakeRun:
    """A run of two epochs of 50 samples on two instances, with what a faithful tracer writes."""

    def make(remainder: str = "drop", samples: int = 50, **data: Any) -> RunDirectory:
        run = RunDirectory(tmp_path / "run")
        placements = tuple(Placement(n, "h", n, (0,), 1, str(n), 2 * n) for n in range(2))
        run.path.mkdir()
        run.plan.write_text(to_json(Plan("cosmoflow", "POD4", 4, 1, 1, BATCH, placements, False)))
        settings = CosmoflowSettings(
            data=CosmoflowData(n_train=50, **data), training=Training(num_epochs=2, seed=7, remainder=remainder)
        )
        run.job.write_text(to_yaml(Job("cosmoflow", "cpu", settings)))
        rows: Dict[int, List[str]] = {0: [], 1: []}
        shuffle = Shuffle(7, settings.data.shuffle_block, settings.data.shuffle_window)
        update = 0
        for epoch in range(2):
            order, _ = whole_updates(samples, shuffle, epoch, BATCH, remainder)
            for part in order.reshape(-1, 2, 4, 3):
                for step, replica in np.ndindex(2, 4):
                    rows[replica // 2] += [f"{epoch},{update},{step},{replica},{one}\n" for one in part[step, replica]]
                update += 1
        for instance, lines in rows.items():
            run.instance(instance).mkdir()
            run.samples(instance).write_text(HEAD + "".join(lines))
        return run

    return make


def check(run: RunDirectory, events: Events) -> Dict[str, Any]:
    return audit.run({"run": str(run.path)}, events.append)


def messages(events: Events) -> List[str]:
    return [event["message"] for event in events if event["event"] == "defect"]


@pytest.mark.parametrize(("remainder", "updates"), [("drop", 2), ("repeat", 3), ("pad", 3)])
def test_a_faithful_run_passes(remainder: str, updates: int, traced: MakeRun, events: Events) -> None:
    result = check(traced(remainder), events)
    assert (result["discrepancies"], messages(events)) == (0, [])
    assert (result["updates_per_epoch"], result["rows"], result["samples"]) == (updates, 2 * updates * 24, 50)


def test_an_order_of_blocks_passes_as_well(traced: MakeRun, events: Events) -> None:
    assert check(traced(shuffle_block=4, shuffle_window=2), events)["discrepancies"] == 0


def test_the_order_within_a_micro_batch_means_nothing(traced: MakeRun, events: Events) -> None:
    run = traced()
    lines = run.samples(0).read_text().splitlines(keepends=True)
    run.samples(0).write_text("".join([lines[0], lines[3], lines[1], lines[2], *lines[4:]]))
    assert check(run, events)["discrepancies"] == 0


def swap(lines: List[str]) -> None:
    """The samples of the first places of two updates, changed for each other."""
    first, second = lines[1].rsplit(",", 1), lines[25].rsplit(",", 1)
    lines[1], lines[25] = f"{first[0]},{second[1]}", f"{second[0]},{first[1]}"


def repeat(lines: List[str], at: int = 1) -> None:
    lines[at] = lines[at].rsplit(",", 1)[0] + "," + lines[at + 1].rsplit(",", 1)[1]


def foreign(lines: List[str]) -> None:
    lines[1] = lines[1].replace("0,0,0,0,", "0,0,0,3,")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (swap, "epoch 0, update 0, step 0, replica 0 took"),
        (repeat, "was taken more than once"),
        (foreign, "instance 0, which holds replicas 0 to 1: epoch 0, update 0, step 0, replica 3, sample"),
        (lambda lines: lines.pop(), "update 3, step 1, replica 1 took 2 samples, expected 3"),
        (lambda lines: lines.pop(), "instance 0 took 47 samples, instance 1 took 48"),
        (lambda lines: lines.append(lines[-1]), "update 3, step 1, replica 1 took 4 samples, expected 3"),
        (lambda lines: lines.append("0,9,0,0,1\n"), "there is no such place: epoch 0, update 9"),
        (lambda lines: lines.append("2,4,0,0,1\n"), "epoch 2, after the last of 2"),
    ],
    ids=["swapped", "repeated", "foreign", "lost", "uneven", "twice", "nowhere", "too late"],
)
def test_what_is_not_faithful_is_told(
    spoil: Callable[[List[str]], Any], said: str, traced: MakeRun, events: Events
) -> None:
    run = traced()
    lines = run.samples(0).read_text().splitlines(keepends=True)
    spoil(lines)
    run.samples(0).write_text("".join(lines))
    assert check(run, events)["discrepancies"] > 0
    assert [message for message in messages(events) if said in message]


@pytest.mark.parametrize("remainder", ["repeat", "pad"])
def test_a_sample_that_was_never_taken_is_told(remainder: str, traced: MakeRun, events: Events) -> None:
    run = traced(remainder)
    lines = run.samples(0).read_text().splitlines(keepends=True)
    taken = [line.split(",") for number in range(2) for line in run.samples(number).read_text().splitlines()]
    counts = collections.Counter(sample for epoch, _, _, _, sample in taken if epoch == "0")
    # The first of a micro-batch that nothing was filled up with.
    at = next(at for at in range(1, len(lines), 3) if counts[lines[at].rsplit(",", 1)[1].strip()] == 1)
    lost = lines[at].rsplit(",", 1)[1].strip()
    repeat(lines, at)
    run.samples(0).write_text("".join(lines))
    check(run, events)
    assert f"epoch 0: sample {lost} was never taken" in messages(events)


def test_an_epoch_that_is_missing_is_told_without_end(traced: MakeRun, events: Events) -> None:
    run = traced()
    for instance in range(2):
        lines = run.samples(instance).read_text().splitlines(keepends=True)
        run.samples(instance).write_text("".join(line for line in lines if not line.startswith("1,")))
    result = check(run, events)
    assert (result["discrepancies"], result["told"]) == (16, 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("a,b\n", "starts with 'a,b', expected epoch,update,step,replica,sample"),
        (HEAD + "0,0,0,0\n", "not every line has 5 numbers"),
        (HEAD + "0,0,0,0,x\n", "not every line has 5 numbers"),
        (HEAD + "0,0,0,0,1\n0,0,0", "not every line has 5 numbers"),
    ],
    ids=["missing", "head", "short", "word", "cut off"],
)
def test_a_trace_that_is_none(text: Any, said: str, traced: MakeRun, events: Events) -> None:
    run = traced()
    run.samples(1).unlink()
    if text is not None:
        run.samples(1).write_text(text)
    with pytest.raises(DataError, match=said):
        check(run, events)


def test_a_directory_that_is_no_run(tmp_path: Path, events: Events) -> None:
    with pytest.raises(DataError, match=r"plan.json: No such file"):
        check(RunDirectory(tmp_path), events)


def test_a_set_with_fewer_samples_than_asked_for(
    traced: MakeRun, cosmoflow_set: Callable[..., Path], events: Events
) -> None:
    data = cosmoflow_set([20, 13])
    run = traced(samples=33, data_dir=str(data))
    assert (check(run, events)["samples"], messages(events)) == (33, [])
    data.joinpath("train").rename(data / "gone")
    with pytest.raises(DataError, match="no record files"):
        check(run, events)


def test_a_set_that_is_gone(traced: MakeRun, tmp_path: Path, events: Events) -> None:
    run = traced(samples=33, data_dir=str(tmp_path / "gone"))
    with pytest.raises(DataError, match="gone is not there any more"):
        check(run, events)
    told = {"event": "training", "updates_per_epoch": 1, "left_out": 9}
    run.events(0).write_text(json.dumps({"event": "started"}) + "\n" + json.dumps(told) + "\n")
    assert (check(run, events)["samples"], messages(events)) == (33, [])
