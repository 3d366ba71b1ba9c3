from __future__ import annotations

from ipulaunch.configs.runs.milestones import in_words, measured


def test_metrics_of_a_record_are_what_is_not_about_it() -> None:
    record = {
        "event": "validation",
        "time_ns": 1,
        "instance": 0,
        "checkpoint": "c",
        "update": 8,
        "epoch": 1,
        "val_loss": 2,
    }
    assert measured(record) == {"val_loss": 2}


def test_records_that_only_count_have_no_words() -> None:
    assert in_words({"event": "update", "time_ns": 1, "update": 8, "loss": 2.0}) == ""
