from __future__ import annotations

import os
import signal
import time
from typing import Iterator, List, Sequence

import pytest

from ipulaunch.configs.settings.schema import leaves
from ipulaunch.configs.settings.sections import Survival
from ipulaunch.launcher.supervise import stop_signals
from ipulaunch.launcher.supervise.stop_signals import SIGNALS, StopSignals

pytestmark = pytest.mark.core


@pytest.fixture(autouse=True)
def no_other_handlers() -> Iterator[None]:
    """Every test gives back the signal handlers it found."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    after = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


def _send(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_is_noted(number: signal.Signals) -> None:
    with StopSignals() as signals:
        assert (signals.first, signals.requests) == (None, 0)
        _send(number)
        assert (signals.first, signals.requests) == (number, 1)


def test_the_launcher_takes_every_signal_that_instances_can_be_told_to_take() -> None:
    (choices,) = (leaf.about.choices for leaf in leaves(Survival) if leaf.key == "stop_signals")
    assert {signal.Signals[f"SIG{name}"] for name in choices} < set(SIGNALS)


@pytest.mark.parametrize(
    ("numbers", "requests"),
    [
        ((signal.SIGTERM, signal.SIGTERM), 1),
        ((signal.SIGUSR1, signal.SIGUSR1, signal.SIGUSR1), 1),
        ((signal.SIGTERM, signal.SIGHUP), 1),  # as systemd ends a login session
        ((signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM), 1),
        ((signal.SIGINT, signal.SIGTERM), 1),
        ((signal.SIGTERM, signal.SIGINT), 2),
    ],
)
def test_one_request_may_arrive_twice(
    numbers: Sequence[signal.Signals], requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_signals, "SAME_REQUEST_S", 60.0)
    with StopSignals() as signals:
        _send(*numbers)
        assert (signals.first, signals.requests) == (numbers[0], requests)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["the-same", "another"])
def test_a_signal_later_is_another_request(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_signals, "SAME_REQUEST_S", 0.0)
    with StopSignals() as signals:
        _send(signal.SIGTERM, number)
        assert signals.requests == 2


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT], ids=["nohup", "&"])
def test_what_is_ignored_stays_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with StopSignals() as signals, signals.interrupting():
            _send(number)
        assert (signals.first, signals.requests) == (None, 0)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_waiting_is_interrupted(number: signal.Signals) -> None:
    reached: List[str] = []
    with StopSignals() as signals:
        with pytest.raises(KeyboardInterrupt), signals.interrupting():
            _send(number)
            time.sleep(60)
            reached.append("the end")
        assert (signals.first, reached) == (number, [])


def test_waiting_does_not_begin_after_a_request() -> None:
    reached: List[str] = []
    with StopSignals() as signals:
        _send(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), signals.interrupting():
            reached.append("the wait")
    assert reached == []


def test_cleaning_up_after_an_interrupted_wait_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_signals, "SAME_REQUEST_S", 0.0)
    done: List[str] = []
    with StopSignals() as signals:
        with pytest.raises(KeyboardInterrupt), signals.interrupting():
            try:
                _send(signal.SIGTERM)
                time.sleep(60)
            finally:
                _send(signal.SIGINT)
                done.append("cleaned up")
        _send(signal.SIGUSR2)
        assert (signals.first, signals.requests, done) == (signal.SIGTERM, 3, ["cleaned up"])
