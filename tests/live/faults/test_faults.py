"""The table of faults: what happens to a run, how it ends, and that it can be continued as if nothing had been.

By day all of it with the light worker, and two rows with the real one up to the verdict; by night every row with the
real one, since an import of TensorFlow in each of a row's instances takes more time than all else.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
in_every_round = pytest.mark.parametrize("round_number", range(1, ROUNDS + 1), ids=lambda number: f"round-{number}")
LONGEST_S = 1800.0
SOON_S = 10.0  # on a machine that measures the table; on others nothing depends on it
MOST_LINES = 24  # of a verdict: one screen
KEPT = 24  # the update of the first checkpoint
IN_EPOCH = {"at": "step", "count": 28}  # in the fifth epoch, after that checkpoint
IN_CHECKPOINT = {"at": "checkpoint", "count": 2}  # of update 48, on instance 0, which writes it
KILLED = r"localhost:{} failed first: it was ended by signal 9"


@dataclass(frozen=True)
class Row:
    """A fault, and what is said of it."""

    name: str
    says: str  # in the verdict's first line
    faults: Tuple[Dict[str, Any], ...]
    code: int = 7
    newest: Optional[int] = KEPT  # the update of the checkpoint that is there at least
    within_s: float = SOON_S
    instances: int = 2
    options: Tuple[str, ...] = ()
    real_by_day: bool = False


def killed(when: str, instance: int, newest: Optional[int], real_by_day: bool = False, **fault: Any) -> Row:
    instances = 4 if fault["at"] in ("start", "import") else 2
    name = f"SIGKILL of instance {instance} of {instances} {when}"
    whole = {"instance": instance, "do": "kill", **fault}
    return Row(name, KILLED.format(instance), (whole,), newest=newest, instances=instances, real_by_day=real_by_day)


ROWS = (
    killed("before import", 0, None, at="start"),
    killed("before import", 3, None, at="start"),
    killed("while importing", 0, None, at="import"),
    killed("while importing", 3, None, at="import"),
    killed("in the first step", 0, None, at="step"),
    killed("in the first step", 1, None, at="step"),
    killed("in an epoch", 0, KEPT, **IN_EPOCH),
    killed("in an epoch", 1, KEPT, real_by_day=True, **IN_EPOCH),
    killed("in validation", 0, 144, at="validation", count=2),
    killed("in validation", 1, 144, at="validation", count=2),
    killed("in a checkpoint", 0, KEPT, **IN_CHECKPOINT),
    Row(
        "SIGKILL of instance 1 of 2 in a checkpoint",
        KILLED.format(1),
        ({"instance": 0, "do": "kill", "victim": 1, **IN_CHECKPOINT},),
    ),
    Row(
        "exception in the data pipeline",
        "localhost:1 failed first: ValueError: a fault that was asked for$",
        ({"instance": 1, "at": "load", "count": 60, "do": "fail"},),
    ),
    Row(
        "out of memory in a worker: its address space is limited",
        r"localhost:1 failed first: \w+: out of memory: this instance has [\d.]+ GiB in [\d.]+ GiB of address space,"
        r" which is limited to [\d.]+ GiB",
        ({"instance": 1, "do": "starve", **IN_EPOCH},),
    ),
    Row(
        "exit 0 without done.json",
        "localhost:1 failed first: it ended with exit code 0 and without its done.json",
        ({"instance": 1, "do": "leave", **IN_EPOCH},),
    ),
    Row(
        "exit 0 of an only instance without done.json",
        r"localhost:0 ended without its done.json \(1 of 1 have none\)",
        ({"instance": 0, "do": "leave", **IN_CHECKPOINT},),
        instances=1,  # of which the engine tells nothing bad
    ),
    Row("mpirun SIGKILLed", "the engine was ended by SIGKILL$", ({"instance": 0, "do": "kill_engine", **IN_EPOCH},)),
    Row(
        "a worker ignores SIGTERM, and another fails",
        "localhost:0 failed first: ValueError: a fault that was asked for$",
        ({"instance": 0, "do": "fail", **IN_EPOCH}, {"instance": 1, "do": "be_deaf", **IN_EPOCH}),
    ),
    Row(
        "a worker ignores SIGTERM, and the run is asked to stop (--grace 2)",
        "interrupted by SIGTERM: every instance was ended;"
        " started again, it continues from the checkpoint of update 24",
        ({"instance": 1, "do": "ask_and_be_deaf", **IN_EPOCH},),
        code=75,
        within_s=SOON_S + 2,
        options=("--grace", "2"),
    ),
    Row(
        "a worker forks a grandchild that outlives it",
        KILLED.format(1),
        ({"instance": 1, "do": "leave_a_child", **IN_EPOCH},),
    ),
)


def assert_one_screen(outcome: Any, trial: Any, code: int, says: str, within_s: float) -> None:
    """The verdict: what came first, where the log is, how to resume."""
    assert outcome.code == code, outcome.said
    first = outcome.line(f"exit code {code} after ")
    assert first is not None and re.search(says, first), outcome.said
    shown = outcome.said.splitlines()
    start = next(i for i, line in enumerate(shown) if line.startswith(f"exit code {code} after "))
    assert len(shown) - start <= MOST_LINES, outcome.said
    assert outcome.line("resume: ") == f"ipulaunch resume {shlex.quote(str(trial.run))}", outcome.said
    log = outcome.line("log: ")
    assert code == 75 or (log is not None and Path(log).is_file()), outcome.said
    assert_soon(outcome, within_s)


def assert_soon(outcome: Any, within_s: float = SOON_S) -> None:
    """In time, where that is measured: with a machine of one's own."""
    assert ROUNDS == 1 or outcome.seconds < within_s, outcome.said


def with_workers(*values: Any, name: str, real_by_day: bool = False) -> List[Any]:
    """The light worker, and by night the real one; of a few rows by day up to the verdict. In many rounds the real one.

    That a real run continues as if nothing had been is seen by day where one was asked to stop: see test_stopping.
    """
    real = pytest.param(*values, "real", id=f"{name}-real", marks=pytest.mark.night)
    if ROUNDS > 1:
        return [real]
    light = pytest.param(*values, "light", id=name)
    by_day = pytest.param(*values, "unresumed", id=f"{name}-unresumed")
    return [light, by_day, real] if real_by_day else [light, real]


def on_both_workers(real_by_day: bool = False) -> Any:
    return pytest.mark.parametrize("worker", with_workers(name="whole", real_by_day=real_by_day))


@in_every_round
@pytest.mark.parametrize(
    ("row", "worker"),
    [case for row in ROWS for case in with_workers(row, name=row.name, real_by_day=row.real_by_day)],
)
def test_row(row: Row, worker: str, round_number: int, trial: Any, undisturbed: Any, noted: Any) -> None:
    """By night with the real worker: see above."""
    outcome = trial.disturbed(*row.options, faults=list(row.faults), instances=row.instances)
    assert_one_screen(outcome, trial, row.code, row.says, row.within_s)
    trial.assert_checkpoints_are_whole(row.newest)
    trial.assert_continues(undisturbed)
    noted(row.name, outcome, True)


@in_every_round
@pytest.mark.parametrize(
    ("when", "fault", "newest", "worker"),
    [
        *with_workers("in an epoch", IN_EPOCH, KEPT, name="in-an-epoch"),
        *with_workers("while importing", {"at": "import"}, None, name="while-importing"),
    ],
)
def test_hang(
    when: str,
    fault: Dict[str, Any],
    newest: Optional[int],
    worker: str,
    round_number: int,
    trial: Any,
    undisturbed: Any,
    noted: Any,
) -> None:
    """By night with the real worker, which is silent for long while it imports and compiles."""
    stall_timeout_s = {"light": 8, "real": 60}[worker] if ROUNDS == 1 else 20
    faults = [{"instance": 1, "do": "stop", **fault}]
    outcome = None
    # A machine may be so busy that a good run counts as hung before the fault comes, or before an instance that was
    # stopped has been silent for long enough: it gets more time.
    while outcome is None or "all instances live, and wait" in outcome.said:
        assert stall_timeout_s < LONGEST_S and (ROUNDS == 1 or stall_timeout_s == 20), outcome and outcome.said
        trial = trial.elsewhere(f"stall-timeout-{stall_timeout_s}")
        said_s, stall_timeout_s = stall_timeout_s, 2 * stall_timeout_s
        outcome = trial.tried("--stall-timeout", str(said_s), faults=faults)
    says = f"no progress for {said_s} s: localhost:1 stopped showing signs of life"
    assert_one_screen(outcome, trial, 7, says, said_s + SOON_S)
    logs = [(trial.run / f"instance-00{instance}" / "log.txt").read_text() for instance in (0, 1)]
    have_stacks = ["most recent call first" in log for log in logs]
    # The launcher waits some seconds for the stack of the instance that was stopped; a busy machine may need more.
    assert all(have_stacks) if ROUNDS > 1 else any(have_stacks), logs
    trial.assert_checkpoints_are_whole(newest)
    trial.assert_continues(undisturbed)
    noted(f"SIGSTOP of instance 1 of 2 {when} (--stall-timeout {said_s})", outcome, True)


@in_every_round
@on_both_workers(real_by_day=True)
def test_damaged_data(worker: str, round_number: int, trial: Any, undisturbed: Any, noted: Any, tmp_path: Path) -> None:
    """By day with the real worker as well: TensorFlow reads ahead, and carries the error in words of its own."""
    good, trial.volumes = trial.volumes, tmp_path / "volumes"
    shutil.copytree(good, trial.volumes)
    file = Path("train", "part-00000.tfrecord")
    faults = [{"instance": 1, "do": "damage", "file": str(trial.volumes / file), **IN_EPOCH}]
    outcome = trial.disturbed(faults=faults)
    where = re.escape(str(trial.volumes / file))
    says = rf"localhost:[01] failed first: DataError: {where}, record 0 at byte \d+: the data has the wrong checksum"
    assert_one_screen(outcome, trial, 5, says, SOON_S)
    trial.assert_checkpoints_are_whole(KEPT)
    shutil.copy(good / file, trial.volumes / file)
    trial.assert_continues(undisturbed)
    noted("a record is damaged while the run reads it", outcome, True)


@in_every_round
@pytest.mark.parametrize(
    ("what", "worker"),
    [case for what in ("checkpoints", "run") for case in with_workers(what, name=f"disk-of-the-{what}")],
)
def test_full_disk(
    what: str, worker: str, round_number: int, trial: Any, undisturbed: Any, small_disk: Any, noted: Any
) -> None:
    """By night with the real worker: see above."""
    disk = small_disk("512k")
    options = []
    if what == "run":
        trial.run = trial.checkpoints = disk / "run"
    else:
        trial.checkpoints = disk / "checkpoints"
        options = ["--set", f"training.checkpoint_output_dir={trial.checkpoints}"]
    faults = [{"instance": 0, "do": "fill", "directory": str(disk), **IN_CHECKPOINT}]
    outcome = trial.disturbed(*options, faults=faults)
    place = trial.run / "checkpoints" if what == "run" else trial.checkpoints
    says = (
        "localhost:0 failed first: JobError: no space left for the checkpoint of update 48: it needs 0.00[1-9] MiB,"
        rf" the disk of {re.escape(str(place))} has 0.0[0-9]+ of 0.500 MiB free"
    )
    assert_one_screen(outcome, trial, 7, says, SOON_S)
    trial.assert_checkpoints_are_whole(KEPT)
    small_disk("16m")
    trial.assert_continues(undisturbed)
    noted(f"disk full at a checkpoint: the disk of the {what}", outcome, True)


@in_every_round
@on_both_workers()
def test_full_disk_at_the_checkpoint_on_request(
    worker: str, round_number: int, trial: Any, undisturbed: Any, small_disk: Any, noted: Any
) -> None:
    """By night with the real worker: see above."""
    disk = small_disk("512k")
    trial.checkpoints = disk / "checkpoints"
    faults = [{"instance": 0, "do": "fill_and_ask", "directory": str(disk), **IN_EPOCH}]
    options = ["--max-restarts", "1", "--set", f"training.checkpoint_output_dir={trial.checkpoints}"]
    outcome = trial.disturbed(*options, faults=faults)
    says = (
        r"localhost:0 failed first: JobError: no space left for the checkpoint of update 2\d: it needs 0.00[1-9] MiB,"
    )
    assert_one_screen(outcome, trial, 7, says, SOON_S)
    assert "restart 1 of 1" not in outcome.said  # nobody starts what was asked to stop
    trial.assert_checkpoints_are_whole(KEPT)
    small_disk("16m")
    trial.assert_continues(undisturbed)
    noted("disk full at the checkpoint on request", outcome, True)


@in_every_round
@on_both_workers()
def test_asked_to_stop_in_the_last_validation(
    worker: str, round_number: int, trial: Any, undisturbed: Any, noted: Any
) -> None:
    """By night with the real worker: see above."""
    faults = [{"instance": 1, "at": "validation", "count": 6, "do": "ask", "number": int(signal.SIGTERM)}]
    outcome = trial.disturbed(faults=faults)
    assert outcome.code == 0 and "done in" in outcome.said, outcome.said
    assert outcome.line("resume: ") is None
    assert_soon(outcome)
    trial.assert_same_end(undisturbed)
    noted("asked to stop in the last validation", outcome, False)


@in_every_round
@on_both_workers()
def test_run_directory_removed(worker: str, round_number: int, trial: Any, noted: Any) -> None:
    """By night with the real worker: see above."""
    outcome = trial.disturbed(faults=[{"instance": 0, "do": "remove", **IN_EPOCH}])
    assert outcome.code == 7, outcome.said
    assert f"the run directory {trial.run} has gone while the run went on: every instance was ended" in outcome.said
    assert "Traceback" not in outcome.said
    assert not trial.run.exists()
    assert_soon(outcome)
    noted("run directory removed", outcome, False)


@in_every_round
@on_both_workers()
def test_launcher_killed(worker: str, round_number: int, trial: Any, undisturbed: Any, noted: Any) -> None:
    """By night with the real worker: see above."""
    faults = [{"instance": 1, "do": "kill_launcher", **IN_EPOCH}]
    outcome = trial.disturbed(faults=faults, ends_later=True)
    assert_soon(outcome)
    assert outcome.code == -signal.SIGKILL
    trial.assert_checkpoints_are_whole(KEPT)
    trial.assert_continues(undisturbed)
    noted("launcher SIGKILLed (seconds until no process is left)", outcome, True)
