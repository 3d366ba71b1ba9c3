from __future__ import annotations

from pathlib import Path

import pytest

from ipulaunch.configs.runs.directory import RunDirectory, made_whole, records_of, whole_run, write_whole


def test_layout_is_the_documented_one() -> None:
    run = RunDirectory(Path("runs/r"))
    shared = [run.plan, run.job, run.launch_options, run.command, run.metrics, run.summary, run.checkpoints]
    names = ["plan.json", "job.yaml", "asked.json", "command.txt", "metrics.jsonl", "summary.json", "checkpoints"]
    assert shared == [Path("runs/r") / name for name in names]
    own = [run.log(7), run.events(7), run.error(7), run.done(7)]
    assert own == [run.instance(7) / name for name in ["log.txt", "events.jsonl", "error.json", "done.json"]]
    assert run.instance(7) == Path("runs/r/instance-007")


def test_nothing_is_made_by_naming_it(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "r").log(0)
    assert not list(tmp_path.iterdir())


def test_a_job_keeps_its_records_inside(tmp_path: Path) -> None:
    inside = tmp_path / "run"
    inside.mkdir()
    assert (records_of(tmp_path).path, whole_run(inside)) == (tmp_path, inside)
    (tmp_path / "job.json").touch()
    assert (records_of(tmp_path).path, whole_run(inside)) == (tmp_path, tmp_path)
    (inside / "plan.json").touch()
    assert (records_of(tmp_path).path, whole_run(inside)) == (inside, tmp_path)
    assert whole_run(tmp_path) == tmp_path


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


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    write_whole(tmp_path / "state", b"\xff\r\n")
    assert (tmp_path / "state").read_bytes() == b"\xff\r\n"


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    with made_whole(path) as temporary:
        temporary.write_text("half")
        assert list(tmp_path.iterdir()) == [temporary] and temporary.name.startswith(".shard.")
    assert (list(tmp_path.iterdir()), path.read_text()) == ([path], "half")
    with pytest.raises(KeyboardInterrupt), made_whole(path) as temporary:
        temporary.write_text("another half")
        raise KeyboardInterrupt
    assert (list(tmp_path.iterdir()), path.read_text()) == ([path], "half")


def test_instances_and_earlier_attempts_are_found_by_their_numbers(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert (run.instances(), run.earlier_attempts()) == ([], [])
    for path in (run.instance(1000), run.instance(2), run.path / "instance-x", run.path / "instance-٣"):
        path.mkdir()
    for name in ("10", "2", "notes"):
        (run.attempts / name).mkdir(parents=True)
    assert (run.instances(), run.earlier_attempts()) == ([2, 1000], [2, 10])
    assert run.attempt(2).events(0) == tmp_path / "attempts" / "2" / "instance-000" / "events.jsonl"
