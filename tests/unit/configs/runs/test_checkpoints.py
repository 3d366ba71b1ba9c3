from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from ipulaunch.configs.runs.checkpoints import (
    checkpoint_name,
    checkpoints_in,
    checkpoints_of,
    estimator_checkpoint_name,
    half_written_in,
    newest_update,
)
from ipulaunch.configs.runs.directory import RunDirectory, temporary_beside
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.workloads import resolve

JOB = Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=False).settings)


def test_names() -> None:
    assert (checkpoint_name(8), estimator_checkpoint_name(8)) == ("update-00000008", "model.ckpt-8")


def test_a_directory_has_whole_and_half_written_ones(tmp_path: Path) -> None:
    for update in (60, 8):
        (tmp_path / checkpoint_name(update)).mkdir()
    temporary_beside(tmp_path / checkpoint_name(75)).mkdir()
    (tmp_path / "update-notes.txt").touch()
    assert [path.name for path in checkpoints_in(tmp_path)] == ["update-00000008", "update-00000060"]
    assert half_written_in(tmp_path) == [temporary_beside(tmp_path / checkpoint_name(75))]
    assert checkpoints_in(tmp_path / "nowhere") == half_written_in(tmp_path / "nowhere") == []


def test_checkpoints_are_in_a_run_that_does_not_say_where(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert checkpoints_of(run, None) == checkpoints_of(run, JOB) == run.checkpoints


@pytest.mark.parametrize(
    ("names", "api", "update"),
    [
        ([], "keras", None),
        (["update-00000004", "update-00000060", ".update-00000075.12"], "keras", 60),
        (["update-x", "update-00000008"], "keras", 8),
        (["model.ckpt-4.index", "model.ckpt-12.index", "model.ckpt-12.meta"], "estimator", 12),
    ],
)
@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["in the run", "elsewhere"])
def test_newest_checkpoint(
    names: List[str], api: str, update: Optional[int], is_elsewhere: bool, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    place = tmp_path / "elsewhere" if is_elsewhere else run.checkpoints
    for name in names:
        (place / name).mkdir(parents=True)
    elsewhere = str(place) if is_elsewhere else None
    training = dataclasses.replace(JOB.settings.training, checkpoint_output_dir=elsewhere)
    settings: Any = SimpleNamespace(api=api, training=training, estimator_run=SimpleNamespace(model_dir=elsewhere))
    job = JOB._replace(settings=settings)
    assert newest_update(run, job) == update
    assert checkpoints_of(run, job) == place
