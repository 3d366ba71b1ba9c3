from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.last_records import Exited, path_of, to_text
from ipulaunch.launcher.show.display import details
from ipulaunch.launcher.supervise.instance_logs import Unkept
from ipulaunch.launcher.supervise.stall import Hang
from ipulaunch.launcher.supervise.verdict import End, Verdict, judge
from ipulaunch.topology.planning.plan import Plan

FIRST = "{} failed first: it {}"
FULL = Unkept(None, "output could not be kept in /full: No space left")


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
    hosts: Optional[Dict[str, str]] = None,
    **more: Any,
) -> Verdict:
    return judge(End(run, plan, code, said, ours, stopped_by, ask_hosts=lambda: hosts or {}, **more))


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
    assert details(verdict) == ("  | half way", f"log: {run_directory.log(1)}")


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
    assert details(verdict)[0] == f"  | log of {first[-1]}"


@pytest.mark.parametrize("code", [0, 1, 137])
def test_record_of_an_error_decides_the_exit_code(code: int, run_directory: RunDirectory, plan: Plan) -> None:
    _error(run_directory, 0, type="DataError", exit_code=5, hint="look at the files")
    verdict = _judge(run_directory, plan, code)
    assert (verdict.exit_code, details(verdict)[0]) == (5, "hint: look at the files")


def test_last_lines_of_the_log_are_shown(run_directory: RunDirectory, plan: Plan) -> None:
    _error(run_directory, 1)
    text = "".join(f"line {n} \xff {'x' * 100}\n" for n in range(5000))
    run_directory.log(1).write_bytes(text.encode("latin-1"))
    shown = details(_judge(run_directory, plan, 1))
    assert shown[-2].startswith("  | line 4999 \ufffd")
    assert shown[-1] == f"log: {run_directory.log(1)}"
    assert len(shown) < 30


def test_log_that_is_missing(run_directory: RunDirectory, plan: Plan) -> None:
    _error(run_directory, 0)
    assert details(_judge(run_directory, plan, 1)) == (f"log: {run_directory.log(0)}",)


@pytest.mark.parametrize("interrupted_code", [0, 1, -15])
@pytest.mark.parametrize(
    ("number", "ours", "code"),
    [
        (signal.SIGTERM, True, 75),
        (signal.SIGUSR1, True, 75),
        (signal.SIGINT, True, 130),
        (signal.SIGTERM, False, 130),  # whether a user's program can be started again, nobody knows
    ],
)
def test_interrupted(
    number: signal.Signals, ours: bool, code: int, interrupted_code: int, run_directory: RunDirectory, plan: Plan
) -> None:
    _error(run_directory, 0, time_ns=20)  # instances that are ended may still complain
    verdict = _judge(run_directory, plan, interrupted_code, stopped_by=number, ended_ns=10, ours=ours)
    assert (verdict.exit_code, verdict.headline.split(":")[0]) == (code, f"interrupted by {number.name}")
    assert verdict.was_asked_to_stop


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (60, "started again, it continues from the checkpoint of update 60"),
        (None, "there is no checkpoint yet: started again, it starts from the beginning"),
    ],
)
def test_who_was_interrupted_says_where_it_goes_on(
    kept: Optional[int], said: str, run_directory: RunDirectory, plan: Plan
) -> None:
    verdict = _judge(run_directory, plan, -2, stopped_by=signal.SIGTERM, ended_ns=10, kept=kept)
    assert verdict.headline == f"interrupted by SIGTERM: every instance was ended; {said}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("ended_ns", [None, 30], ids=["by itself", "later by us"])
def test_a_failure_before_we_ended_it_is_the_verdict(
    ended_ns: Optional[int], number: signal.Signals, run_directory: RunDirectory, plan: Plan
) -> None:
    """The disk is full at the checkpoint that was asked for."""
    _error(run_directory, 0, time_ns=20, type="JobError", message="no space left for the checkpoint of update 75")
    _error(run_directory, 1, time_ns=40)
    verdict = _judge(run_directory, plan, 7, stopped_by=number, ended_ns=ended_ns, kept=60)
    headline = "left:0 failed first: JobError: no space left for the checkpoint of update 75"
    assert (verdict.exit_code, verdict.headline) == (7, headline)
    assert verdict.was_asked_to_stop  # so it is not started again by itself


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_run_that_is_done_when_it_is_asked_to_stop_is_done(
    number: signal.Signals, run_directory: RunDirectory, plan: Plan
) -> None:
    """The request came in the last validation."""
    for instance in range(2):
        run_directory.done(instance).write_text("{}")
    verdict = _judge(run_directory, plan, 0, stopped_by=number)
    assert (verdict.exit_code, verdict.headline) == (0, "done")


def test_a_program_that_ends_well_after_a_signal_was_interrupted(run_directory: RunDirectory, plan: Plan) -> None:
    assert _judge(run_directory, plan, 0, stopped_by=signal.SIGTERM, ended_ns=10, ours=False).exit_code == 130


def test_a_host_that_is_lost_to_the_signal_is_no_failure(run_directory: RunDirectory, plan: Plan) -> None:
    """A scheduler sends TERM to the daemons of Open MPI on the other hosts as well."""
    _error(run_directory, 0, message="MPI_ERR_PROC_FAILED")
    verdict = _judge(run_directory, plan, 205, stopped_by=signal.SIGTERM, said=LOST_5.splitlines(), kept=60)
    assert (verdict.exit_code, verdict.headline.split(":")[0]) == (75, "interrupted by SIGTERM")


def test_the_log_of_who_was_silent_is_shown(run_directory: RunDirectory, plan: Plan) -> None:
    for instance in range(2):
        run_directory.log(instance).write_text(f"stacks of {instance}\n")
    verdict = _judge(run_directory, plan, -9, hung=Hang("no progress for 10 s: right:1 stopped", 1, "wait longer"))
    assert (verdict.exit_code, verdict.headline) == (7, "no progress for 10 s: right:1 stopped")
    assert details(verdict) == ("hint: wait longer", "  | stacks of 1", f"log: {run_directory.log(1)}")


def test_only_the_engine_failed(run_directory: RunDirectory, plan: Plan) -> None:
    for instance in range(2):
        run_directory.done(instance).write_text("{}")
    verdict = _judge(run_directory, plan, 213, said=["", "There are not enough slots", "  "])
    assert (verdict.exit_code, verdict.headline) == (7, "the engine ended with exit code 213")
    assert details(verdict) == ("engine: There are not enough slots",)


def test_an_engine_that_says_nothing_leads_to_the_instances(run_directory: RunDirectory, plan: Plan) -> None:
    run_directory.engine_log.touch()
    verdict = _judge(run_directory, plan, 9, ours=False)
    assert (verdict.exit_code, verdict.headline) == (7, "the engine ended with exit code 9")
    assert details(verdict) == (f"log: {run_directory.path}/instance-*/log.txt",)


def _exited(run: RunDirectory, instance: int, time_ns: int, code: int, number: int = 0) -> None:
    record = Exited(time_ns, code, number)
    path_of(record, run, instance).write_text(to_text(record.to_json()), encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "ends", "expected"),
    [
        pytest.param(1, [(1, 0, 0), (2, 1, 0)], FIRST.format("right:1", "ended with exit code 1"), id="after another"),
        pytest.param(1, [(2, 0, 15), (1, 3, 0)], FIRST.format("right:1", "ended with exit code 3"), id="ends another"),
        pytest.param(9, [(1, 0, 9), (2, 1, 0)], FIRST.format("left:0", "was ended by signal 9"), id="both"),
        pytest.param(0, [(1, 0, 0), (2, 1, 0)], FIRST.format("right:1", "ended with exit code 1"), id="engine content"),
        pytest.param(1, [(1, 0, 0), (99, 1, 0)], "the engine ended with exit code 1", id="since we ended it"),
        pytest.param(1, [(1, 0, 0), (2, 0, 0)], "the engine ended with exit code 1", id="none"),
        pytest.param(0, [(1, 0, 0), (2, 0, 0)], "done", id="all well"),
    ],
)
def test_the_program_that_failed_first_is_named_by_its_record(
    code: int, ends: List[Tuple[int, int, int]], expected: str, run_directory: RunDirectory, plan: Plan
) -> None:
    """Open MPI does not name an instance that fails after another one has left."""
    for instance, (time_ns, exit_code, number) in enumerate(ends):
        run_directory.log(instance).write_text(f"words of {instance}\n")
        _exited(run_directory, instance, time_ns, exit_code, number)
    verdict = _judge(run_directory, plan, code, ours=False, ended_ns=50)
    assert verdict.headline == expected
    if verdict.instance is not None:
        assert f"  | words of {verdict.instance}" in details(verdict)


@pytest.mark.parametrize(
    ("ends", "stopped_by", "expected"),
    [
        pytest.param([(2, 1, 0), (1, 75, 0)], None, (75, 1, True), id="first"),
        pytest.param([(1, 1, 0), (2, 75, 0)], None, (7, 0, False), id="after a failure"),
        pytest.param([(1, 0, 10), (2, 75, 0)], signal.SIGUSR1, (75, 1, False), id="asked to stop"),
        pytest.param([(1, 75, 0), (2, 75, 0)], signal.SIGINT, (130, 0, False), id="ctrl-c"),
        pytest.param([(1, 0, 10), (2, 0, 10)], signal.SIGUSR1, (130, None, False), id="ended by the signal"),
    ],
)
def test_a_program_that_ends_with_75_asks_to_be_continued(
    ends: List[Tuple[int, int, int]],
    stopped_by: Optional[int],
    expected: Tuple[int, Optional[int], bool],
    run_directory: RunDirectory,
    plan: Plan,
) -> None:
    for instance, end in enumerate(ends):
        _exited(run_directory, instance, *end)
    run_directory.program.touch()
    verdict = _judge(run_directory, plan, 75, ours=False, stopped_by=stopped_by)
    assert (verdict.exit_code, verdict.instance, verdict.asks_to_continue) == expected
    assert verdict.resume.startswith("ipulaunch resume")


def test_records_of_programs_that_are_none_change_nothing(run_directory: RunDirectory, plan: Plan) -> None:
    for instance, text in enumerate(["{", '{"exit_code": "1"}']):
        run_directory.exited(instance).write_text(text)
    assert _judge(run_directory, plan, 0, ours=False) == Verdict(0, "done")


def test_an_engine_that_was_killed_leads_to_an_instance_that_was_not_done(
    run_directory: RunDirectory, plan: Plan
) -> None:
    run_directory.engine_log.touch()
    run_directory.done(0).write_text("{}")
    run_directory.log(1).write_text("epoch 1/2\n")
    verdict = _judge(run_directory, plan, -9)
    assert (verdict.exit_code, verdict.headline) == (7, "the engine was ended by SIGKILL")
    assert details(verdict) == ("  | epoch 1/2", f"log: {run_directory.log(1)}")


def test_an_only_instance_is_not_named_by_the_engine(
    run_directory: RunDirectory, make_plan: Callable[..., Plan]
) -> None:
    run_directory.log(0).parent.mkdir(parents=True, exist_ok=True)
    run_directory.log(0).write_text("no such file\n")
    alone = make_plan(4, 1, hosts=("left",))
    verdict = _judge(run_directory, alone, 3, ours=False)
    assert (verdict.exit_code, verdict.headline) == (7, "left:0 failed first: it ended with exit code 3")
    assert details(verdict)[:2] == ("  | no such file", f"log: {run_directory.log(0)}")
    verdict = _judge(run_directory, alone, 3, ours=False, said=["There are not enough slots"])
    assert verdict.headline == "the engine ended with exit code 3"


@pytest.mark.parametrize("unkept", [(), (FULL, Unkept(0, "boom"))], ids=["kept", "unkept"])
@pytest.mark.parametrize(
    ("code", "how"),
    [
        (0, "ended without its done.json (1 of 1 have none)"),
        (3, "failed first: it ended with exit code 3"),
        (-9, "failed first: it was ended by signal 9"),
    ],
)
def test_without_an_engine_the_process_is_instance_0(
    code: int, how: str, unkept: Sequence[Unkept], run_directory: RunDirectory, make_plan: Callable[..., Plan]
) -> None:
    verdict = _judge(run_directory, make_plan(4, 1), code, unkept=unkept, is_direct=True)
    assert (verdict.exit_code, verdict.headline) == (7, f"localhost:0 {how}")
    assert verdict.unkept_lines == ((FULL.line, "localhost:0| boom") if unkept else ())
    assert not any(line.startswith("engine") for line in details(verdict))


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
        pytest.param(
            "prterun has exited due to process rank 1 with PID 15033 on node vm exiting\nimproperly.",
            "ended with exit code 0 and without its done.json",
            id="exit-0",
        ),
    ],
)
@pytest.mark.parametrize("ours", [True, False], ids=["workload", "program"])
def test_instance_that_the_engine_blames_is_named(
    said: str, how: str, ours: bool, run_directory: RunDirectory, plan: Plan
) -> None:
    verdict = _judge(run_directory, plan, 137, said=said.split("\n"), ours=ours)
    assert (verdict.exit_code, verdict.headline) == (7, f"right:1 failed first: it {how}")


@pytest.mark.parametrize(
    ("logged", "end"),
    [
        pytest.param("terminate called after throwing an instance of 'std::bad_alloc'", ", out of memory", id="C++"),
        pytest.param("cannot allocate memory for thread-local data: ABORT", ", out of memory", id="C"),
        pytest.param("Segmentation fault", "", id="something-else"),
    ],
)
def test_out_of_memory_is_told_by_the_last_words(
    logged: str, end: str, run_directory: RunDirectory, plan: Plan
) -> None:
    run_directory.log(1).write_text(logged)
    said = ["mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 6 (Aborted)."]
    verdict = _judge(run_directory, plan, 134, said=said)
    assert verdict.headline == f"right:1 failed first: it was ended by signal 6{end}"


def test_kill_by_nobody_has_a_likely_reason(run_directory: RunDirectory, plan: Plan) -> None:
    said = ["mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)."]
    assert "see dmesg" in details(_judge(run_directory, plan, 137, said=said))[0]


def test_headline_is_one_line(run_directory: RunDirectory, plan: Plan) -> None:
    _error(run_directory, 0, message="\nGraph execution error\nand much more")
    assert _judge(run_directory, plan, 1).headline == "left:0 failed first: ValueError: Graph execution error"


def resuming(path: Path) -> str:
    return f"resume: ipulaunch resume {shlex.quote(str(path))}"


@pytest.mark.parametrize("code", [0, 1, 137])
def test_workload_can_be_resumed_even_without_a_checkpoint(code: int, run_directory: RunDirectory, plan: Plan) -> None:
    run_directory.job.touch()
    assert details(_judge(run_directory, plan, code))[-1] == resuming(run_directory.path)
    (run_directory.path.parent / "job.json").touch()  # it was submitted: the run is what the job belongs to
    assert details(_judge(run_directory, plan, code))[-1] == resuming(run_directory.path.parent)


@pytest.mark.parametrize(("code", "kept", "helps"), [(5, None, False), (6, None, False), (5, 4, True), (7, None, True)])
def test_resuming_is_offered_where_the_settings_may_be_right(
    code: int, kept: Optional[int], helps: bool, run_directory: RunDirectory, plan: Plan
) -> None:
    run_directory.job.touch()
    _error(run_directory, 1, exit_code=code)
    shown = details(_judge(run_directory, plan, 1, kept=kept))
    assert (resuming(run_directory.path) in shown) is helps


def test_output_that_could_not_be_kept_is_shown(run_directory: RunDirectory, plan: Plan) -> None:
    unkept = [FULL, Unkept(1, "error: no space left"), Unkept(0, "x")]
    said = ["   Process name: [prterun-vm-5347@1,1]", "   Exit code:    7"]
    shown = details(_judge(run_directory, plan, 7, said=said, unkept=unkept))
    assert shown == (FULL.line, "right:1| error: no space left", f"log: {run_directory.log(1)}")
    assert details(_judge(run_directory, plan, 7, unkept=unkept))[:3] == (*shown[:2], "left:0| x")


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


# As Open MPI 5 and 4 print it; both end with exit code 0 or another.
LOST_5 = """\
PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-login-35@0,0] on node login
  Remote daemon: [prterun-login-35@0,2] on node right
"""
LOST_4 = """\
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[1238,0],0] on node login
  Remote daemon: [[1238,0],2] on node right.example.org
"""
GONE = """\
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the
  Local host:    login
  Remote host:   right
  Daemon exit status: 255
"""


@pytest.mark.parametrize("code", [0, 205])
@pytest.mark.parametrize("text", [LOST_5, LOST_4, GONE], ids=["5", "4", "gone"])
def test_a_host_that_the_engine_has_lost_comes_before_what_the_others_say(
    text: str, code: int, run_directory: RunDirectory, plan: Plan
) -> None:
    _error(run_directory, 0, message="MPI_ERR_PROC_FAILED")
    verdict = _judge(run_directory, plan, code, said=text.splitlines())
    assert (verdict.exit_code, verdict.headline.split(":")[0]) == (7, "host right was lost")


def test_a_run_that_is_done_has_lost_nothing(run_directory: RunDirectory, plan: Plan) -> None:
    for instance in range(2):
        run_directory.done(instance).write_text("{}")
    assert _judge(run_directory, plan, 0, said=LOST_5.splitlines()) == Verdict(0, "done")


def test_hosts_are_named_where_nothing_else_tells_why_the_engine_failed(
    run_directory: RunDirectory, plan: Plan
) -> None:
    hosts = {"right": "does not answer (no route)"}
    verdict = _judge(run_directory, plan, 213, said=["ssh failed"], hosts=hosts)
    assert verdict.headline == "host right does not answer (no route); the engine ended with exit code 213"
    assert "engine: ssh failed" in details(verdict)
    _error(run_directory, 0, message="from 0")
    assert _judge(run_directory, plan, 213, hosts=hosts).headline == "left:0 failed first: ValueError: from 0"
