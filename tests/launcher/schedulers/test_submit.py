"""`ipulaunch submit`: from the command line to the scheduler."""

from __future__ import annotations

import json
import os
import shlex
import stat
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ipulaunch.configs.job import from_yaml
from ipulaunch.topology.plan import from_json

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
    assert err == f"submitted to slurm; see ipulaunch status {run}\n"
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


def test_dry_run_asks_nobody_and_makes_nothing(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    before = _files(tmp_path)
    assert ipulaunch(*SLURM, "--dry-run").code == 0
    assert (scheduler.calls, _files(tmp_path)) == ([], before)


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


def test_answer_that_is_no_id(ipulaunch: Run, scheduler: Any) -> None:
    scheduler.says("sbatch", "hello")
    code, _, err = ipulaunch(*SLURM)
    assert code == 7
    assert "'hello', which is no job id" in err


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


def test_run_directory_that_exists(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    code, _, err = ipulaunch(*SLURM, "--run-dir", "r1")
    assert (code, scheduler.calls) == (2, [])
    assert "there is a run directory r1 already" in err


def _called(script: str) -> List[str]:
    """The options of the call that starts the run, as a shell reads them."""
    words = shlex.split(script.partition("else\n  set -- ipulaunch ")[2].partition("\nfi\n")[0].replace("\\\n", ""))
    return [word for word in words if not word.startswith(("--run-dir", "--hosts", "--vipu-partition"))]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("cosmoflow", "--pod", "16"), id="cosmoflow"),
        pytest.param(("cosmoflow", "--pod", "16", "--num-instances", "4", "--global-batch-size", "64"), id="batch"),
        pytest.param(("cosmoflow", "--pod", "8", *CPUS), id="rehearsal"),
        pytest.param(("mnist", "--pipelining", "--engine", "openmpi", "--host-layout", "1x2"), id="mnist"),
        pytest.param(
            ("imagenet", "--pod", "16", "--config", "resnet50_16ipus_8k_bn_pipeline", "--dataset-path", "/a b"),
            id="pipeline",
        ),
        pytest.param(("imagenet", "--pod", "16", "--set", "optimizer.name=lars", "--logs-per-epoch", "1/2"), id="set"),
    ],
)
def test_call_in_the_script_plans_the_same(words: Any, ipulaunch: Run) -> None:
    """The plan is pinned: planned again on hosts of another kind, it is the same but for their cores."""
    wanted = json.loads(ipulaunch("submit", *words, "--scheduler", "slurm", "--dry-run", "--json").out)
    code, out, err = ipulaunch(*_called(wanted["script"]), "--host-layout", "2x32", "--dry-run", "--json")
    assert code == 0, err
    found = json.loads(out)
    for name in ("replicas", "ipus_per_replica", "ilds", "batch"):
        assert found["plan"][name] == wanted["plan"][name]
    assert len(found["plan"]["placements"]) == len(wanted["plan"]["placements"])


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ("--scheduler", "slurm", "--namespace", "x"), "--namespace means nothing to slurm", id="namespace"
        ),
        pytest.param(("--scheduler", "pbs", "--volume", "a:/b"), "--volume means nothing to pbs", id="volume"),
        pytest.param(("--scheduler", "pbs", "--hosts", "a"), "--hosts means nothing to pbs", id="hosts"),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--account", "a"),
            "--account means nothing to kubernetes",
            id="account",
        ),
        pytest.param(("--scheduler", "pbs", "--mail-type", "REQUEUE"), "PBS sends no mail at REQUEUE", id="mail"),
        pytest.param(("--scheduler", "kubernetes"), "none is named", id="image"),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--requeue"),
            "IPUJobs are not started again",
            id="again",
        ),
        pytest.param((), "no scheduler is named", id="scheduler"),
        pytest.param(("--scheduler", "slurm", "--time", "1:30"), "--time '1:30' is not a limit", id="time"),
        pytest.param(("--scheduler", "slurm", "--time", "0"), "leaves no time", id="no-time"),
        pytest.param(
            ("--scheduler", "slurm", "--time", "2"), "asked to stop 120 s before its limit of 120 s", id="short-time"
        ),
        pytest.param(("--scheduler", "slurm", "--hosts", "a", "--nodes", "2"), "--nodes 2, and 1 hosts", id="nodes"),
        pytest.param(
            ("--scheduler", "slurm", "--nodes", "2", "--container-image", "x"), "on 2 hosts: MPI would", id="container"
        ),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--resume", "auto"),
            "looks for runs here",
            id="auto",
        ),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--env", "HOME"), "do not reach a Pod", id="env"
        ),
        pytest.param(
            ("--scheduler", "kubernetes", "--container-image", "x", "--nodes", "2", *CPUS), "give --volume", id="shared"
        ),
        pytest.param(("--scheduler", "slurm", "--env", "MY_TOKEN=x1"), "would show a secret", id="secret"),
    ],
)
def test_what_makes_no_sense_is_refused(words: Any, said: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*POD, *words, "--dry-run")
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pod", "128"), "128 IPUs, and the IPU Operator makes partitions of at most 64 (R15)"),
        (("--pod", "64", "--nodes", "4"), "4 hosts, and an IPUJob is written for 1 worker Pod (R15)"),
    ],
)
def test_limits_of_the_ipu_operator(words: Any, said: str, ipulaunch: Run) -> None:
    more = ("--scheduler", "kubernetes", "--container-image", "x", "--dry-run")
    code, _, err = ipulaunch("submit", "cosmoflow", *words, *more)
    assert code == 3
    assert said in err


HOSTILE = [
    "a b",
    "a;reboot",
    "$(reboot)",
    "a\nb",
    "`id`",
    "'",
    '"',
    "-x",
    "",
    "a|b",
    "ä",
    "a\x00b",
    "../x y",
    "x" * 600,
]
FIELDS: Dict[str, List[str]] = {
    "--account": ["slurm"],
    "--partition": ["slurm"],
    "--mail-user": ["slurm"],
    "--container-image": ["slurm", *CPUS],
    "--vipu-partition": ["slurm"],
    "--namespace": ["kubernetes", "--container-image", "x"],
    "--volume": ["kubernetes", "--container-image", "x"],
    "--time": ["slurm"],
    "--run-dir": ["slurm"],
    "--directive": ["slurm"],
}


# An option of the scheduler, a file name, and what no command line can hold.
_ALLOWED = (("--directive", "-x"), ("--run-dir", "-x"), ("--run-dir", "a\x00b"))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        pytest.param(flag, value, id=f"{flag}-{ascii(value)[:12]}")
        for flag in FIELDS
        for value in HOSTILE
        if (flag, value) not in _ALLOWED
    ],
)
def test_hostile_names_are_refused(flag: str, value: str, ipulaunch: Run, scheduler: Any) -> None:
    code, out, err = ipulaunch(*POD, f"{flag}={value}", "--scheduler", *FIELDS[flag])
    assert (code, out, scheduler.calls) == (2, "", [])
    assert "Traceback" not in err


@pytest.mark.parametrize("line", ["a\nb", "a\rb", "\x1b[2J", "a\x00b"])
def test_setup_is_one_line(line: str, ipulaunch: Run, scheduler: Any) -> None:
    code, out, _ = ipulaunch(*SLURM, "--setup", line)
    assert (code, out, scheduler.calls) == (2, "", [])


@pytest.mark.parametrize("value", ["a b", "a;reboot", "$(reboot)", "`id`", "'", '"', "$HOME", "a\\b", "*"])
def test_hostile_settings_are_quoted(value: str, ipulaunch: Run) -> None:
    out = ipulaunch(*SLURM, "--data-dir", value, "--dry-run").out
    assert f"--data-dir={value}" in _called(out)


def test_settings_have_no_second_line(ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*SLURM, "--data-dir", "a\n#SBATCH --x", "--dry-run")
    assert (code, out) == (2, "")
    assert "expected one line" in err


def test_nothing_of_the_environment_is_in_a_script(ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    canary = "canary-47113"
    env = {"MY_API_KEY": canary, "LIBRARY": canary}
    for name, words in {"a": SLURM, "b": (*POD, "--scheduler", "pbs")}.items():
        assert ipulaunch(*words, "--env", "MY_API_KEY", "--run-dir", name, env=env).code == 0
        for path in (tmp_path / name).iterdir():
            assert canary not in path.read_text()
        assert "--env=MY_API_KEY" in (tmp_path / name / "job.sh").read_text()
    assert canary not in json.dumps(scheduler.calls)


def test_resumed_run_is_named_in_full(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    out = ipulaunch(*SLURM, "--resume", "before", "--dry-run").out
    assert f"--resume={tmp_path}/before" in _called(out)


def test_help_has_a_heading_for_the_scheduler(ipulaunch: Run) -> None:
    out = ipulaunch("submit", "cosmoflow", "--help").out
    assert "Scheduler settings:" in out
    assert "Print the script or manifest and stop." in out


def test_unknown_workload(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("submit", "cosmoflw")
    assert code == 2
    assert "did you mean cosmoflow?" in err


def test_script_hands_signals_on_and_asks_to_be_queued_again(ipulaunch: Run, tmp_path: Path) -> None:
    """The shell of the script, with an ipulaunch that stops on USR1."""
    import subprocess

    commands = tmp_path / "commands"
    commands.mkdir()
    fakes = {
        "ipulaunch": 'trap "exit 75" USR1\necho "$@" >>"$OUT"\nkill -USR1 "$PPID"\nwhile true; do sleep 0.05; done',
        "scontrol": 'echo "scontrol $*" >>"$OUT"',
    }
    for name, text in fakes.items():
        (commands / name).write_text(f"#!/bin/bash\n{text}\n")
        (commands / name).chmod(0o755)
    script = ipulaunch(*SLURM, "--requeue", "--time", "60", "--run-dir", "r1", "--dry-run").out
    env = {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_ID": "12", "OUT": str(tmp_path / "out")}
    done = subprocess.run(["bash"], input=script, env=env, encoding="utf-8", timeout=30, check=False)
    assert done.returncode == 75
    first, second = (tmp_path / "out").read_text().splitlines()
    assert first.startswith("cosmoflow --engine=poprun --pod=16 ")
    assert first.endswith(f" --run-dir={tmp_path}/r1/run")
    assert second == "scontrol requeue 12"
    (tmp_path / "r1" / "run").mkdir(parents=True)
    (tmp_path / "r1" / "run" / "job.yaml").touch()
    (tmp_path / "out").unlink()
    subprocess.run(["bash"], input=script, env=env, encoding="utf-8", timeout=30, check=False)
    assert (tmp_path / "out").read_text().startswith(f"resume {tmp_path}/r1/run --engine=poprun --pod=16 ")
