from __future__ import annotations

import os
from pathlib import Path

from ipulaunch.launcher.supervise.processes import all_processes, runs_here


def _process(proc: Path, pid: int, stat: bytes, *words: str, user: int = os.getuid()) -> None:
    place = proc / str(pid)
    place.mkdir(parents=True)
    (place / "stat").write_bytes(stat)
    (place / "status").write_text(f"Name:\tx\nUid:\t{user}\t{user}\n")
    (place / "cmdline").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))


def test_processes_that_live(tmp_path: Path) -> None:
    _process(tmp_path, 7, b"7 (a) b) \xff) T 1 7 7", "python", "-m", "x")
    _process(tmp_path, 8, b"8 (z) Z 7 7 7")
    _process(tmp_path, 9, b"")  # it ends while we look
    (tmp_path / "self").mkdir()
    (process,) = all_processes(tmp_path)
    assert (process.pid, process.parent, process.state) == (7, 1, "T")
    assert (process.words, process.user) == (("python", "-m", "x"), os.getuid())


def test_a_process_that_has_just_ended_has_no_words(tmp_path: Path) -> None:
    _process(tmp_path, 7, b"7 (a) S 1 7 7", "python")
    (process,) = all_processes(tmp_path)
    for path in process.place.iterdir():
        path.unlink()
    assert (process.words, process.user) == ((), None)


def test_a_machine_without_proc(tmp_path: Path) -> None:
    assert list(all_processes(tmp_path / "nowhere")) == []


def test_runs_with_an_engine_or_an_instance(tmp_path: Path) -> None:
    worker = ("python", "-m", "ipulaunch.workers", "cosmoflow", "--run-dir")
    _process(tmp_path, 7, b"7 (mpirun) S 1 7 7", "mpirun", "-np", "1", *worker, "/runs/a")
    _process(tmp_path, 8, b"8 (python) S 7 7 7", *worker, "/runs/b")
    _process(tmp_path, 9, b"9 (python) S 7 7 7", *worker, "/runs/c", user=os.getuid() + 1)
    _process(tmp_path, 10, b"10 (python) S 7 7 7", "program", "--run-dir", "/runs/d")
    _process(tmp_path, 11, b"11 (python) S 7 7 7", *worker[:-1])
    assert runs_here(tmp_path) == {Path("/runs/a"), Path("/runs/b")}
