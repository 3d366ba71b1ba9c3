from __future__ import annotations

import json
from typing import Any, Dict, Iterator, Type

import pytest

from ipulaunch.configs.runs import events
from ipulaunch.configs.runs.events import (
    CheckpointWritten,
    Event,
    Indexing,
    Joining,
    Loading,
    Log,
    Replaced,
    Replacement,
    Resumed,
    Staging,
    Started,
    Times,
    TimeToTrain,
    Training,
    UnknownEvent,
    Update,
    Validating,
    Validation,
    WarningEvent,
    measured,
    read_event,
)

EVERY = [
    Started("left", 7, "cpu", {"instance": 1, "instances": 2}, {"cpus": "4-7"}, {"data": 1}, "2.6.3", "3.8.18"),
    Staging(3 << 20, 10 << 20),
    Indexing(40, 1024),
    Validating(3, 10),
    Loading(),
    Training(samples=35, epochs=2, updates_per_epoch=8, first_update=0, left_out=3, api="keras", batch="4 = 1 x 4"),
    Resumed("checkpoints/update-00000006", 6),
    Update(7, 10.5, {"loss": 0.5}),
    Log(2, 10.5, 8, 0.5, {"loss": 0.25, "mae": 1}),
    Times(8, {"data": 1.5, "device": 2}),
    CheckpointWritten("checkpoints/update-00000008", 8, 1),
    CheckpointWritten("model.ckpt-8", 8),
    Validation(8, 16, 2, {"val_loss": 0.5}, "update-00000016"),
    Validation(8, 16, None, {"val_loss": 0.5}),
    TimeToTrain(2.5),
    Replacement(7, 8, "it is damaged"),
    Replaced("it is damaged"),
    WarningEvent("a value was rounded"),
    Joining(),
]


def _every_kind(base: Type[Event] = Event) -> Iterator[Type[Event]]:
    for event in base.__subclasses__():
        yield from _every_kind(event)
        if getattr(event, "kind", ""):
            yield event


def test_every_event_is_tried_here() -> None:
    assert {type(event) for event in EVERY} == set(_every_kind())


@pytest.mark.parametrize("event", EVERY, ids=lambda event: event.kind)
def test_a_line_gives_back_an_equal_event(event: Event) -> None:
    line = json.dumps({"time_ns": 1, **event.to_json()})
    assert read_event(json.loads(line)) == event


def test_the_keys_of_a_line_are_those_of_earlier_versions() -> None:
    assert Validation(8, 16, None, {"val_loss": 0.5}).to_json() == {
        "event": "validation",
        "samples": 8,
        "update": 16,
        "epoch": None,
        "val_loss": 0.5,
    }
    assert Training(35, 2, 8, 0, 3, 8, "keras", "4 = 1 x 4").to_json() == {
        "event": "training",
        "samples": 35,
        "epochs": 2,
        "updates_per_epoch": 8,
        "first_update": 0,
        "left_out": 3,
        "updates_per_call": 8,
        "api": "keras",
        "batch": "4 = 1 x 4",
        "preparation": "",
        "shares": 1,
    }


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (EVERY[0], "instance 1 of 2 on left: process 7, CPUs 4-7, TensorFlow 2.6.3, Python 3.8.18"),
        (Training(35, 2, 8, 0, 3), "training: 2 epochs of 8 weight updates; 3 samples left out per epoch"),
        (Training(8, 1, 1, 0, 0), "training: 1 epoch of 1 weight update"),
        (
            Training(8, 1, 1, 0, 0, preparation="pixels"),
            "training: 1 epoch of 1 weight update; a prepared set: pixels",
        ),
        (Update(7, 10.5, {"loss": 0.5}), ""),
        (
            Training(8, 1, 1, 0, 0, shares=2),
            "training: 1 epoch of 1 weight update; samples shuffled within 2 shares",
        ),
        (Staging(1, 2), ""),
        (Log(2, 10.5, 8, 0.5, {"loss": 0.25, "mae": 1}), "epoch 0.5/2: loss 0.25, mae 1"),
        (CheckpointWritten("checkpoints/8", 8), "checkpoint of update 8: checkpoints/8"),
        (Resumed("checkpoints/8", 8), "resumed after update 8: checkpoints/8"),
        (Validation(8, 16, None, {"val_loss": 0.5}), "validation of the weights: val_loss 0.5"),
        (Validation(8, 16, 1, {"val_loss": 0.5}, "update-16"), "validation of update-16: val_loss 0.5"),
        (Loading(), "loading the program, before the clock starts"),
        (TimeToTrain(2.54), "time to train: 2.5 s, with validation"),
        (WarningEvent("rounded"), "warning: rounded"),
    ],
    ids=lambda value: "" if isinstance(value, Event) else value,
)
def test_words_for_people(event: Event, text: str) -> None:
    assert event.text == text


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        pytest.param([1, 2], "expected an event: a JSON object", id="list"),
        pytest.param(None, "expected an event: a JSON object", id="null"),
        pytest.param({}, "the kind of an event is None, expected a word", id="no kind"),
        pytest.param({"event": ["update"]}, r"the kind of an event is \['update'\]", id="kind that is a list"),
        pytest.param({"event": "warning"}, "message of the event warning is None, expected text", id="no message"),
        pytest.param({"event": "resumed", "path": "p"}, "update of the event resumed is None", id="no update"),
        pytest.param({"event": "checkpoint", "path": "p", "update": -1}, "is -1, expected a count", id="negative"),
        pytest.param({"event": "checkpoint", "path": "p", "update": True}, "is True, expected a count", id="yes"),
        pytest.param({"event": "update", "update": 1, "samples_per_s": "x"}, "is 'x', expected a number", id="rate"),
        pytest.param({"event": "started", "host": "a", "binding": "b"}, "is 'b', expected an object", id="binding"),
        pytest.param({"event": "validation", "samples": 1, "update": 1}, "epoch of the event", id="no epoch"),
        pytest.param({"event": "times", "update": 1, "seconds": {"data": -1}}, "an object of durations", id="before"),
        pytest.param({"event": "times", "update": 1, "seconds": {"data": "1"}}, "an object of durations", id="text"),
        pytest.param({"event": "staging", "done": 1}, "total of the event staging is None", id="no total"),
    ],
)
def test_a_line_of_the_wrong_shape_is_refused(record: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        read_event(record)


def test_events_of_other_versions_are_events() -> None:
    assert read_event({"event": "something new", "time_ns": 11}) == UnknownEvent()


def test_metrics_of_a_row_are_what_is_not_about_it() -> None:
    row: Dict[str, Any] = {"time_ns": 1, "instance": 0, "checkpoint": "c", "update": 8, "epoch": 1, "val_loss": 2}
    assert measured(row) == {"val_loss": 2}
    assert events.metrics_text({"loss": 0.123456}) == "loss 0.1235"
