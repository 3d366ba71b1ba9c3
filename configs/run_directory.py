"""The run directory: where the plan, the job, the records and the checkpoints of one run lie."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

RUNS = "runs"  # where runs lie when no other place is named


@dataclass(frozen=True)
class RunDirectory:
    """The paths of one run; nothing is made before someone writes."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def job(self) -> Path:
        return self.path / "job.yaml"

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
    def attempts(self) -> Path:
        """What earlier attempts of the run have left."""
        return self.path / "attempts"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to continue from; whether it is whole, only a reader can tell."""
        return any(self.checkpoints.glob("update-*"))

    def curves(self, ending: str) -> Path:
        return self.path / f"curves.{ending}"

    def instance(self, index: int) -> Path:
        return self.path / f"instance-{index:03}"

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

    def done(self, index: int) -> Path:
        return self.instance(index) / "done.json"


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
