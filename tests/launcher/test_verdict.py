from __future__ import annotations

import json
import signal
from typing import Any, Callable, Dict, Optional, Sequence

import pytest

from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.launcher.verdict import Verdict, judge
from ipulaunch.topology.plan import Plan


@pytest.fixture()
def plan(make_plan: Callable[..., Plan]) -> Plan:
    return make_plan(4, 2, hosts=("left", "right"))


def _error(run: RunDirectory, instance: int, **fields: Any) -> None:
    record: Dict[str, Any] = {
        "time_ns": 0,
        "type": "ValueError",
        "message": "bad",
        "hint": "",
        "exit_code": 7,
        **fields,
    }
    run.error(instance).write_text(json.dumps(record), encoding="utf-8")


def _judge(
    run: RunDirectory,
    plan: Plan,
    code: int,
    *,
    stopped_by: Optional[int] = None,
    said: Sequence[str] = (),
    ours: bool = True,
) -> Verdict:
    return judge(run, plan, code, stopped_by, list(said), ours)


def test_good_run_has_every_record(run_directory: RunDirectory, plan: Plan) -> None:
    for instance in range(2):
        run_directory.done(instance).write_text("{}")
    assert _judge(run_directory, plan, 0) == Verdict(0, "done")


def test_program_of_a_user_needs_no_record(run_directory: RunDirectory, plan: Plan) -> None:
    assert _judge(run_directory, plan, 0, ours=False) == Verdict(0, "done")


def test_exit_0_without_a_record_is_no_success(run_directory: RunDirectory, plan: Plan) -> None:
    run_directory.done(0).write_text("{}")
    run_directory.log(1).write_text("half way\n")
    verdict = _judge(run_directory, plan, 0)
    assert verdict.exit_code == 7
    assert "right:1" in verdict.headline
    assert "done.json" in verdict.headline
    assert "1 of 2" in verdict.headline
    assert verdict.details == ("  | half way", f"log: {run_directory.log(1)}")


@pytest.mark.parametrize("ours", [True, False], ids=["workload", "program"])
@pytest.mark.parametrize(("times", "first"), [((20, 10), "right:1"), ((10, 20), "left:0"), ((10, 10), "left:0")])
def test_first_failure_is_the_earliest(
    times: Any, first: str, ours: bool, run_directory: RunDirectory, plan: Plan
) -> None:
    base = 1_800_000_000_000_000_000  # two times that a float cannot tell apart
    for instance, time_ns in enumerate(times):
        _error(run_directory, instance, time_ns=base + time_ns, message=f"from {instance}")
        run_directory.log(instance).write_text(f"log of {instance}\n")
    verdict = _judge(run_directory, plan, 1, ours=ours)
    assert verdict.headline == f"{first} failed first: ValueError: from {first[-1]}"
    assert verdict.details[0] == f"  | log of {first[-1]}"


@pytest.mark.parametrize("code", [0, 1, 137])
def test_record_of_an_error_decides_the_exit_code(code: int, run_directory: RunDirectory, plan: Plan) -> None:
    _error(run_directory, 0, type="DataError", exit_code=5, hint="look at the files")
    verdict = _judge(run_directory, plan, code)
    assert (verdict.exit_code, verdict.details[0]) == (5, "hint: look at the files")


def test_last_lines_of_the_log_are_shown(run_directory: RunDirectory, plan: Plan) -> None:
    _error(run_directory, 1)
    text = "".join(f"line {n} \xff {'x' * 100}\n" for n in range(5000))
    run_directory.log(1).write_bytes(text.encode("latin-1"))
    details = _judge(run_directory, plan, 1).details
    assert details[-2].startswith("  | line 4999 \ufffd")
    assert details[-1] == f"log: {run_directory.log(1)}"
    assert len(details) < 30


def test_log_that_is_missing(run_directory: RunDirectory, plan: Plan) -> None:
    _error(run_directory, 0)
    assert _judge(run_directory, plan, 1).details == (f"log: {run_directory.log(0)}",)


@pytest.mark.parametrize("interrupted_code", [0, 1, -15])
def test_interrupted(interrupted_code: int, run_directory: RunDirectory, plan: Plan) -> None:
    _error(run_directory, 0)  # instances that are ended may still complain
    verdict = _judge(run_directory, plan, interrupted_code, stopped_by=signal.SIGTERM)
    assert (verdict.exit_code, verdict.headline.split(":")[0]) == (130, "interrupted by SIGTERM")


def test_only_the_engine_failed(run_directory: RunDirectory, plan: Plan) -> None:
    for instance in range(2):
        run_directory.done(instance).write_text("{}")
    verdict = _judge(run_directory, plan, 213, said=["", "There are not enough slots", "  "])
    assert (verdict.exit_code, verdict.headline) == (7, "the engine ended with exit code 213")
    assert verdict.details == ("engine: There are not enough slots",)


def test_engine_failed_and_an_instance_was_silent(run_directory: RunDirectory, plan: Plan) -> None:
    run_directory.done(0).write_text("{}")
    verdict = _judge(run_directory, plan, 1)
    assert verdict.exit_code == 7
    assert "exit code 1" in verdict.headline
    assert "right:1" in verdict.headline


@pytest.mark.parametrize(
    ("said", "how"),
    [
        pytest.param(
            "prterun noticed that process rank 1 with PID 12418 on node vm exited on\nsignal 9 (Killed).",
            "was ended by signal 9",
            id="killed-5",
        ),
        pytest.param(
            "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).",
            "was ended by signal 9",
            id="killed-4",
        ),
        pytest.param(
            "   Process name: [prterun-vm-5347@1,1]\n   Exit code:    5", "ended with exit code 5", id="exit-5"
        ),
        pytest.param("  Process name: [[30754,1],1]\n  Exit code:    5", "ended with exit code 5", id="exit-4"),
    ],
)
@pytest.mark.parametrize("ours", [True, False], ids=["workload", "program"])
def test_instance_that_the_engine_blames_is_named(
    said: str, how: str, ours: bool, run_directory: RunDirectory, plan: Plan
) -> None:
    verdict = _judge(run_directory, plan, 137, said=said.split("\n"), ours=ours)
    assert (verdict.exit_code, verdict.headline) == (7, f"right:1 failed first: it {how}")


def test_engine_that_was_killed_is_told_by_its_signal(run_directory: RunDirectory, plan: Plan) -> None:
    assert "SIGKILL" in _judge(run_directory, plan, -9, ours=False).headline


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside-a-good-one"])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"{", id="broken"),
        pytest.param(b"null", id="not-a-record"),
        pytest.param(b"\xff", id="not-text"),
        pytest.param(b"{}", id="no-fields"),
        pytest.param(b'{"time_ns": "x", "exit_code": null}', id="wrong-kinds"),
        pytest.param(b'{"time_ns": 1, "exit_code": 0}', id="exit-code-0"),
    ],
)
def test_damaged_record_still_fails_the_run(
    text: bytes, is_alone: bool, run_directory: RunDirectory, plan: Plan
) -> None:
    run_directory.error(1).write_bytes(text)
    if not is_alone:
        _error(run_directory, 0, time_ns=5)
    assert _judge(run_directory, plan, 1).exit_code == 7
