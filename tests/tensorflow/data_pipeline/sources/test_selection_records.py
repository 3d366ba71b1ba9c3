"""What a job makes of record files: staged, indexed, damaged, packed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from fixtures.plans import plan_of

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.data_pipeline.sources.record_sources import reading_warnings
from ipulaunch.data_pipeline.sources.selection import make_sources
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.data_pipeline.tools import make_cosmoflow, make_images
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.plan import Plan

ALONE = plan_of(Batch(1, 1, 1))
TWO = plan_of(Batch(1, 2, 1), instances=2)
MakeSet = Callable[..., Path]


@pytest.fixture
def volumes(tmp_path: Path) -> MakeSet:
    """A small CosmoFlow set."""

    def make(name: str, samples: int = 6, per_file: int = 1, packed: bool = False) -> Path:
        options = {"samples": samples, "validation_samples": 2, "side": 2, "samples_per_file": per_file, "seed": 0}
        make_cosmoflow.run({**options, "gzip": packed, "out": str(tmp_path / name)}, lambda event: None)
        return tmp_path / name

    return make


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A small ImageNet set."""
    options = {"samples": 6, "validation_samples": 2, "side": 24, "files": 3, "classes": 5, "boxes": False, "seed": 0}
    make_images.run({**options, "kind": "imagenet", "out": str(tmp_path / "images")}, lambda event: None)
    return tmp_path / "images"


def job_of(data_dir: Optional[Path], *settings: str, workload: str = "cosmoflow") -> Job:
    if workload == "cosmoflow":
        settings = (f"data.directory={data_dir}", "data.side=2", "model.n_conv_layers=1", *settings)
    elif data_dir is not None:
        settings = (f"data.directory={data_dir}", *settings)
    overrides = [assignment(setting, "--set") for setting in settings]
    return Job(workload, "cpu", resolve(workload, rehearsal=True, overrides=overrides).settings)


def sources(job: Job, plan: Plan = ALONE, instance: int = 0, told: Optional[List[Any]] = None) -> Dict[str, Source]:
    def progress(what: str, done: int, total: int) -> None:
        if told is not None:
            told.append((what, done, total))

    return make_sources(job, plan, instance, 2, meet=str, progress=progress)


def paths_of(source: Any) -> List[Path]:
    return list(source.index.paths)


def test_sets_that_are_staged_to_one_directory_are_not_mixed(volumes: MakeSet, tmp_path: Path) -> None:
    few, many, disk = volumes("few", 2), volumes("many", 6), tmp_path / "disk"
    shutil.move(str(many / "train"), str(tmp_path / "moved"))
    (many / "train").mkdir()
    for path in (tmp_path / "moved").glob("*.tfrecord"):
        path.rename(many / "train" / f"other-{path.name}")
    assert sources(job_of(many, f"data.stage_dir={disk}"))["train"].samples == 6
    found = sources(job_of(few, f"data.stage_dir={disk}"))
    assert (found["train"].samples, found["validation"].samples) == (2, 2)
    assert paths_of(found["train"]) == [disk / "train" / path.name for path in sorted((few / "train").glob("p*"))]


def test_what_a_killed_copy_left_is_no_data(volumes: MakeSet, tmp_path: Path) -> None:
    job = job_of(volumes("set"), f"data.stage_dir={tmp_path / 'disk'}")
    sources(job)
    (tmp_path / "disk" / "train" / ".part-00000.tfrecord.4711").write_bytes(b"half")
    (tmp_path / "set" / "train" / ".part-00000.tfrecord.4711").write_bytes(b"half")
    assert sources(job)["train"].samples == 6


def test_imagenet_is_staged_too(images: Path, tmp_path: Path) -> None:
    disk, told = tmp_path / "disk", []  # type: ignore[var-annotated]
    job = job_of(images, f"data.stage_dir={disk}", "data.augment=false", workload="imagenet")
    found = sources(job, told=told)
    assert paths_of(found["train"]) == [disk / f"train-0000{n}-of-00003" for n in range(3)]
    assert found["train"].samples == 6 and {path.parent for path in paths_of(found["validation"])} == {disk}
    assert told[0][0] == "staging" and told[-1] == ("indexing", 1, 1)


@pytest.mark.parametrize(
    ("workload", "setting", "option"),
    [
        ("cifar10", "data.stage_dir=/tmp", "--stage-dir"),
        ("mnist", "data.stage_dir=/tmp", "--stage-dir"),
        ("cifar100", "data.bad_records=skip", "--bad-records skip"),
        ("mnist", "data.bad_records=skip", "--bad-records skip"),
        ("mnist", "data.augment=true", "--augment"),
    ],
)
def test_what_would_have_no_effect_is_refused(workload: str, setting: str, option: str) -> None:
    with pytest.raises(SettingsError, match=f"{option} has no effect on {workload}"):
        sources(job_of(None, setting, workload=workload))


def test_an_index_that_is_built_is_told_of(volumes: MakeSet) -> None:
    told: List[Any] = []
    job = job_of(volumes("set"))
    sources(job, told=told)
    assert told[0][0] == "indexing" and ("indexing", 6, 6) in told and told[-1] == ("indexing", 2, 2)
    told.clear()
    sources(job, told=told)
    assert told == []


@pytest.mark.parametrize("workload", ["cosmoflow", "imagenet"])
def test_damaged_files_are_skipped_and_counted_by_one_instance(workload: str, volumes: MakeSet, images: Path) -> None:
    if workload == "cosmoflow":
        directory, pattern, left = volumes("set", 6, 2), "train/*.tfrecord", 5
    else:
        directory, pattern, left = images, "train-*", 5
    path = sorted(directory.glob(pattern))[1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"record 1 at byte .*: the last 1 bytes are missing"):
        sources(job_of(directory, workload=workload))
    job = job_of(directory, "data.bad_records=skip", workload=workload)
    found, others = sources(job), sources(job, TWO, 1)
    assert found["train"].samples == others["train"].samples == left
    (defect,) = found["train"].bad.values()
    assert "the last 1 bytes are missing" in defect.message and str(path) in defect.message
    assert others["train"].bad == found["validation"].bad == {}


def test_a_set_of_which_nothing_can_be_read_says_why(volumes: MakeSet) -> None:
    directory = volumes("set", 1)
    for path in (directory / "train").glob("*.tfrecord"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="hold no record") as caught:
        sources(job_of(directory, "data.bad_records=skip"))
    assert "the last 1 bytes are missing" in str(caught.value.hint)


def test_instances_that_see_different_sets_do_not_start(volumes: MakeSet) -> None:
    job, said = job_of(volumes("set")), []  # type: ignore[var-annotated]

    def meet(text: str) -> str:
        said.append(text)
        return said[0] if text in ("staged", "indexed") else text.replace("6", "7")

    with pytest.raises(DataError, match="instance 1 finds 6 and 2 samples, instance 0 finds 7 and 2"):
        make_sources(job, TWO, 1, 2, meet=meet, progress=lambda *what: None)


@pytest.mark.parametrize("workload", ["cosmoflow", "imagenet"])
@pytest.mark.parametrize(
    ("setting", "split", "other"),
    [("training.training=false", "validation", "train"), ("training.validation=false", "train", "validation")],
    ids=["without training", "without validation"],
)
def test_a_split_that_is_not_read_need_not_be_there(
    workload: str, setting: str, split: str, other: str, volumes: MakeSet, images: Path, tmp_path: Path
) -> None:
    directory = volumes("set") if workload == "cosmoflow" else images
    for path in [*directory.glob(f"{other}/*"), *directory.glob(f"{other}-*")]:
        path.unlink()
    with pytest.raises(DataError, match="there are no"):
        sources(job_of(directory, workload=workload))
    job = job_of(directory, setting, f"data.stage_dir={tmp_path / 'disk'}", workload=workload)
    found = sources(job)
    assert (found[split].samples, found[other].samples) == ({"train": 6, "validation": 2}[split], 0)
    assert all(tmp_path / "disk" in path.parents for path in paths_of(found[split]))
    assert reading_warnings(job, found["train"]) == []


@pytest.mark.parametrize(
    ("per_file", "packed", "settings", "warned"),
    [
        (2, True, [], True),
        (2, True, ["data.shuffle_block=2", "data.shuffle_window=64"], True),
        (2, True, ["data.shuffle_block=2", "data.shuffle_window=2"], False),
        (2, False, [], False),
        (1, True, [], False),
        (6, True, [], False),
    ],
    ids=["every sample unpacks", "wide windows", "narrow windows", "plain", "a sample a file", "few files"],
)
def test_packed_files_that_are_unpacked_again_and_again_are_warned_of(
    per_file: int, packed: bool, settings: List[str], warned: bool, volumes: MakeSet
) -> None:
    job = job_of(volumes("set", 12, per_file, packed), *settings)
    found = reading_warnings(job, sources(job)["train"])
    assert len(found) == warned
    if warned:
        assert "6 files" in found[0]
        assert "--set data.shuffle_block=2 --set data.shuffle_window=2" in found[0]


def test_other_sources_are_not_warned_of() -> None:
    job = job_of(None, workload="mnist")
    assert reading_warnings(job, sources(job)["train"]) == []
