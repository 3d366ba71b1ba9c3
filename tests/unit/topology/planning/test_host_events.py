from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any, Optional

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.topology.planning.host_events import HostEvents, host_events

CIFAR_UPDATES = 50000 // (8 * 8)  # 781 = 11 x 71


def fraction(text: str) -> Fraction:
    return Fraction(text)


@pytest.mark.parametrize(
    ("logs", "log_every", "calls", "warning"),
    [
        ("1", 781, 6, None),
        ("2", 781, 6, "2 logs per epoch do not divide its 781 updates: using 1"),
        ("10", 71, 66, "10 logs per epoch do not divide its 781 updates: using 11"),
        ("21/2", 71, 66, "21/2 logs per epoch do not divide its 781 updates: using 11"),
        ("6", 781, 6, "6 logs per epoch do not divide its 781 updates: using 1"),  # as far from 1 as from 11
        ("10000", 1, 6 * 781, "10000 logs per epoch do not divide its 781 updates: using 781"),
        ("9/10", 781, 6, "9/10 logs per epoch are 10/9 epochs apart: using every epoch"),
        ("1/2", 2 * 781, 3, None),
        ("2/5", 2 * 781, 3, "2/5 logs per epoch are 5/2 epochs apart: using every 2 epochs"),
        ("3/8", 3 * 781, 2, "3/8 logs per epoch are 8/3 epochs apart: using every 3 epochs"),
        ("1/3", 3 * 781, 2, None),
        (
            "0",
            0,
            1,
            "0 logs per epoch: metrics are written once, at the end of the training,"
            " after one device call of 4686 updates",
        ),
    ],
)
def test_logs_of_cifar(logs: str, log_every: int, calls: int, warning: Optional[str]) -> None:
    events, warnings = host_events(6, CIFAR_UPDATES, fraction(logs), Fraction(0))
    assert (events.log_every, events.calls) == (log_every, calls)
    assert warnings == ([] if warning is None else [warning])


def test_the_square_root_is_a_divisor() -> None:
    events, warnings = host_events(1, 49, Fraction(7), Fraction(0))
    assert (events.log_every, warnings) == (7, [])


def test_the_warning_of_checkpoints_names_them() -> None:
    _, warnings = host_events(6, CIFAR_UPDATES, Fraction(2), Fraction(10))
    assert warnings == [
        "2 logs per epoch do not divide its 781 updates: using 1",
        "10 checkpoints per epoch do not divide its 781 updates: using 11",
    ]


@pytest.mark.parametrize(
    ("epochs", "logs", "ckpts", "first", "message", "hint"),
    [
        (5, "1/2", "0", 0, "not possible to log 2 epochs at a time for 5 epochs", "use --logs-per-epoch 1 or 1/5"),
        (5, "1/7", "0", 0, "not possible to log 7 epochs at a time for 5 epochs", "use --logs-per-epoch 1/5"),
        (38, "1", "1/4", 0, "not possible to save every 4 epochs for 38 epochs", "use --ckpts-per-epoch 1/2 or 1/19"),
        (
            38,
            "1",
            "1/4",
            1,
            "not possible to save every 4 epochs for the 37 epochs after epoch 1",
            "use --ckpts-per-epoch 1 or 1/37",
        ),
    ],
)
def test_periods_that_do_not_divide_the_epochs_are_refused(
    epochs: int, logs: str, ckpts: str, first: int, message: str, hint: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        host_events(epochs, 10, fraction(logs), fraction(ckpts), first)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_no_checkpoints_is_no_reason_for_a_warning_or_a_call() -> None:
    events, warnings = host_events(4, 10, Fraction(1, 4), Fraction(0), first_ckpt_epoch=Fraction(3))
    assert (events.checkpoint_every, events.calls, warnings) == (0, 1, [])
    assert not any(events.saves_at(update) for update in range(1, 41))


def test_without_logs_a_call_ends_at_a_checkpoint() -> None:
    events, warnings = host_events(4, 10, Fraction(0), Fraction(1, 2))
    assert events.updates_per_call == 20
    assert warnings == ["0 logs per epoch: metrics are written once, at the end of the training"]
    assert [update for update in range(1, 41) if events.logs_at(update)] == [40]


def test_a_call_is_the_greatest_common_divisor_of_the_periods() -> None:
    events, _ = host_events(4, 12, Fraction(2), Fraction(3))
    assert (events.log_every, events.checkpoint_every, events.updates_per_call) == (6, 4, 2)


def test_the_first_checkpoint_is_written_after_its_epoch() -> None:
    # The published settings for LARS: 38 epochs, a checkpoint every 4, from epoch 2 on.
    events, warnings = host_events(38, 363, Fraction(1, 19), Fraction(1, 4), first_ckpt_epoch=Fraction(2))
    saved = [update for update in range(1, events.total_updates + 1) if events.saves_at(update)]
    assert saved == [363 * epoch for epoch in range(2, 39, 4)]
    assert events == HostEvents(38, 363, 19 * 363, 4 * 363, 2 * 363, 363)
    assert warnings == []


def test_the_first_checkpoint_may_be_in_the_middle_of_an_epoch() -> None:
    events, warnings = host_events(3, 10, Fraction(1), Fraction(1), Fraction(1, 2))
    assert [update for update in range(1, 31) if events.saves_at(update)] == [5, 15, 25, 30]
    assert (events.updates_per_call, warnings) == (5, [])


def test_a_first_checkpoint_between_two_updates_is_told() -> None:
    events, warnings = host_events(3, 10, Fraction(1), Fraction(1), Fraction(1, 4))
    assert (events.first_checkpoint, events.updates_per_call) == (2, 2)
    assert warnings == [
        "epoch 1/4 ends after 2.5 updates of 10 per epoch: the first checkpoint follows update 2, with device calls of"
        " 2 updates"
    ]


def test_calls_fill_a_training_whose_first_checkpoint_leaves_part_of_an_epoch() -> None:
    events, _ = host_events(9, 10, Fraction(0), Fraction(1, 4), Fraction(4, 5))
    assert events.first_checkpoint == 8
    assert events.calls * events.updates_per_call == events.total_updates == 90


def test_calls_fill_the_training_and_every_event_is_at_the_end_of_one() -> None:
    frequencies = [Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(2, 3), Fraction(1), Fraction(3), Fraction(50)]
    for updates in (1, 7, 12, 49, 60):
        for logs in frequencies:
            for ckpts in frequencies:
                for first in (Fraction(0), Fraction(4)):
                    events, _ = host_events(8, updates, logs, ckpts, first)
                    assert events.calls * events.updates_per_call == events.total_updates == 8 * updates
                    ends = range(events.updates_per_call, events.total_updates + 1, events.updates_per_call)
                    for update in range(1, events.total_updates + 1):
                        if events.logs_at(update) or events.saves_at(update):
                            assert update in ends
                    assert events.logs_at(events.total_updates)
                    assert events.saves_at(events.total_updates) is bool(ckpts)


def test_many_updates_take_no_loop_over_them() -> None:
    lines = 0

    def trace(*_: Any) -> Any:
        nonlocal lines
        lines += 1
        return trace

    sys.settrace(trace)
    try:
        events, _ = host_events(100, 9_999_991, Fraction(1000), Fraction(1))  # a prime
    finally:
        sys.settrace(None)
    assert events.updates_per_call == 9_999_991
    assert lines < 20_000


def test_the_last_update_is_saved_wherever_the_first_checkpoint_is() -> None:
    events, _ = host_events(3, 10, Fraction(1), None, first_ckpt_epoch=Fraction(1, 2))
    assert [update for update in range(1, 31) if events.saves_at(update)] == [5, 15, 25, 30]


def test_no_checkpoint_comes_before_an_update() -> None:
    events, (warning,) = host_events(1, 10, Fraction(1), None, first_ckpt_epoch=Fraction(1, 1000))
    assert events.first_checkpoint == 1 and "follows update 1," in warning
