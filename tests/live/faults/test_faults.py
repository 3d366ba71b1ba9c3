"""The table of faults: what happens to a run, how it ends, and that it can be continued as if nothing had been."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

import pytest

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
in_every_round = pytest.mark.parametrize("round_number", range(1, ROUNDS + 1), ids=lambda number: f"round-{number}")
SOON_S = 120.0 if ROUNDS == 1 else 10.0  # on a machine that may be busy, or on one that measures the table
MOST_LINES = 24  # of a verdict: one screen
IN_EPOCH = {"at": "step", "count": 75}  # in the 13th epoch, after the checkpoint of update 60
IN_CHECKPOINT = {"at": "checkpoint", "count": 2}  # of update 120, on instance 0, which writes it
KILLED = r"localhost:{} failed first: it was ended by signal 9"


@dataclass(frozen=True)
class Row:
    """A fault, and what is said of it."""

    name: str
    says: str  # in the verdict's first line
    faults: Tuple[Dict[str, Any], ...]
    code: int = 7
    newest: Optional[int] = 60  # the update of the checkpoint that is there at least
    within_s: float = SOON_S
    instances: int = 2
    options: Tuple[str, ...] = ()
    always: bool = True  # or with `make faults` alone, where a neighbour says nearly the same


def killed(when: str, instance: int, newest: Optional[int], always: bool = True, **fault: Any) -> Row:
    instances = 4 if fault["at"] in ("start", "import") else 2
    name = f"SIGKILL of instance {instance} of {instances} {when}"
    whole = {"instance": instance, "do": "kill", **fault}
    return Row(name, KILLED.format(instance), (whole,), newest=newest, instances=instances, always=always)


ROWS = (
    killed("before import", 0, None, always=False, at="start"),
    killed("before import", 3, None, at="start"),
    killed("while importing", 0, None, at="import"),
    killed("while importing", 3, None, always=False, at="import"),
    killed("in the first step", 0, None, always=False, at="step"),
    killed("in the first step", 1, None, at="step"),
    killed("in an epoch", 0, 60, **IN_EPOCH),
    killed("in an epoch", 1, 60, **IN_EPOCH),
    killed("in validation", 0, 360, at="validation", count=2),
    killed("in validation", 1, 360, always=False, at="validation", count=2),
    killed("in a checkpoint", 0, 60, **IN_CHECKPOINT),
    Row(
        "SIGKILL of instance 1 of 2 in a checkpoint",
        KILLED.format(1),
        ({"instance": 0, "do": "kill", "victim": 1, **IN_CHECKPOINT},),
    ),
    Row(
        "exception in the data pipeline",
        "localhost:1 failed first: ValueError: a fault that was asked for$",
        ({"instance": 1, "at": "load", "count": 140, "do": "fail"},),
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
        always=False,
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
        " started again, it continues from the checkpoint of update 60",
        ({"instance": 1, "do": "ask_and_be_deaf", **IN_EPOCH},),
        code=75,
        within_s=SOON_S + 2,
        options=("--grace", "2"),
        always=False,
    ),
    Row(
        "a worker forks a grandchild that outlives it",
        KILLED.format(1),
        ({"instance": 1, "do": "leave_a_child", **IN_EPOCH},),
    ),
)


def assert_one_screen(outcome: Any, trial: Any, code: int, says: str, within_s: float) -> None:
    """The verdict: what came first, where the log is, how to resume; in time."""
    assert outcome.code == code, outcome.said
    first = outcome.line(f"exit code {code} after ")
    assert first is not None and re.search(says, first), outcome.said
    shown = outcome.said.splitlines()
    start = next(i for i, line in enumerate(shown) if line.startswith(f"exit code {code} after "))
    assert len(shown) - start <= MOST_LINES, outcome.said
    assert outcome.line("resume: ") == f"ipulaunch resume {shlex.quote(str(trial.run))}", outcome.said
    log = outcome.line("log: ")
    assert code == 75 or (log is not None and Path(log).is_file()), outcome.said
    assert outcome.seconds < within_s, outcome.said


@in_every_round
@pytest.mark.parametrize("row", [row for row in ROWS if row.always or ROUNDS > 1], ids=lambda row: row.name)
def test_row(row: Row, round_number: int, trial: Any, undisturbed: Any, noted: Any) -> None:
    outcome = trial.disturbed(*row.options, faults=list(row.faults), instances=row.instances)
    assert_one_screen(outcome, trial, row.code, row.says, row.within_s)
    trial.assert_checkpoints_are_whole(row.newest)
    trial.resume()
    trial.assert_same_end(undisturbed)
    noted(row.name, outcome, True)


@in_every_round
@pytest.mark.parametrize(
    ("when", "fault", "newest"),
    [
        pytest.param("in an epoch", IN_EPOCH, 60, id="in-an-epoch"),
        pytest.param("while importing", {"at": "import"}, None, id="while-importing"),
    ][: 1 if ROUNDS == 1 else 2],
)
def test_hang(
    when: str, fault: Dict[str, Any], newest: Optional[int], round_number: int, trial: Any, undisturbed: Any, noted: Any
) -> None:
    # Longer than import and compilation take, in which nothing is recorded either; on a busy machine that is much.
    stall_timeout_s = max(60, round(2 * undisturbed.seconds)) if ROUNDS == 1 else 20
    faults = [{"instance": 1, "do": "stop", **fault}]
    outcome = trial.disturbed("--stall-timeout", str(stall_timeout_s), faults=faults)
    # mpi4py starts MPI with Python's lock held: an instance that waits there for another shows no life either.
    who = "(localhost:0, )?localhost:1" if newest is None else "localhost:1"
    says = f"no progress for {stall_timeout_s} s: {who} stopped showing signs of life"
    assert_one_screen(outcome, trial, 7, says, stall_timeout_s + SOON_S)
    for instance in (0, 1):
        log = (trial.run / f"instance-00{instance}" / "log.txt").read_text()
        assert "most recent call first" in log, log
    trial.assert_checkpoints_are_whole(newest)
    trial.resume()
    trial.assert_same_end(undisturbed)
    noted(f"SIGSTOP of instance 1 of 2 {when} (--stall-timeout {stall_timeout_s})", outcome, True)


@in_every_round
def test_damaged_data(round_number: int, trial: Any, undisturbed: Any, noted: Any, tmp_path: Path) -> None:
    good, trial.volumes = trial.volumes, tmp_path / "volumes"
    shutil.copytree(good, trial.volumes)
    file = Path("train", "part-00000.tfrecord")
    faults = [{"instance": 1, "do": "damage", "file": str(trial.volumes / file), **IN_EPOCH}]
    outcome = trial.disturbed(faults=faults)
    says = rf"localhost:[01] failed first: DataError: \S+{file}, record 0 at byte \d+: the data has the wrong checksum"
    assert_one_screen(outcome, trial, 5, says, SOON_S)
    trial.assert_checkpoints_are_whole(60)
    shutil.copy(good / file, trial.volumes / file)
    trial.resume()
    trial.assert_same_end(undisturbed)
    noted("a record is damaged while the run reads it", outcome, True)


@in_every_round
@pytest.mark.parametrize(
    "what", ["checkpoints", "run"][: 1 if ROUNDS == 1 else 2], ids=lambda what: f"disk-of-the-{what}"
)
def test_full_disk(
    what: str, round_number: int, trial: Any, undisturbed: Any, small_disk: Callable[[str], Path], noted: Any
) -> None:
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
        "localhost:0 failed first: JobError: no space left for the checkpoint of update 120: it needs 0.00[1-9] MiB,"
        rf" the disk of {place} has 0.0[0-9]+ of 0.500 MiB free"
    )
    assert_one_screen(outcome, trial, 7, says, SOON_S)
    trial.assert_checkpoints_are_whole(60)
    small_disk("16m")
    trial.resume()
    trial.assert_same_end(undisturbed)
    noted(f"disk full at a checkpoint: the disk of the {what}", outcome, True)


@in_every_round
def test_full_disk_at_the_checkpoint_on_request(
    round_number: int, trial: Any, undisturbed: Any, small_disk: Callable[[str], Path], noted: Any
) -> None:
    disk = small_disk("512k")
    trial.checkpoints = disk / "checkpoints"
    faults = [{"instance": 0, "do": "fill_and_ask", "directory": str(disk), **IN_EPOCH}]
    options = ["--max-restarts", "1", "--set", f"training.checkpoint_output_dir={trial.checkpoints}"]
    outcome = trial.disturbed(*options, faults=faults)
    says = (
        r"localhost:0 failed first: JobError: no space left for the checkpoint of update 7\d: it needs 0.00[1-9] MiB,"
    )
    assert_one_screen(outcome, trial, 7, says, SOON_S)
    assert "restart 1 of 1" not in outcome.said  # nobody starts what was asked to stop
    trial.assert_checkpoints_are_whole(60)
    small_disk("16m")
    trial.resume()
    trial.assert_same_end(undisturbed)
    noted("disk full at the checkpoint on request", outcome, True)


@in_every_round
def test_asked_to_stop_in_the_last_validation(round_number: int, trial: Any, undisturbed: Any, noted: Any) -> None:
    faults = [{"instance": 1, "at": "validation", "count": 6, "do": "ask", "number": int(signal.SIGTERM)}]
    outcome = trial.disturbed(faults=faults)
    assert outcome.code == 0 and "done in" in outcome.said, outcome.said
    assert outcome.line("resume: ") is None
    assert outcome.seconds < SOON_S
    trial.assert_same_end(undisturbed)
    noted("asked to stop in the last validation", outcome, False)


@in_every_round
def test_run_directory_removed(round_number: int, trial: Any, noted: Any) -> None:
    outcome = trial.disturbed(faults=[{"instance": 0, "do": "remove", **IN_EPOCH}])
    assert outcome.code == 7, outcome.said
    assert f"the run directory {trial.run} has gone while the run went on: every instance was ended" in outcome.said
    assert "Traceback" not in outcome.said
    assert not trial.run.exists()
    assert outcome.seconds < SOON_S
    noted("run directory removed", outcome, False)


@in_every_round
def test_launcher_killed(round_number: int, trial: Any, undisturbed: Any, noted: Any) -> None:
    faults = [{"instance": 1, "do": "kill_launcher", **IN_EPOCH}]
    outcome = trial.disturbed(faults=faults, ends_within_s=SOON_S)
    assert outcome.code == -signal.SIGKILL
    trial.assert_checkpoints_are_whole(60)
    trial.resume()
    trial.assert_same_end(undisturbed)
    noted("launcher SIGKILLed (seconds until no process is left)", outcome, True)
