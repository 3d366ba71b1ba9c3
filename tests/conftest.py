from __future__ import annotations

import itertools
import os
import pwd
import signal
import tempfile
from typing import Callable, Iterator

import pytest

from ipulaunch.configs.keras_2 import use_keras_2
from ipulaunch.configs.runs.secrets import is_secret
from ipulaunch.topology import Batch

pytest_plugins = [
    f"fixtures.{name}" for name in ("data_tools", "doctor", "launcher", "schedulers", "serving", "trainings")
]

# Tests may run within a job of a cluster, or one that has secrets; neither is theirs, nor are a user's own settings.
_NOT_OURS = (
    *("SLURM_", "SBATCH_", "PBS_", "OMPI_", "PMIX_", "PRTE_", "POPDIST_", "POPLAR_", "IPUOF_"),
    *("IPULAUNCH_", "_IPULAUNCH_"),
)
for _name in [name for name in os.environ if name.startswith(_NOT_OURS) or is_secret(name)]:
    del os.environ[_name]
os.environ.update(TERM="xterm", COLUMNS="80")
if not os.environ.get("HOME"):  # Open MPI does not start without one
    try:
        os.environ["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a number without a name, as in some containers
        os.environ["HOME"] = tempfile.gettempdir()

# Before any test imports TensorFlow, as the entry point of a worker does.
use_keras_2(os.environ)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# Shells start what runs in their background, and nohup what it starts, with these ignored. The launcher leaves what is
# ignored alone, so that a test of Ctrl-C would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def state_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What ipulaunch remembers for its user must not be that of the user who runs the tests."""
    directory = str(tmp_path_factory.mktemp("state"))
    os.environ["XDG_STATE_HOME"] = f"{directory}/shared"
    return map(f"{directory}/{{}}".format, itertools.count())


@pytest.fixture(autouse=True)
def state_directory(state_directories: Iterator[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor that of another test."""
    monkeypatch.setenv("XDG_STATE_HOME", next(state_directories))


@pytest.fixture(scope="session")
def replica_slice() -> Callable[[int, int, int, Batch], slice]:
    """The invariant in plain arithmetic: where a replica's samples of an accumulation step are in the epoch's order."""

    def positions(update: int, step: int, replica: int, batch: Batch) -> slice:
        start = update * batch.global_size + (step * batch.replicas + replica) * batch.micro_size
        return slice(start, start + batch.micro_size)

    return positions
