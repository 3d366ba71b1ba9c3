"""Secrets in the environment of real runs, which must be in no file, no output and no argument of any process."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.secrets import masked, secret_values, withheld, without_secrets
from ipulaunch.workers.records import Records

IPULAUNCH = [sys.executable, "-m", "ipulaunch.launcher"]
TINY = [
    word
    for text in ("data.side=4", "data.n_train=8", "data.n_valid=4", "model.n_conv_layers=1", "model.conv_size=1")
    for word in ("--set", text)
]
HERE = ["--pod", "4", "--num-instances", "2", "--oversubscribe", "--engine", "openmpi"]
SUBMIT = ["submit", "cosmoflow", "--pod", "16"]
FAKE_SCHEDULER = Path(__file__).parents[2] / "fakes" / "scheduler.py"

# A user's program: tells which variables it sees, prints a secret, and fails with one in its exception.
PROGRAM = """
import json, os, pathlib, sys, time
seen = {name: name in os.environ for name in ("MY_API_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "LIBRARY")}
place = pathlib.Path(sys.argv[1])
(place / os.environ["POPDIST_LOCAL_INSTANCE_INDEX"]).write_text(json.dumps(seen))
print("the token is", os.environ["MY_API_TOKEN"], flush=True)
deadline = time.monotonic() + 300
while len(list(place.iterdir())) < 2 and time.monotonic() < deadline:  # the first to fail ends the others
    time.sleep(0.01)
raise RuntimeError("refused: " + os.environ["MY_API_TOKEN"])
"""


class Canaries:
    """Variables whose values must not be seen anywhere, and the places to look at."""

    def __init__(self) -> None:
        names = ("MY_API_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "DB_PASSWORD")
        beginning = f"canary-{uuid.uuid4().hex[:8]}-"  # others may look for theirs at the same time
        self.mark = beginning.encode()
        self.variables = {name: beginning + uuid.uuid4().hex for name in names}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IPULAUNCH_", "POPDIST_"))}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environ: Dict[str, str] = {**kept, **self.variables, "PATH": path, "LIBRARY": "x"}

    def seen_in(self, data: bytes) -> bool:
        return self.mark in data

    def files(self, place: Path) -> List[str]:
        """The files that hold one."""
        return [str(path) for path in place.rglob("*") if path.is_file() and self.seen_in(path.read_bytes())]

    @contextlib.contextmanager
    def arguments(self) -> Iterator[Set[bytes]]:
        """Looks at the arguments of all processes as long as it is open: those that hold one."""
        found: Set[bytes] = set()
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(0.05):
                for path in Path("/proc").glob("[0-9]*/cmdline"):
                    with contextlib.suppress(OSError):
                        data = path.read_bytes()
                        if self.seen_in(data):
                            found.add(data)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            thread.join()

    def run(self, *words: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[bytes]:
        """Runs a command under the most open umask; fails if a secret is in its output or in any arguments."""
        with self.arguments() as found:
            done = subprocess.run(
                list(words), cwd=cwd, env={**self.environ, **more}, capture_output=True, timeout=1800, check=False,
                preexec_fn=lambda: (os.umask(0), None)[1],
            )  # fmt: skip
        assert not self.seen_in(done.stdout) and not self.seen_in(done.stderr), done.stderr
        assert not found
        return done


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_rehearsal(canaries: Canaries, tmp_path: Path) -> None:
    words = [
        "cosmoflow",
        *HERE,
        *TINY,
        "--num-epochs",
        "1",
        "--env",
        "MY_API_TOKEN",
        "--run-dir",
        "runs/r",
        "--verbose",
    ]
    done = canaries.run(*IPULAUNCH, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "r"
    assert len(list(run.rglob("*"))) > 15
    assert canaries.files(tmp_path) == []
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
    assert canaries.files(tmp_path) == []
    assert mode(tmp_path / "r") == 0o700


def test_an_instance_that_was_started_by_hand(canaries: Canaries, tmp_path: Path) -> None:
    words = ["cosmoflow", "--backend", "cpu", "--rehearsal", *TINY, "--set", "data.data_dir=nowhere"]
    done = canaries.run(sys.executable, "-m", "ipulaunch.workers", *words, cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "instance-000" / "error.json").exists()
    assert canaries.files(tmp_path) == []
    assert mode(run) == 0o700


def test_a_submitted_job(canaries: Canaries, tmp_path: Path) -> None:
    commands, home = tmp_path / "commands", tmp_path / "home"
    commands.mkdir()
    home.mkdir()
    (commands / "sbatch").write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{FAKE_SCHEDULER}" sbatch "$@"\n')
    (commands / "sbatch").chmod(0o755)
    more = {"PATH": f"{commands}{os.pathsep}{canaries.environ['PATH']}", "FAKE_SCHEDULER": str(home)}
    words = ["submit", "cosmoflow", "--pod", "16", "--scheduler", "slurm", "--env", "MY_API_TOKEN"]
    done = canaries.run(*IPULAUNCH, *words, "--run-dir", "r", cwd=tmp_path, **more)
    assert (done.returncode, done.stdout) == (0, b"4242\n"), done.stderr
    assert "--env=MY_API_TOKEN" in (tmp_path / "r" / "job.sh").read_text()
    assert canaries.files(tmp_path) == []
    assert mode(tmp_path / "r") == 0o700


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
def test_what_is_printed(words: List[str], canaries: Canaries, tmp_path: Path) -> None:
    done = canaries.run(*IPULAUNCH, *words, cwd=tmp_path)
    assert done.stdout
    assert canaries.files(tmp_path) == []


GIVEN = "hunter2-hunter2"


@pytest.mark.parametrize("how", ["--dry-run", "--json"])
def test_secrets_among_the_arguments_of_a_program_are_not_printed(how: str, tmp_path: Path) -> None:
    words = [*IPULAUNCH, "run", "--pod", "16", how, "--", "python3", "train.py", "--api-key", GIVEN, f"--token={GIVEN}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert GIVEN not in done.stdout + done.stderr and "***" in done.stdout
    assert "a secret among the program's arguments is in the list of processes" in done.stdout + done.stderr


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
def test_secrets_for_scripts_and_arguments_are_refused(words: List[str], tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(f"environment: {{lines: ['WANDB_API_KEY={GIVEN}']}}")
    words = [*IPULAUNCH, *words, "--pod", "16"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 2, done.stderr
    assert GIVEN not in done.stdout + done.stderr and "secret" in done.stderr


def test_a_secret_that_the_job_looks_up_is_none(tmp_path: Path) -> None:
    words = ["submit", "cosmoflow", "--pod", "16", "--scheduler", "slurm", "--dry-run"]
    line = 'export WANDB_API_KEY="$(cat ~/.wandb)"'
    done = subprocess.run(
        [*IPULAUNCH, *words, "--setup", line], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0 and line in done.stdout, done.stderr


def test_records_have_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", GIVEN)
    run = RunDirectory(tmp_path / "run")
    records = Records(run, 0)
    records.event("warning", message=f"no answer from db://me:{GIVEN}@host")
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
