from __future__ import annotations

from pathlib import Path
from typing import List

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.sources import cosmoflow, imagenet
from ipulaunch.data_pipeline.tools.sets import find_set, holds_records


def put(directory: Path, *names: str) -> Path:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return directory


@pytest.mark.parametrize("width", [1, 4, 5])
def test_shards_of_any_width_are_found_alike(width: int, tmp_path: Path) -> None:
    names = [f"{split}-{n:0{width}}-of-{3:0{width}}" for split in ("train", "validation") for n in range(3)]
    put(tmp_path, *names, "train-of-thought", ".train-00000-of-00003.4711")
    found = find_set(tmp_path)
    assert holds_records(tmp_path) and found.kind == "imagenet" and found.missing == found.strangers == ()
    for split in ("train", "validation"):
        paths = tuple(tmp_path / name for name in names if name.startswith(split))
        assert imagenet.find_files(tmp_path, split) == found.splits[split] == paths


@pytest.mark.parametrize(
    ("names", "missing", "strangers", "said"),
    [
        (
            ["train-00000-of-00003", "train-00002-of-00003"],
            ["train-00001-of-00003"],
            [],
            "1 train file of 3 missing: train-00001-of-00003",
        ),
        (
            ["train-0003-of-0005"],
            ["train-0000-of-0005", "train-0001-of-0005", "train-0002-of-0005", "train-0004-of-0005"],
            [],
            "4 train files of 5 missing: train-0000-of-0005, train-0001-of-0005, train-0002-of-0005, ...",
        ),
        (
            ["train-00000-of-00002", "train-00001-of-00002", "train-00000-of-00001"],
            [],
            ["train-00000-of-00001"],
            "1 train file of another set than train-00000-of-00002: train-00000-of-00001",
        ),
        (
            ["train-00000-of-00001", "train-00001-of-00001"],
            [],
            ["train-00001-of-00001"],
            "1 train file of another set than train-00000-of-00001: train-00001-of-00001",
        ),
        (
            ["train-00000-of-00002", "train-00001-of-00002", "train-0000-of-0002"],
            [],
            ["train-0000-of-0002"],
            "1 train file of another set than train-00000-of-00002: train-0000-of-0002",
        ),
    ],
    ids=["one missing", "many missing", "two sets", "a number too many", "two widths"],
)
def test_incomplete_and_mixed_shards_are_refused(
    names: List[str], missing: List[str], strangers: List[str], said: str, tmp_path: Path
) -> None:
    put(tmp_path, *names, "validation-00000-of-00001")
    with pytest.raises(DataError, match="train file") as caught:
        imagenet.find_files(tmp_path, "train")
    assert caught.value.message == f"{tmp_path}: {said}" and caught.value.exit_code == 5
    found = find_set(tmp_path)
    assert [path.name for path in found.missing] == missing and [path.name for path in found.strangers] == strangers
    assert imagenet.find_files(tmp_path, "validation") == (tmp_path / "validation-00000-of-00001",)


def test_a_number_that_cannot_be_is_no_shard(tmp_path: Path) -> None:
    put(tmp_path, "train-00000-of-99999999999")
    assert not holds_records(tmp_path)
    with pytest.raises(DataError, match="there are no train-NNNNN-of-NNNNN files"):
        imagenet.find_files(tmp_path, "train")


def test_hidden_files_are_no_volumes(tmp_path: Path) -> None:
    put(tmp_path, "train/a.tfrecord", "train/.a.tfrecord.4711", "train/.b.tfrecord", "validation/.a.tfrecord")
    assert cosmoflow.find_files(tmp_path, "train") == (tmp_path / "train" / "a.tfrecord",)
    assert find_set(tmp_path).splits == {"train": (tmp_path / "train" / "a.tfrecord",)}
    with pytest.raises(DataError, match="there are no"):
        cosmoflow.find_files(tmp_path, "validation")
