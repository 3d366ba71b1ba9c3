"""Sets that are larger than the memory of a host are read in long runs, and the plan says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.configs.runs.job import set_options
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import Resolved, resolve
from ipulaunch.launcher.launch import larger_sets
from ipulaunch.launcher.launch.larger_sets import memory_of_host, with_long_runs

LENGTH, FILES = 100_000, 3


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """The training files of a set, as far as their sizes and their first record show."""
    for number in range(FILES):
        (tmp_path / f"train-{number:05}-of-00003").write_bytes(LENGTH.to_bytes(8, "little") + bytes(LENGTH + 8))
    (tmp_path / "validation-00000-of-00001").write_bytes(bytes(10 * LENGTH))
    return tmp_path


def resolved(directory: Path, *settings: str, workload: str = "imagenet") -> Resolved:
    given = [f"data.directory={directory}", *settings]
    return resolve(workload, rehearsal=False, overrides=[assignment(setting, "--set") for setting in given])


def test_neighbours_of_a_set_larger_than_memory_stay_together(images: Path) -> None:
    size = FILES * (LENGTH + 16)
    asked = resolved(images)
    assert with_long_runs(asked, memory=size) == asked
    found = with_long_runs(asked, memory=size - 1)
    assert (found.settings.data.shuffle_block, found.settings.data.shuffle_window) == (41, 244)
    assert found.origins["data.shuffle_block"] == "computed" and "41 neighbouring samples" in found.notes[-1]
    assert {"data.shuffle_block=41", "data.shuffle_window=244"} <= set(set_options(found))  # also of a pasted line


@pytest.mark.parametrize(
    "settings", [("data.shuffle_block=1",), ("data.shuffle_window=64",), ("data.shuffle=false",)], ids=str
)
def test_an_order_that_is_asked_for_stays(settings: Any, images: Path) -> None:
    asked = resolved(images, *settings)
    assert with_long_runs(asked, memory=1) == asked


@pytest.mark.parametrize("start", [b"\x1f\x8b" + bytes(20), b"", bytes(9), (5 << 20).to_bytes(8, "little")], ids=repr)
def test_files_whose_records_are_not_known_or_large_change_nothing(start: bytes, images: Path) -> None:
    for path in images.glob("train-*"):
        path.write_bytes(start)
    asked = resolved(images)
    assert with_long_runs(asked, memory=1) == asked


def test_a_set_that_is_not_here_changes_nothing(tmp_path: Path) -> None:
    for workload in ("imagenet", "cosmoflow", "mnist"):
        asked = resolved(tmp_path / "elsewhere", workload=workload)
        assert with_long_runs(asked, memory=1) == asked


def test_the_plan_says_so(images: Path, ipulaunch: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(larger_sets, "memory_of_host", lambda: 1)
    code, _, err = ipulaunch("plan", "imagenet", "--pod", "16", "--dataset-path", str(images), "--explain")
    assert code == 0 and "note: the training files have 0 GiB and this host has 0 GiB of memory: 41 neigh" in err


def test_memory_is_that_of_the_machine_or_of_its_group(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:       2048 kB\nMemFree: 1 kB\n")
    assert memory_of_host(tmp_path) == 2 << 20
    assert memory_of_host(tmp_path / "nowhere") is None
