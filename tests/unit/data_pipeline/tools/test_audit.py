from __future__ import annotations

import collections
import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowSettings
from ipulaunch.configs.settings.images import ImageData, ImageSettings
from ipulaunch.configs.settings.sections import Training
from ipulaunch.data_pipeline.tools import audit, traces

HEAD = "epoch,update,step,replica,sample\n"
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
        (lambda lines: lines.append("2,4,0,0,1\n"), "there is no such place: epoch 2, update 4"),
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
        (HEAD + "0,0,0,0\n", "samples.csv, line 2: '0,0,0,0', expected 5 numbers"),
        (HEAD + "0,0,0,0,0\n0,0,0,0,x\n", "samples.csv, line 3: '0,0,0,0,x', expected 5 numbers"),
        (HEAD + "0,0,0,0\n0,0,0,0,0,0\n", "samples.csv, line 2: '0,0,0,0', expected 5 numbers"),
        (HEAD + "0,0,0,,0\n", "samples.csv, line 2: '0,0,0,,0', expected 5 numbers"),
        (HEAD + "0,0,0,0,-1\n", "samples.csv, line 2: '0,0,0,0,-1', expected 5 numbers"),
        ("", "has no whole line, expected epoch,update,step,replica,sample"),
    ],
    ids=["missing", "head", "short", "word", "uneven", "gap", "negative", "empty"],
)
def test_a_trace_that_is_none(text: Any, said: str, traced: MakeRun, events: Events) -> None:
    run = traced()
    run.samples(1).unlink()
    if text is not None:
        run.samples(1).write_text(text)
    with pytest.raises(DataError, match=said):
        check(run, events)


def test_a_trace_is_read_in_parts(traced: MakeRun, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_AT_ONCE", 7)
    run = traced()
    assert (check(run, events)["rows"], messages(events)) == (96, [])
    with run.samples(1).open("a") as file:
        file.write("0,0\n")
    with pytest.raises(DataError, match="line 50: '0,0', expected 5 numbers"):
        check(run, events)


def test_a_directory_that_is_no_run(tmp_path: Path, events: Events) -> None:
    with pytest.raises(DataError, match=r"plan.json: No such file"):
        check(RunDirectory(tmp_path), events)


def test_a_set_with_fewer_samples_than_asked_for_need_not_be_there_any_more(traced: MakeRun, events: Events) -> None:
    result = check(traced(samples=33, directory="gone"), events)
    assert (result["samples"], messages(events)) == (33, [])


@pytest.mark.parametrize("samples", [33, 60])
def test_made_up_samples_are_as_many_as_asked_for(samples: int, traced: MakeRun, events: Events) -> None:
    check(traced(samples=samples), events)
    assert messages(events) == [f"the run trained on {samples} samples, and the job has 50"]


@pytest.mark.parametrize("remainder", ["drop", "repeat", "pad"])
@pytest.mark.parametrize(
    ("first", "per_epoch"),
    [(1, None), (3, None), (0, 1), (0, 4), (0, 5), (4, 5)],
    ids=["resumed", "resumed in the last pass", "less than a pass", "a part more", "passes and a part", "both"],
)
def test_a_run_that_made_parts_of_passes(
    first: int, per_epoch: Optional[int], remainder: str, traced: MakeRun, events: Events
) -> None:
    run = traced(remainder, first=first, per_epoch=per_epoch)
    result = check(run, events)
    total = 2 * result["updates_per_epoch"]
    assert (result["discrepancies"], messages(events)) == (0, [])
    assert (result["rows"], result["first_update"]) == ((total - first) * 24, first)
    assert per_epoch in (None, result["updates_per_epoch"])

    lines = run.samples(0).read_text().splitlines(keepends=True)
    lines[1], lines[-1] = lines[-1], lines[1]  # the rows are the same, in another order
    run.samples(0).write_text("".join(lines))
    assert check(run, events)["discrepancies"] == 0
    swap_places(lines)
    run.samples(0).write_text("".join(lines))
    assert check(run, events)["discrepancies"] > 0


def swap_places(lines: List[str]) -> None:
    """The samples of the first and the last row, changed for each other."""
    first, last = lines[1].rsplit(",", 1), lines[-1].rsplit(",", 1)
    lines[1], lines[-1] = f"{first[0]},{last[1]}", f"{last[0]},{first[1]}"


def test_a_row_from_before_a_resumed_run_is_told(traced: MakeRun, events: Events) -> None:
    run = traced(first=1)
    with run.samples(0).open("a") as file:
        file.write("0,0,0,0,1\n")
    check(run, events)
    assert "there is no such place: epoch 0, update 0, step 0, replica 0, sample 1" in messages(events)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"samples": 49}, "instance 1 began with samples 49, epochs 2, updates_per_epoch 2, first_update 0, expected"),
        ({"epochs": 3}, "instance 1 began with samples 50, epochs 3, updates_per_epoch 2, first_update 0, expected"),
        ({"first_update": 1}, "first_update 1, expected samples 50, epochs 2, updates_per_epoch 2, first_update 0"),
    ],
    ids=["samples", "epochs", "first update"],
)
def test_an_instance_that_began_otherwise_is_told(
    said: Dict[str, int], message: str, traced: MakeRun, events: Events
) -> None:
    run = traced()
    begin(run, 1, **{"samples": 50, "epochs": 2, "updates_per_epoch": 2, "first_update": 0, **said})
    assert check(run, events)["discrepancies"] == 1
    assert message in messages(events)[0]


def test_a_run_that_begins_late_without_resuming_is_told(traced: MakeRun, events: Events) -> None:
    run = traced()
    for instance in range(2):
        lines = run.samples(instance).read_text().splitlines(keepends=True)
        run.samples(instance).write_text("".join(lines[:1] + lines[13:]))
        begin(run, instance, samples=50, epochs=2, updates_per_epoch=2, first_update=1)
    check(run, events)
    assert messages(events) == ["the run began at update 1, and does not resume another"]
    for instance in range(2):
        begin(run, instance, samples=50, epochs=2, updates_per_epoch=2, first_update=4)
    with pytest.raises(DataError, match="began at update 4, and it has 4"):
        check(run, events)


def test_a_run_that_did_not_begin_to_train(traced: MakeRun, events: Events) -> None:
    run = traced()
    begin(run, 1, epochs=2)
    with pytest.raises(DataError, match="line 2: samples of the event training is None, expected a count"):
        check(run, events)
    run.events(1).write_text('{"event": "started", "host": "h"}\n')
    with pytest.raises(DataError, match="the run did not begin to train"):
        check(run, events)
    run.events(1).unlink()
    with pytest.raises(DataError, match="the run did not begin to train"):
        check(run, events)


@pytest.mark.parametrize("workload", ["imagenet", "cifar10", "cifar100", "mnist"])
@pytest.mark.parametrize("data", [{"synthetic_data": "cpu"}, {"synthetic_data": "ipu"}, {"directory": "gone"}], ids=str)
def test_every_workload_can_be_audited(workload: str, data: Dict[str, Any], traced: MakeRun, events: Events) -> None:
    run = traced()
    settings = ImageSettings(
        data=ImageData(n_train=50, **data),
        training=Training(num_epochs=2, seed=7),
    )
    run.job.write_text(to_yaml(Job(workload, "cpu", settings)))
    assert (check(run, events)["rows"], messages(events)) == (96, [])


def to_zeros(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def to_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def to_a_large_hole(path: Path) -> None:
    with path.open("a") as file:
        file.truncate(1 << 32)


@pytest.mark.parametrize("spoil", [to_zeros, to_a_pipe], ids=["zeros", "a pipe"])
@pytest.mark.parametrize("name", ["plan.json", "job.yaml", "instance-001/events.jsonl", "instance-001/samples.csv"])
def test_what_has_no_end_is_not_read(name: str, spoil: Callable[[Path], None], traced: MakeRun, events: Events) -> None:
    run = traced()
    spoil(run.path / name)
    with pytest.raises(DataError, match=f"{name}: it is not a regular file"):
        check(run, events)


@pytest.mark.parametrize(("name", "line"), [("events.jsonl", 3), ("samples.csv", 50)], ids=["events", "samples"])
def test_a_line_without_an_end_is_not_read(name: str, line: int, traced: MakeRun, events: Events) -> None:
    run = traced()
    to_a_large_hole(run.instance(1) / name)
    with pytest.raises(DataError, match=f"{name}, line {line} has more than 1048576 bytes"):
        check(run, events)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\xff", " is not JSON"),
        (b"[" * 100_000, " is not JSON: it is nested too deep"),
        (b"{", " is not JSON"),
        (b"7", ": 7, expected an event"),
        (b'{"event": "training", "samples": 1e999}', ": samples of the event training is inf, expected a count"),
        (b'{"event": "replacement", "sample": 1, "by": true}', ": by of the event replacement is True"),
        (
            b'{"event": "log", "epochs": 1, "samples_per_s": 1, "update": "3"}',
            ": update of the event log is '3', expected a count",
        ),
        (b'{"event": "update", "update": -1}', ": update of the event update is -1, expected a count"),
    ],
    ids=["no text", "deep", "cut", "a number", "infinite", "true", "text", "negative"],
)
def test_an_event_that_is_none(line: bytes, said: str, traced: MakeRun, events: Events) -> None:
    run = traced()
    run.events(1).write_bytes(b'{"event": "new"}\n' + line + b"\n")
    with pytest.raises(DataError, match=f"events.jsonl, line 2{re.escape(said)}"):
        check(run, events)


@pytest.mark.parametrize(
    ("training", "data", "samples", "said"),
    [
        ({"num_epochs": 10**12}, {}, 50, "the traces have 96 rows, the run says that it took"),
        ({"num_epochs": 10**12, "weight_updates_per_epoch": 10**12}, {}, 50, "the traces have 96 rows"),
        ({}, {"n_train": 10**12}, 10**12, "the traces have 96 rows"),
        ({"weight_updates_per_epoch": 2}, {"n_train": 10**12}, 10**12, "does not fit into memory"),
        ({"weight_updates_per_epoch": 2}, {"n_train": 10**12}, 10**30, "does not fit into memory"),
        ({}, {"shuffle_block": 10**12}, 50, "does not fit into memory"),
    ],
    ids=["passes", "updates", "samples", "a large set", "a larger set", "large blocks"],
)
def test_a_run_that_claims_too_much(
    training: Dict[str, Any], data: Dict[str, Any], samples: int, said: str, traced: MakeRun, events: Events
) -> None:
    run = traced()
    about = Training(**{"num_epochs": 2, "seed": 7, **training})
    settings = CosmoflowSettings(data=CosmoflowData(**{"n_train": 50, **data}), training=about)
    run.job.write_text(to_yaml(Job("cosmoflow", "cpu", settings)))
    for instance in range(2):
        begin(run, instance, samples=samples, epochs=2, updates_per_epoch=2, first_update=0)
    with pytest.raises(DataError, match=said):
        check(run, events)
