from __future__ import annotations

from pathlib import Path

import pytest

from ipulaunch.configs.run_directory import RunDirectory, write_whole


def test_layout_is_the_documented_one() -> None:
    run = RunDirectory(Path("runs/r"))
    shared = [run.plan, run.job, run.command, run.metrics, run.summary, run.checkpoints]
    names = ["plan.json", "job.yaml", "command.txt", "metrics.jsonl", "summary.json", "checkpoints"]
    assert shared == [Path("runs/r") / name for name in names]
    own = [run.log(7), run.events(7), run.error(7), run.done(7)]
    assert own == [run.instance(7) / name for name in ["log.txt", "events.jsonl", "error.json", "done.json"]]
    assert run.instance(7) == Path("runs/r/instance-007")


def test_nothing_is_made_by_naming_it(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "r").log(0)
    assert not list(tmp_path.iterdir())


def test_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for text in ("first, longer", "größer"):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def test_write_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_whole(path, "whole")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half \ud800")
    assert path.read_text(encoding="utf-8") == "whole"
