from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.settings.cosmoflow import CosmoflowSettings
from ipulaunch.configs.settings.estimators import CosmoflowEstimator
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.doctor import places
from ipulaunch.launcher.doctor.diagnosis import Check, Diagnosis, UsedDirectory, with_places
from ipulaunch.launcher.doctor.environment import Space
from ipulaunch.launcher.doctor.places import check_places
from ipulaunch.launcher.engines.registry import ENGINES

MIB, GIB = 1 << 20, 1 << 30


ESTIMATOR = {"estimator.model_dir": "model"}


def fails(path: Path) -> Space:
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize(
    ("space", "state", "found"),
    [
        pytest.param(Space(20 * GIB, 10 * GIB, 5000), "ok", "10 GiB free, room for 5,000 files", id="room"),
        pytest.param(Space(20 * GIB, 10 * GIB, None), "ok", "10 GiB free", id="files-not-counted"),
        pytest.param(Space(20 * GIB, 500 * MIB, 5000), "warning", "500 MiB free", id="little-room"),
        pytest.param(Space(20 * GIB, 0, 5000), "missing", "0 bytes free", id="full"),
        pytest.param(Space(20 * GIB, 10 * GIB, 3), "missing", "room for 3 files", id="no-inodes"),
    ],
)
def test_room_for_the_run(
    space: Space, state: str, found: str, make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    (check,) = check_places(Diagnosis(directory=tmp_path), make_environment(space=lambda path: space))
    assert (check.name, check.state, found in check.found) == ("run directory", state, True), check
    assert str(tmp_path / "runs") in check.found


def test_a_file_system_that_says_nothing_is_a_warning(make_environment: Callable[..., Any], tmp_path: Path) -> None:
    (check,) = check_places(Diagnosis(directory=tmp_path), make_environment(space=fails))
    assert (check.state, "Input/output error" in check.found) == ("warning", True)


def test_a_run_directory_that_exists_is_refused(make_environment: Callable[..., Any], tmp_path: Path) -> None:
    (check,) = check_places(Diagnosis(run_dir=tmp_path), make_environment())
    assert (check.state, "already exists" in check.found) == ("missing", True)


def test_a_place_that_cannot_be_written(
    make_environment: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    (check,) = check_places(Diagnosis(run_dir=tmp_path / "a/b/c"), make_environment())
    assert (check.state, check.found) == ("missing", f"{tmp_path} cannot be written")


def test_a_file_where_a_directory_is_to_be(make_environment: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (check,) = check_places(Diagnosis(run_dir=tmp_path / "file" / "run"), make_environment())
    assert (check.state, check.found) == ("missing", f"{tmp_path / 'file'} cannot be written")


def data_check(path: Path, environment: Any) -> Check:
    return check_places(
        Diagnosis(reads=(UsedDirectory("data", path, "--data-dir"),), directory=path.parent), environment
    )[-1]


@pytest.mark.parametrize(
    ("files", "state", "found"),
    [
        pytest.param(None, "missing", "there is no directory", id="gone"),
        pytest.param([], "missing", "holds no files", id="empty"),
        pytest.param(["a"], "ok", "1 file", id="one"),
        pytest.param(["a", ".index"], "ok", "1 file", id="hidden"),
        pytest.param(["train/a", "train/b", "validation/c"], "ok", "3 files", id="below"),
    ],
)
def test_data(files: Any, state: str, found: str, make_environment: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "data"
    for name in files or []:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).touch()
    if files is not None:
        path.mkdir(exist_ok=True)
    check = data_check(path, make_environment())
    assert (check.name, check.state, found in check.found) == ("data", state, True), check


@pytest.mark.parametrize("workload", ["imagenet", "cifar10", "cifar100", "mnist"])
def test_the_set_of_another_workload(workload: str, make_environment: Callable[..., Any], tmp_path: Path) -> None:
    signs = PUBLISHED_SETS[workload].signs
    place = UsedDirectory("data", tmp_path / "data", "--dataset-path", holds_any=signs)
    (tmp_path / "data" / "kept").mkdir(parents=True)
    (tmp_path / "data" / "kept" / "a.tfrecord").touch()
    _, check = check_places(Diagnosis(reads=(place,)), make_environment())
    assert (check.state, check.found) == ("missing", f"{tmp_path / 'data'} holds none of {', '.join(signs)}")
    for sign in signs:
        there = tmp_path / "data" / sign.replace("*", "0")
        there.touch()
        assert check_places(Diagnosis(reads=(place,)), make_environment())[1].state == "ok"
        there.unlink()


def test_data_that_is_a_file(make_environment: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert "is not a directory" in data_check(tmp_path / "data", make_environment()).found


def test_data_that_cannot_be_read(
    make_environment: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    path.mkdir()
    (path / "closed").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("closed"))
    check = data_check(path, make_environment())
    assert (check.state, check.found) == ("missing", f"{path / 'closed'} cannot be read")
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("data"))
    check = data_check(path, make_environment())
    assert (check.state, check.found) == ("missing", f"{path} cannot be read")


def test_a_large_set_is_not_listed_to_its_end(
    make_environment: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    path.mkdir()
    for index in range(5):
        (path / str(index)).touch()
    monkeypatch.setattr(places, "_MOST_LISTED", 3)
    assert data_check(path, make_environment()).found == f"{path}: 3 files or more"


@pytest.mark.parametrize(
    ("workload", "assignments", "expected"),
    [
        pytest.param("cosmoflow", {}, {"data": "ok"}, id="made-up"),
        pytest.param("imagenet", {}, {"data": "missing"}, id="not-named"),
        pytest.param("imagenet", {"data.synthetic_data": "cpu"}, {"data": "ok"}, id="synthetic"),
        pytest.param("cosmoflow", {"data.directory": "/none"}, {"data": "missing"}, id="gone"),
        pytest.param(
            "cosmoflow",
            {"data.directory": "/none", "data.stage_dir": "here/staged", "training.checkpoint_output_dir": "here/ckpt"},
            {"data": "missing", "staged records": "ok", "checkpoints": "ok"},
            id="written",
        ),
        pytest.param(
            "cosmoflow", {"estimator.use": True, **ESTIMATOR}, {"data": "ok", "model directory": "ok"}, id="estimator"
        ),
        pytest.param(
            "cosmoflow",
            {"estimator.use": True, "training.training": False, **ESTIMATOR},
            {"data": "ok", "model directory": "missing"},
            id="estimator-tested",
        ),
        pytest.param(
            "cosmoflow", {"training.resume": "/none"}, {"data": "ok", "run to resume": "missing"}, id="resume-gone"
        ),
    ],
)
def test_the_directories_of_a_workload(
    workload: str,
    assignments: Dict[str, Any],
    expected: Dict[str, str],
    make_environment: Callable[..., Any],
    tmp_path: Path,
) -> None:
    from ipulaunch.configs.settings.tree import assign, merge

    layers = [assign(key, value, "--set") for key, value in assignments.items()]
    resolved = resolve(
        workload,
        rehearsal=False,
        config=None,
        config_path=None,
        environ={},
        overrides=[merge(*layers)] if layers else [],
    )
    checks = check_places(with_places(Diagnosis(directory=tmp_path), workload, resolved.settings), make_environment())
    assert {check.name: check.state for check in checks[1:]} == expected


def test_a_model_directory_that_cannot_be_written(
    make_environment: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("model"))
    settings = CosmoflowSettings(estimator=CosmoflowEstimator(use=True, model_dir=str(tmp_path / "model")))
    check = check_places(with_places(Diagnosis(directory=tmp_path), "cosmoflow", settings), make_environment())[1]
    assert (check.name, check.state, check.stops) == ("model directory", "missing", ENGINES)
    assert check.fix == "name another place with --model-dir"


def test_the_executable_cache_is_of_poprun_alone(
    make_environment: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("cache"))
    (tmp_path / "cache").mkdir()
    place = UsedDirectory("executable cache", tmp_path / "cache", "--executable-cache-path", ("poprun",))
    check = check_places(Diagnosis(directory=tmp_path, writes=(place,)), make_environment())[1]
    assert (check.state, check.stops) == ("missing", ("poprun",))
