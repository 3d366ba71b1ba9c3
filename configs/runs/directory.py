"""The run directory: where the plan, the job, the records and the checkpoints of a run are."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Union

from ipulaunch.configs.errors import NotReadyError

RUNS = "runs"  # where runs are, unless the user names another place
INSIDE = "run"  # where a submitted job keeps its records, in the directory of its submission

_INSTANCE = "instance-"


@dataclass(frozen=True)
class RunDirectory:
    """The paths of one run. It makes nothing by itself."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def job(self) -> Path:
        return self.path / "job.yaml"

    @property
    def program(self) -> Path:
        """The program of the user's own that it runs; such a run has no job."""
        return self.path / "program.json"

    @property
    def launch_options(self) -> Path:
        """How it was launched."""
        return self.path / "asked.json"

    @property
    def origins(self) -> Path:
        """Where each setting of the job came from."""
        return self.path / "origins.json"

    @property
    def report(self) -> Path:
        """The page about the run."""
        return self.path / "report.html"

    @property
    def command(self) -> Path:
        return self.path / "command.txt"

    @property
    def engine_log(self) -> Path:
        return self.path / "engine.txt"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def history(self) -> Path:
        return self.path / "history.csv"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def stop(self) -> Path:
        """Its presence asks the instances to stop."""
        return self.path / "stop"

    @property
    def cancel(self) -> Path:
        """Its presence asks that nobody starts the run again once it has stopped."""
        return self.path / "cancel"

    @property
    def launcher(self) -> Path:
        """The launcher that works on the run locks this file."""
        return self.path / "launcher.json"

    @property
    def endings(self) -> Path:
        """How the attempts ended."""
        return self.path / "endings.jsonl"

    @property
    def submitted(self) -> Path:
        """The record of the job that was submitted for it."""
        return self.path / "job.json"

    @property
    def attempts(self) -> Path:
        """The records of earlier attempts."""
        return self.path / "attempts"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def curves(self, ending: str) -> Path:
        return self.path / f"curves.{ending}"

    def attempt(self, number: int) -> RunDirectory:
        """Where the records of an earlier attempt are."""
        return RunDirectory(self.attempts / str(number))

    def earlier_attempts(self) -> List[int]:
        """The earlier attempts, the first one first."""
        return _numbers(self.attempts, "")

    def instances(self) -> List[int]:
        """The instances that have a directory here."""
        return _numbers(self.path, _INSTANCE)

    def instance(self, index: int) -> Path:
        return self.path / f"{_INSTANCE}{index:03}"

    def log(self, index: int) -> Path:
        return self.instance(index) / "log.txt"

    def events(self, index: int) -> Path:
        return self.instance(index) / "events.jsonl"

    def samples(self, index: int) -> Path:
        return self.instance(index) / "samples.csv"

    def error(self, index: int) -> Path:
        return self.instance(index) / "error.json"

    def profile(self, index: int) -> Path:
        return self.instance(index) / "profile"

    def stopped(self, index: int) -> Path:
        return self.instance(index) / "stopped.json"

    def heartbeat(self, index: int) -> Path:
        return self.instance(index) / "heartbeat"

    def exited(self, index: int) -> Path:
        """How the program of a user ended."""
        return self.instance(index) / "exited.json"

    def done(self, index: int) -> Path:
        return self.instance(index) / "done.json"


def _numbers(directory: Path, prefix: str) -> List[int]:
    """The numbers in the names of what is in a directory."""
    names = (path.name[len(prefix) :] for path in directory.glob(f"{prefix}*"))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


@contextlib.contextmanager
def writable(run: RunDirectory, hint: str = "") -> Iterator[None]:
    """Turn a failure to write into the run, on a full disk say, into an error that tells the user what to do."""
    try:
        yield
    except OSError as error:
        mend = "make room there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
        raise NotReadyError(
            f"the run directory {run.path} cannot be written: {error.strerror}",
            hint=f"{mend}, {hint or f'then ipulaunch resume {run.path}'}",
        ) from error


def records_of(path: Path) -> RunDirectory:
    """Where the records of a run are: a submitted job makes the run directory inside the one of its submission."""
    inside = RunDirectory(path / INSIDE)
    return inside if is_file(inside.plan) else RunDirectory(path)


def whole_run(path: Path) -> Path:
    """The directory of a run, also for the directory inside it that has its records."""
    outside = path.absolute().parent
    return outside if path.name == INSIDE and is_file(RunDirectory(outside).submitted) else path


def is_file(path: Path) -> bool:
    """Whether there is a file that we may see. Path.is_file() raises for files in directories that are closed to us."""
    return os.path.isfile(path)  # noqa: PTH113


def write_whole(path: Path, data: Union[str, bytes]) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    with made_whole(path) as temporary, temporary.open("wb") as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """Gives another name to write a file under, which becomes `path` at the end; a failure leaves nothing there."""
    temporary = temporary_beside(path)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:  # a full disk, say
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def temporary_beside(path: Path) -> Path:
    """Where this process writes, or removes, what others must not see in parts: a hidden name on the same disk."""
    return path.with_name(f".{path.name}.{os.getpid()}")
