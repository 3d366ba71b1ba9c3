"""Secrets in the environment of real runs, which must be in no file, no output and no argument of any process."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest
from fixtures.canaries import Canaries, files_with
from fixtures.runs import RUNS_OF_0_1_0

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import WarningEvent
from ipulaunch.configs.runs.secrets import masked, secret_values, withheld, without_secrets
from ipulaunch.workers.lifecycle.records import Records

IPULAUNCH = [sys.executable, "-m", "ipulaunch.launcher"]
HERE = ["--pod", "4", "--num-instances", "2", "--oversubscribe", "--engine", "openmpi"]
SUBMIT = ["submit", "cosmoflow", "--pod", "16"]
FAKE_SCHEDULER = Path(__file__).parents[2] / "fakes" / "scheduler.py"

# A user's program: tells which variables it sees, prints a secret, and fails with one in its exception.
PROGRAM = """
import json, os, pathlib, sys, time
seen = {name: name in os.environ for name in ("MY_API_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "LIBRARY")}
place = pathlib.Path(sys.argv[1])
print("the token is", os.environ["MY_API_TOKEN"], flush=True)
index = os.environ["POPDIST_LOCAL_INSTANCE_INDEX"]
(place / f"new-{index}").write_text(json.dumps(seen))
(place / f"new-{index}").rename(place / index)
deadline = time.monotonic() + 300
while not {"0", "1"} <= set(os.listdir(place)) and time.monotonic() < deadline:  # the first to fail ends the others
    time.sleep(0.01)
raise RuntimeError("refused: " + os.environ["MY_API_TOKEN"])
"""


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_rehearsal(rehearsal: Path) -> None:
    secret, run = (rehearsal / "canaries").read_text(), rehearsal / "run"
    assert len(list(run.rglob("*"))) > 15
    assert importlib.util.find_spec("jinja2") is None or "MY_API_TOKEN" in (run / "report.html").read_text()
    assert files_with(secret, rehearsal) == [str(rehearsal / "canaries")]  # its output and arguments are files as well
    assert mode(run) == 0o700
    assert "MY_API_TOKEN" in (run / "command.txt").read_text()
    assert "WANDB_API_KEY" not in "".join(path.read_text(errors="replace") for path in run.rglob("*.txt"))


def test_a_program_that_tells_its_secrets_and_fails(canaries: Canaries, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "seen").mkdir()
    words = ["run", *HERE, "--env", "MY_API_TOKEN", "--run-dir", "r", "--", sys.executable, "program.py", "seen"]
    done = canaries.run(*IPULAUNCH, *words, cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    seen = [json.loads((tmp_path / "seen" / str(index)).read_text()) for index in range(2)]
    assert seen == [{"MY_API_TOKEN": True, "WANDB_API_KEY": False, "DB_PASSWORD": False, "LIBRARY": True}] * 2
    assert (
        b"not given to the instances, as --env does not name them: AWS_SECRET_ACCESS_KEY, DB_PASSWORD, WANDB"
        in done.stderr
    )
    assert "the token is ***" in (tmp_path / "r" / "instance-000" / "log.txt").read_text()
    if importlib.util.find_spec("jinja2"):
        assert "the token is ***" in (tmp_path / "r" / "report.html").read_text()
    assert canaries.files(tmp_path) == []
    assert mode(tmp_path / "r") == 0o700


def test_a_submitted_job(canaries: Canaries, plain_path: Path) -> None:
    commands, home = plain_path / "commands", plain_path / "home"
    commands.mkdir()
    home.mkdir()
    (commands / "sbatch").write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{FAKE_SCHEDULER}" sbatch "$@"\n')
    (commands / "sbatch").chmod(0o755)
    more = {"PATH": f"{commands}{os.pathsep}{canaries.environ['PATH']}", "FAKE_SCHEDULER": str(home)}
    words = ["submit", "cosmoflow", "--pod", "16", "--scheduler", "slurm", "--env", "MY_API_TOKEN"]
    done = canaries.run(*IPULAUNCH, *words, "--run-dir", "r", cwd=plain_path, **more)
    assert (done.returncode, done.stdout) == (0, b"4242\n"), done.stderr
    assert "--env=MY_API_TOKEN" in (plain_path / "r" / "job.sh").read_text()
    assert canaries.files(plain_path) == []
    assert mode(plain_path / "r") == 0o700


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([*SUBMIT, "--scheduler", "pbs", "--env", "MY_API_TOKEN", "--dry-run"], id="pbs"),
        pytest.param(["cosmoflow", "--pod", "16", "--env", "MY_API_TOKEN", "--dry-run"], id="poprun"),
        pytest.param(["cosmoflow", "--pod", "16", "--env", "MY_API_TOKEN", "--json"], id="poprun as JSON"),
        pytest.param(["plan", "cosmoflow", "--pod", "16", "--explain", "--json"], id="plan"),
        pytest.param(["doctor", "--json"], id="doctor"),
    ],
)  # fmt: skip
def test_what_is_printed(words: List[str], canaries: Canaries, plain_path: Path) -> None:
    (plain_path / "tensorflow.py").touch()  # the doctor only has to tell of one, and this one loads at once
    done = canaries.run(*IPULAUNCH, *words, cwd=plain_path, PYTHONPATH=str(plain_path))
    assert done.stdout
    assert canaries.files(plain_path) == []


def test_a_page_about_a_run_that_shows_secrets(canaries: Canaries, tmp_path: Path) -> None:
    """As one that was started without a launcher, or by an earlier version."""
    pytest.importorskip("jinja2", reason="pages need the extra [report]")
    run = RunDirectory(shutil.copytree(RUNS_OF_0_1_0 / "failed", tmp_path / "runs" / "failed"))
    secret = canaries.variables["DB_PASSWORD"]
    run.command.write_text(f"mpirun {secret}")
    for path in (run.engine_log, run.log(1), run.error(1), run.endings):
        path.write_text(path.read_text().replace("loss", secret).replace("prterun", secret))
    page = tmp_path / "page.html"
    done = canaries.run(*IPULAUNCH, "report", "failed", "-o", str(page), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert page.read_text().count("***") >= 6 and str(page) not in canaries.files(tmp_path)


GIVEN = "hunter2-hunter2"


@pytest.mark.parametrize("how", ["--dry-run", "--json"])
def test_secrets_among_the_arguments_of_a_program_are_not_printed(how: str, ipulaunch: Callable[..., Any]) -> None:
    words = ["run", "--pod", "16", how, "--", "python3", "train.py", "--api-key", GIVEN, f"--token={GIVEN}"]
    done = ipulaunch(*words)
    assert done.code == 0, done.err
    assert GIVEN not in done.out + done.err and "***" in done.out
    assert "a secret among the program's arguments is in the list of processes" in done.out + done.err


@pytest.mark.parametrize(
    "words",
    [
        ["cosmoflow", "--env", f"MY_TOKEN={GIVEN}", "--dry-run"],
        ["cosmoflow", "--mpi-local-args", f"-x MY_TOKEN={GIVEN}", "--dry-run"],
        ["cosmoflow", "--mpi-global-args", f"--mca api_key {GIVEN} --password {GIVEN}", "--dry-run"],
        ["submit", "cosmoflow", "--scheduler", "slurm", "--dry-run", "--setup", f"export MY_TOKEN={GIVEN}"],
        ["submit", "cosmoflow", "--scheduler", "slurm", "--dry-run", "--setup", f"login --password '{GIVEN}'"],
        ["submit", "cosmoflow", "--scheduler", "slurm", "--dry-run", f"--directive=--export=ALL,MY_TOKEN={GIVEN}"],
        ["submit", "cosmoflow", "--scheduler", "slurm", "--dry-run", "--site", "site.yaml"],
    ],
    ids=lambda words: " ".join(words[-2:]).replace(GIVEN, "..."),
)
def test_secrets_for_scripts_and_arguments_are_refused(
    words: List[str], ipulaunch: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text(f"environment: {{lines: ['WANDB_API_KEY={GIVEN}']}}")
    done = ipulaunch(*words, "--pod", "16")
    assert done.code == 2, done.err
    assert GIVEN not in done.out + done.err and "secret" in done.err


def test_a_secret_that_the_job_looks_up_is_none(ipulaunch: Callable[..., Any]) -> None:
    line = 'export WANDB_API_KEY="$(cat ~/.wandb)"'
    done = ipulaunch("submit", "cosmoflow", "--pod", "16", "--scheduler", "slurm", "--dry-run", "--setup", line)
    assert done.code == 0 and line in done.out, done.err


def test_records_have_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", GIVEN)
    run = RunDirectory(tmp_path / "run")
    records = Records(run, 0)
    records.event(WarningEvent(f"no answer from db://me:{GIVEN}@host"))
    try:
        subprocess.run(["false", "--password", GIVEN], check=True)
    except subprocess.CalledProcessError as error:
        records.error(DataError(f"it said {error}"))
    written = "".join(path.read_text() for path in run.instance(0).iterdir())
    assert GIVEN not in written and written.count("***") >= 2
    assert mode(run.path) == 0o700


def test_only_secrets_that_nobody_named_are_withheld() -> None:
    environ = {
        "PATH": "/bin",
        "A_TOKEN": "1",
        "B_TOKEN": "2",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "TOKENIZERS_PARALLELISM": "1",
        "PBS_JOBCOOKIE": "0A1B2C3D",
    }
    assert withheld(environ, ["B_TOKEN"]) == ["A_TOKEN"]
    assert set(without_secrets(environ, ["B_TOKEN"])) == set(environ) - {"A_TOKEN"}
    assert secret_values(environ) == ("0A1B2C3D",)


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n  hkiG9w0BAQEFAASC  \nshort\n-----END PRIVATE KEY-----\n"


def test_a_secret_of_several_lines_is_masked_line_by_line() -> None:
    values = secret_values({"SSH_PRIVATE_KEY": PEM})
    assert "short" not in values and values[0] == PEM
    assert masked(f"a {PEM} b", values) == "a *** b"
    shown = [masked(line, values) for line in PEM.splitlines()]
    assert shown == ["***", "***", "  ***  ", "short", "***"]


def test_of_two_secrets_the_longer_one_is_masked_first() -> None:
    values = secret_values({"A_TOKEN": "abcdef", "B_TOKEN": "abcdefgh", "C_TOKEN": "short", "PATH": "/usr/bin"})
    assert values == ("abcdefgh", "abcdef")
    assert masked("abcdefgh abcdef short", values) == "*** *** short"
