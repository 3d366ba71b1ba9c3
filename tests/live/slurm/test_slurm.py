"""Jobs on a real Slurm: run to their end, preempted, told of their limit of time, cancelled, forgotten."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Sequence

import numpy as np
import pytest

pytestmark = pytest.mark.slurm

BIN = Path(sys.executable).parent
SITE = Path(__file__).parents[1] / "faults" / "site"
UPDATES = 600  # of two milliseconds
JOB = ["cosmoflow", "--pod", "4", "--engine", "openmpi", "--scheduler", "slurm", "--requeue"]
JOB += ["--num-instances", "2", "--oversubscribe"]
JOB += ["--num-epochs", str(UPDATES // 6), "--logs-per-epoch", "1/50", "--ckpts-per-epoch", "1/50"]
# The instances spin while they wait for each other: on two cores, Slurm and the test must come first.
JOB += ["--setup", f"PATH={shlex.quote(str(BIN))}:$PATH", "--setup", "renice -n 5 $$"]
JOB += [
    word
    for text in ("data.side=4", "data.n_train=24", "data.n_valid=5", "model.n_conv_layers=1", "model.conv_size=1")
    for word in ("--set", text)
]
# With pgid Slurm signals the process group of the script: ipulaunch, and not the engine in its own session. With
# linuxproc it signals every process below the script, mpirun included, as it does with cgroups on most clusters.
TRACKINGS = ("pgid", "linuxproc")


class Jobs:
    """What a user of the cluster does."""

    def __init__(self, cluster: Any, home: Path, wait: Callable[..., None]) -> None:
        self.cluster, self.home, self.wait = cluster, home, wait

    def ipulaunch(self, *words: str) -> str:
        return self.cluster.ask(str(BIN / "ipulaunch"), *words)

    def submit(self, *options: str) -> Job:
        run = self.home / "run"
        number = self.ipulaunch("submit", *JOB, *options, "--run-dir", str(run)).strip()
        return Job(self, run, number)

    def submit_held(self) -> Job:
        """Its training is under way, and does not go on before it is asked to stop; started again, it does."""
        held = self.home / "held"
        fault = {"instance": 1, "at": "step", "count": 100, "do": "hold", "record": str(held)}
        faults = json.dumps([{**fault, "run": str(self.home / "run" / "run")}])
        setup = f"export PYTHONPATH={shlex.quote(str(SITE))} FAULTS={shlex.quote(faults)}"
        job = self.submit("--setup", setup)
        job.wait_for(held.exists)
        assert job.slurm_state == "RUNNING"
        return job


class Job:
    """One submitted job."""

    def __init__(self, jobs: Jobs, run: Path, number: str) -> None:
        self.jobs, self.run, self.number = jobs, run, number

    def ipulaunch(self, command: str, *options: str) -> str:
        """A command on this job, by its id."""
        return self.jobs.ipulaunch(command, self.number, "--runs-dir", str(self.run.parent), *options)

    @property
    def status(self) -> Dict[str, Any]:
        return json.loads(self.ipulaunch("status", "--json"))

    @property
    def shown(self) -> Dict[str, str]:
        """What Slurm says: JobState=COMPLETED and so on."""
        words = self.jobs.cluster.answer("scontrol", "show", "job", "--oneliner", self.number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    @property
    def slurm_state(self) -> str:
        """Nothing while Slurm does not answer."""
        return self.shown.get("JobState", "")

    @property
    def log(self) -> str:
        path = self.run / "scheduler.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, holds: Callable[[], bool], seconds: float = 600) -> None:
        self.jobs.wait(holds, seconds, lambda: f"{self.shown}\n{self.log}\n{self.jobs.cluster.explain()}")

    def wait_for_end(self) -> None:
        self.wait_for(lambda: self.slurm_state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"))

    def state(self) -> Dict[str, Any]:
        """The bits of the last checkpoint: weights and optimizer."""
        with np.load(self.run / "run" / "checkpoints" / f"update-{UPDATES:08}" / "state.npz") as arrays:
            return {name: arrays[name] for name in arrays.files}


@pytest.fixture
def jobs(make_cluster: Callable[[str], Any], tmp_path: Path, wait: Callable[..., None]) -> Callable[[str], Jobs]:
    return lambda tracking: Jobs(make_cluster(tracking), tmp_path, wait)


@pytest.fixture(scope="module")
def undisturbed(
    make_cluster: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory, wait: Callable[..., None]
) -> Job:
    job = Jobs(make_cluster("pgid"), tmp_path_factory.mktemp("undisturbed"), wait).submit()
    job.wait_for_end()
    return job


def test_a_job_runs_to_its_end(undisturbed: Job) -> None:
    assert undisturbed.slurm_state == "COMPLETED", undisturbed.log
    assert undisturbed.shown["ExitCode"] == "0:0"
    status = undisturbed.status
    assert (status["state"], status["update"], status["total"]) == ("done", UPDATES, UPDATES)
    assert (status["scheduler"], status["id"]) == ("slurm", undisturbed.number)
    assert (status["restarts"], status["preemptions"]) == (0, 0)
    run = undisturbed.run
    assert {"job.json", "job.sh", "job.yaml", "plan.json", "run", "scheduler.log"} <= {p.name for p in run.iterdir()}
    assert run.stat().st_mode & 0o777 == 0o700
    assert json.loads((run / "job.json").read_text())["id"] == undisturbed.number
    for instance in ("instance-000", "instance-001"):
        assert (run / "run" / instance / "done.json").exists()
    assert json.loads((run / "run" / "summary.json").read_text())["checkpoint"] == f"checkpoints/update-{UPDATES:08}"
    assert "done in" in undisturbed.log
    assert f"epoch {UPDATES // 6}/{UPDATES // 6}: loss" in undisturbed.ipulaunch("logs")
    assert "instance 1 of 2 on " in undisturbed.ipulaunch("logs", "--instance", "1")
    assert undisturbed.jobs.cluster.processes(undisturbed.number) == []


@pytest.mark.night
@pytest.mark.parametrize(
    ("tracking", "how"),
    [
        pytest.param("pgid", ["scontrol", "requeue"], id="requeue-pgid"),
        pytest.param("linuxproc", ["scontrol", "requeue"], id="requeue-linuxproc"),
        # What Slurm itself does --signal-lead seconds before the limit of time.
        pytest.param("pgid", ["scancel", "--batch", "--signal=USR1"], id="limit-of-time"),
    ],
)
def test_a_job_that_was_put_back_ends_with_the_weights_of_an_undisturbed_one(
    tracking: str, how: Sequence[str], jobs: Callable[[str], Jobs], undisturbed: Job
) -> None:
    """At night: a Slurm and two trainings for each way to put a job back."""
    job = jobs(tracking).submit_held()
    job.jobs.cluster.ask(*how, job.number)
    job.wait_for(lambda: job.slurm_state not in ("", "RUNNING", "COMPLETING"))
    assert job.slurm_state == "PENDING", job.log
    # Slurm itself would hold it back for two minutes, which may not be enough to look at it.
    job.jobs.cluster.ask("scontrol", "update", f"JobId={job.number}", "StartTime=now+3600")
    job.wait_for(lambda: job.jobs.cluster.has_left_the_node(job.number))
    assert "stopped on request after update" in job.log, job.log
    assert job.status["state"] == "waiting"
    assert job.jobs.cluster.processes(job.number) == []

    # In the second in which the first attempt was ended it would not start at all: Slurm 22.05 compares the ages of
    # credentials in whole seconds, and takes the new one for the one it has just revoked.
    job.jobs.cluster.ask("scontrol", "update", f"JobId={job.number}", "StartTime=now+2")
    job.wait_for_end()
    assert job.slurm_state == "COMPLETED", f"{job.log}\n{job.jobs.cluster.explain()}"
    assert "resumed after update" in job.log
    status = job.status
    assert (status["state"], status["update"]) == ("done", UPDATES)
    assert (status["restarts"], status["preemptions"]) == (0, 1)
    found, expected = job.state(), undisturbed.state()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name


@pytest.mark.night
@pytest.mark.parametrize("tracking", TRACKINGS)
def test_a_cancelled_job_leaves_nothing(tracking: str, jobs: Callable[[str], Jobs]) -> None:
    """At night: a Slurm and a training for each way to track processes."""
    job = jobs(tracking).submit_held()
    living = job.jobs.cluster.processes(job.number)
    assert len(living) >= 5  # the script, ipulaunch, mpirun and two instances
    assert f"cancelled slurm job {job.number}" in job.ipulaunch("cancel")
    job.wait_for(lambda: job.slurm_state not in ("", "RUNNING", "COMPLETING"))
    job.wait_for(lambda: job.jobs.cluster.has_left_the_node(job.number))
    assert job.jobs.cluster.processes(job.number) == []
    assert [pid for pid in living if Path("/proc", str(pid)).exists()] == []
    assert job.status["state"] == "cancelled"
    # It is not put back, and what it had done is kept.
    assert job.slurm_state == "CANCELLED"
    assert list((job.run / "run" / "checkpoints").glob("update-*")), job.log
    refused = subprocess.run(
        [str(BIN / "ipulaunch"), "cancel", str(job.run)], env=job.jobs.cluster.environ, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert refused.returncode == 2 and "has ended: CANCELLED" in refused.stderr


@pytest.mark.parametrize(
    ("cancelled", "records", "state"), [("", True, "done"), ("2026-01-01T00:00:00Z", False, "cancelled")]
)
def test_a_job_that_slurm_has_forgotten_is_told_by_its_records(
    cancelled: str, records: bool, state: str, undisturbed: Job, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed.run, run)
    record = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps({**record, "id": "4000000", "cancelled": cancelled}))
    if not records:
        shutil.rmtree(run / "run")
    assert Job(undisturbed.jobs, run, "4000000").status["state"] == state
