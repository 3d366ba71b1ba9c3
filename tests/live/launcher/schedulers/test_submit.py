"""`ipulaunch submit`: from the command line to the scheduler."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, List, Tuple

import pytest

from ipulaunch.configs.runs.job import from_yaml
from ipulaunch.launcher.runs import run_files
from ipulaunch.launcher.runs.run_files import run_path
from ipulaunch.launcher.schedulers import tools
from ipulaunch.topology.planning.plan import from_json

pytestmark = pytest.mark.core

Run = Callable[..., Any]
POD = ("submit", "cosmoflow", "--pod", "16")
SLURM = (*POD, "--scheduler", "slurm")
KUBERNETES = (*POD, "--scheduler", "kubernetes", "--container-image", "x")
CPUS = ("--engine", "openmpi", "--host-layout", "1x4")


def _files(path: Path) -> List[str]:
    return sorted(child.name for child in path.iterdir())


def test_job_is_handed_over_and_recorded(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    code, out, err = ipulaunch(*SLURM, "--run-dir", "r1")
    run = tmp_path / "r1"
    assert (code, out) == (0, "4242\n")
    assert err.splitlines()[-1] == f"submitted to slurm; see ipulaunch status {run}"
    assert scheduler.calls == [["sbatch", "--parsable", str(run / "job.sh")]]
    assert _files(run) == ["job.json", "job.sh", "job.yaml", "plan.json"]
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    record = json.loads((run / "job.json").read_text())
    assert (record["scheduler"], record["id"], record["script"]) == ("slurm", "4242", "job.sh")
    assert record["submitted"].endswith("Z")
    assert from_json((run / "plan.json").read_text()).replicas == 16
    assert from_yaml((run / "job.yaml").read_text(), "job.yaml").backend == "ipu"
    assert (run / "job.sh").read_text() == ipulaunch(*SLURM, "--run-dir", "r2", "--dry-run").out.replace("r2", "r1")


def test_run_directory_has_a_name_of_its_own(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    assert ipulaunch(*SLURM).code == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("cosmoflow-2")
    assert f"#SBATCH --job-name={run.name}\n" in (run / "job.sh").read_text()


def test_jobs_of_one_second_have_directories_of_their_own(
    ipulaunch: Run, scheduler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files.time, "strftime", lambda form, *_: "20261116-104512")
    with run_path("cosmoflow", None):  # of another launch, which still plans
        assert ipulaunch(*SLURM).code == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name == "cosmoflow-20261116-104512-2"
    assert scheduler.calls == [["sbatch", "--parsable", str(run / "job.sh")]]


def test_json(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    data = json.loads(ipulaunch(*SLURM, "--run-dir", "r1", "--json").out)
    assert (data["scheduler"], data["id"], data["run"]) == ("slurm", "4242", str(tmp_path / "r1"))
    data = json.loads(ipulaunch(*SLURM, "--run-dir", "r2", "--json", "--dry-run").out)
    assert data["script"].startswith("#!/bin/bash\n#SBATCH")
    assert data["plan"]["replicas"] == 16


def test_id_of_a_cluster_among_several(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    scheduler.says("sbatch", "12;west")
    assert ipulaunch(*SLURM, "--run-dir", "r1").out == "12\n"
    assert json.loads((tmp_path / "r1" / "job.json").read_text())["cluster"] == "west"


def test_pbs(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    assert ipulaunch(*POD, "--scheduler", "pbs", "--run-dir", "r1").out == "77.pbs01\n"
    assert scheduler.calls == [["qsub", str(tmp_path / "r1" / "job.sh")]]


def test_kubernetes(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    assert ipulaunch(*KUBERNETES, "--run-dir", "My_run").out == "my-run\n"
    assert scheduler.calls == [["kubectl", "create", f"--filename={tmp_path}/My_run/manifest.yaml", "--output=json"]]
    record = json.loads((tmp_path / "My_run" / "job.json").read_text())
    assert (record["kind"], record["namespace"], record["uid"]) == ("IPUJob", "default", "uid-1")


@pytest.mark.parametrize("words", [SLURM, (*POD, "--scheduler", "pbs"), KUBERNETES], ids=["slurm", "pbs", "kubernetes"])
def test_refusal_is_told_in_the_schedulers_words(words: Any, ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    scheduler.says("refuse", "error: Batch job submission failed:", "Invalid account")
    code, out, err = ipulaunch(*words, "--run-dir", "r1")
    assert (code, out) == (7, "")
    assert "refused the job: error: Batch job submission failed: / Invalid account" in err
    assert not (tmp_path / "r1").exists()


@pytest.mark.parametrize(
    ("words", "command", "look"),
    [(SLURM, "sbatch", "squeue"), ((*POD, "--scheduler", "pbs"), "qsub", "qstat")],
    ids=["slurm", "pbs"],
)
def test_job_without_an_id_keeps_its_directory(
    words: Any, command: str, look: str, ipulaunch: Run, scheduler: Any, tmp_path: Path
) -> None:
    scheduler.says(command, "hello")
    code, _, err = ipulaunch(*words, "--run-dir", "r1")
    assert code == 7
    assert "'hello', which is not a job id" in err
    assert f"hint: look for it with {look}; its directory {tmp_path / 'r1'} is kept" in err
    assert (tmp_path / "r1" / "job.sh").is_file()


def test_job_that_may_be_queued_keeps_its_directory(
    ipulaunch: Run, scheduler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.says("hang")
    monkeypatch.setattr(tools, "_TIMEOUT_S", 0.1)
    code, _, err = ipulaunch(*SLURM, "--run-dir", "r1")
    assert code == 7
    assert "sbatch does not answer within 0.1 s, and may have taken the job\nhint: look for it in the queue" in err
    assert (tmp_path / "r1" / "job.sh").is_file()


def test_id_comes_after_a_banner(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    scheduler.says("qsub", "Welcome to the cluster", "78.pbs01")
    code, out, _ = ipulaunch(*POD, "--scheduler", "pbs", "--run-dir", "r1")
    assert (code, out) == (0, "78.pbs01\n")


@pytest.mark.parametrize(
    ("words", "command"),
    [(SLURM, "sbatch"), ((*POD, "--scheduler", "pbs"), "qsub"), (KUBERNETES, "kubectl")],
    ids=["slurm", "pbs", "kubernetes"],
)
def test_missing_command(words: Any, command: str, ipulaunch: Run, no_scheduler: None, tmp_path: Path) -> None:
    code, _, err = ipulaunch(*words, "--run-dir", "r1")
    assert code == 4
    assert f"error: there is no {command} here\nhint: submit where the scheduler's commands are" in err
    assert not (tmp_path / "r1").exists()


def _called(script: str) -> List[str]:
    """The options of the call that starts the run, as a shell reads them."""
    words = shlex.split(script.partition("else\n  set -- ipulaunch ")[2].partition("\nfi\n")[0].replace("\\\n", ""))
    return [word for word in words if not word.startswith(("--run-dir", "--hosts", "--vipu-partition"))]


def test_settings_of_the_call_are_those_of_the_job(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    words = ("mnist", "--num-epochs", "3", "--set", "model.name=mnist_cnn", "--pipelining", *CPUS)
    code, _, err = ipulaunch("submit", *words, "--scheduler", "slurm", "--run-dir", "r1")
    assert code == 0, err
    job = from_yaml((tmp_path / "r1" / "job.yaml").read_text(), "job.yaml")
    called = _called((tmp_path / "r1" / "job.sh").read_text())
    assert "--num-epochs=3" in called
    assert ipulaunch("submit", *called, "--scheduler", "slurm", "--run-dir", "r2").code == 0
    again = from_yaml((tmp_path / "r2" / "job.yaml").read_text(), "job.yaml")
    assert again.settings.training.num_epochs == job.settings.training.num_epochs
    assert again.settings.pipeline == job.settings.pipeline


def test_nothing_of_the_environment_is_in_a_script(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    canary = "canary-47113"
    env = {"MY_API_KEY": canary, "LIBRARY": canary}
    for name, words in {"a": SLURM, "b": (*POD, "--scheduler", "pbs")}.items():
        assert ipulaunch(*words, "--env", "MY_API_KEY", "--run-dir", name, env=env).code == 0
        for path in (tmp_path / name).iterdir():
            assert canary not in path.read_text()
        assert "--env=MY_API_KEY" in (tmp_path / name / "job.sh").read_text()
    assert canary not in json.dumps(scheduler.calls)


def test_launcher_of_an_mpijob_plans_for_its_workers(ipulaunch: Run, tmp_path: Path) -> None:
    """It has one core itself, and would take its workers to have as many."""
    import yaml

    words = ("--scheduler", "kubernetes", "--container-image", "x", "--nodes", "2", "--volume", "a:/b", *CPUS)
    words += ("--env", "A_TOKEN=secret:a/b")
    wanted = json.loads(ipulaunch(*POD, *words, "--dry-run", "--json").out)
    specs = yaml.safe_load(wanted["script"])["spec"]["mpiReplicaSpecs"]
    shell = specs["Launcher"]["template"]["spec"]["containers"][0]["args"][0]
    (tmp_path / "hostfile").write_text("w0 slots=4\nw1 slots=4\n")
    call = [word.replace("/etc/mpi/hostfile", str(tmp_path / "hostfile")) for word in _called(shell)]
    on_one_core = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    code = f"{on_one_core}; from ipulaunch.launcher.cli.main import cli; cli()"
    more = [sys.executable, "-c", code, *call, "--dry-run", "--json"]
    done = subprocess.run(more, env={**os.environ, "A_TOKEN": "x"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    placements = json.loads(done.stdout)["plan"]["placements"]
    assert len(placements) == len(wanted["plan"]["placements"]) == 8
    assert [p["cores"] for p in placements] == [p["cores"] for p in wanted["plan"]["placements"]]
    assert "env" not in specs["Worker"]["template"]["spec"]["containers"][0]
    assert shell.count("--host-layout=1x4") == 2  # also where it continues


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("slurm",), "sbatch: error: Unable to contact slurm controller (connect failure)"),
        (("pbs",), "qsub: cannot connect to server pbs01 (errno=111)"),
        (("kubernetes", "--container-image", "x"), "dial tcp 127.0.0.1:6443: connect: connection refused"),
    ],
    ids=["slurm", "pbs", "kubernetes"],
)
def test_a_server_that_cannot_be_reached_is_no_failure_of_the_job(
    words: Tuple[str, ...], said: str, ipulaunch: Run, scheduler: Any, tmp_path: Path
) -> None:
    scheduler.says("refuse", said)
    code, _, err = ipulaunch("submit", "cosmoflow", "--pod", "4", *CPUS, "--scheduler", *words, "--run-dir", "r")
    assert code == 4 and "does not reach its server" in err and "check that its server is up" in err
    assert not (tmp_path / "r").exists()


# An ipulaunch that stops on USR1, and does not wait for it for ever.
STOPS = 'trap "exit 75" USR1\necho "$@" >>"$OUT"\n{}\nfor _ in {{1..12000}}; do /bin/sleep 0.05; done\nexit 9'
PBS = ("submit", "cosmoflow", "--pod", "16", "--scheduler", "pbs", "--time", "60", "--run-dir", "r1", "--dry-run")


def run_script(script: str, tmp_path: Path, **commands: str) -> int:
    """The exit code of a job's script, with these commands in the place of the real ones."""
    place = tmp_path / "commands"
    place.mkdir(exist_ok=True)
    for name, text in commands.items():
        (place / name).write_text(f"#!/bin/bash\n{text}\n")
        (place / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "12", "PBS_JOBID": "12.h"}
    env = {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "OUT": str(tmp_path / "out"), **job}
    return subprocess.run(["bash"], input=script, env=env, encoding="utf-8", timeout=1800, check=False).returncode


def test_pbs_script_asks_to_stop_before_the_limit(ipulaunch: Run, tmp_path: Path) -> None:
    script = ipulaunch(*PBS).out
    assert "sleep 3480" in script  # of an hour; --grace is 60 s
    assert run_script(script, tmp_path, ipulaunch=STOPS.format(""), sleep="/bin/sleep 0.3") == 75


def test_pbs_script_ends_its_timer(ipulaunch: Run, tmp_path: Path) -> None:
    """It would signal whoever has the number of the shell by then."""
    waits = 'for _ in {1..12000}; do [ -s "$OUT" ] && break; /bin/sleep 0.05; done\nexit 7'
    sleeps = 'echo $$ >"$OUT"\nexec /bin/sleep "$@"'
    assert run_script(ipulaunch(*PBS).out, tmp_path, ipulaunch=waits, sleep=sleeps) == 7
    timer = Path(f"/proc/{(tmp_path / 'out').read_text().strip()}/cmdline")
    for _ in range(12000):
        if not _says(timer):
            break
        time.sleep(0.05)
    assert not _says(timer)


def _says(file: Path) -> str:
    """What a file holds; of a process that has ended and that nobody has asked for, the kernel says nothing."""
    try:
        return file.read_text()
    except OSError:
        return ""


def test_a_signal_that_the_launcher_could_not_hear_yet_queues_the_job_again(ipulaunch: Run, tmp_path: Path) -> None:
    dies = 'kill -USR1 "$PPID"; /bin/sleep 0.2; trap - USR1; kill -USR1 $$'
    script = ipulaunch(*SLURM, "--requeue", "--time", "60", "--run-dir", "r1", "--dry-run").out
    assert run_script(script, tmp_path, ipulaunch=dies, scontrol='echo "scontrol $*" >>"$OUT"') == 75
    assert (tmp_path / "out").read_text() == "scontrol requeue 12\n"


def test_script_hands_signals_on_and_asks_to_be_queued_again(ipulaunch: Run, tmp_path: Path) -> None:
    commands = {"ipulaunch": STOPS.format('kill -USR1 "$PPID"'), "scontrol": 'echo "scontrol $*" >>"$OUT"'}
    script = ipulaunch(*SLURM, "--requeue", "--time", "60", "--run-dir", "r1", "--dry-run").out
    assert run_script(script, tmp_path, **commands) == 75
    first, second = (tmp_path / "out").read_text().splitlines()
    assert first.startswith("cosmoflow --engine=poprun --pod=16 ")
    assert first.endswith(f" --run-dir={tmp_path}/r1/run")
    assert second == "scontrol requeue 12"
    (tmp_path / "r1" / "run").mkdir(parents=True)
    (tmp_path / "r1" / "run" / "job.yaml").touch()
    (tmp_path / "out").unlink()
    run_script(script, tmp_path, **commands)
    assert (tmp_path / "out").read_text().startswith(f"resume {tmp_path}/r1/run --engine=poprun --pod=16 ")
