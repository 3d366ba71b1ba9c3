"""Versions of exported models: where they may go, and the records beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, List, Optional, Tuple

import pytest

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.configs.exports import (
    ExportedWeights,
    ExportRecord,
    Tensor,
    half_written_in,
    read_export,
    record_path,
    refuse_occupied,
    to_json,
    versions_in,
)

RECORD = ExportRecord(
    workload="cifar10",
    config=None,
    model="cifar_resnet8",
    version=3,
    backend="cpu",
    tensorflow="2.6.3",
    python="3.8.18",
    input=Tensor("input", "uint8", (8, 32, 32, 3), "pixels from 0 to 255"),
    output=Tensor("output", "float32", (8, 10), "logits"),
    classes=10,
    precision="32.32",
    iterations=1,
    pipeline_splits=("conv1",),
    weights=ExportedWeights("/c", 7, 0.5, "/r"),
    settings={"data": {"side": 32}},
)


def directory_with(path: Path, names: Tuple[str, ...]) -> Path:
    """A directory with these directories, and with files where names have an ending."""
    for name in names:
        if "." in name[1:] and not name.startswith("."):
            path.mkdir(exist_ok=True)
            (path / name).touch()
        else:
            (path / name).mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("there", "version", "adds", "refused"),
    [
        pytest.param((), 1, False, None, id="it does not exist"),
        pytest.param((".1.4711",), 1, False, None, id="what a killed export left"),
        pytest.param(("1",), 2, True, None, id="another version"),
        pytest.param(("001", "12"), 2, True, None, id="versions with zeros"),
        pytest.param(("1",), 2, False, "versions of a model already: 1", id="a version that nobody named"),
        pytest.param(("1",), 1, True, "holds version 1", id="the same version"),
        pytest.param(("001",), 1, True, "holds version 1", id="the same version with zeros"),
        pytest.param(("a.txt",), 1, True, "holds a.txt", id="a file"),
        pytest.param(("1", "b", "c"), 2, True, "holds b, c", id="something else beside a version"),
        pytest.param((".git",), 1, True, "holds .git", id="something hidden"),
    ],
)
def test_where_a_version_may_go(
    there: Tuple[str, ...], version: int, adds: bool, refused: Optional[str], tmp_path: Path
) -> None:
    directory = directory_with(tmp_path / "models", there)
    if refused is None:
        refuse_occupied(directory, version, adds=adds)
        return
    with pytest.raises(UsageError) as found:
        refuse_occupied(directory, version, adds=adds)
    assert refused in found.value.message and "--" in found.value.hint


def test_an_empty_directory_is_taken_and_a_file_is_not(tmp_path: Path) -> None:
    refuse_occupied(tmp_path, 1, adds=False)
    (tmp_path / "models").touch()
    with pytest.raises(UsageError, match="is not a directory"):
        refuse_occupied(tmp_path / "models", 1, adds=True)


def test_versions_are_sorted_as_numbers(tmp_path: Path) -> None:
    directory_with(tmp_path / "models", ("10", "9", "002", "x", ".3.1"))
    (tmp_path / "models" / "4").touch()
    assert versions_in(tmp_path / "models") == [2, 9, 10]
    assert [path.name for path in half_written_in(tmp_path / "models")] == [".3.1"]


def test_a_record_comes_back(tmp_path: Path) -> None:
    path = record_path(tmp_path)
    path.parent.mkdir()
    path.write_text(to_json(RECORD))
    assert read_export(tmp_path) == RECORD
    assert path == tmp_path / "assets.extra" / "export.json"  # TensorFlow Serving loads nothing from there
    assert (RECORD.name, RECORD._replace(config="resnet8_test").name) == ("cifar10", "resnet8_test")
    assert (RECORD.data()["batch_size"], RECORD.data()["signature"]) == (8, "serving_default")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"shape"', '"form"'),
        lambda text: text.replace('"iterations"', '"rounds"'),
    ],
    ids=["cut off", "a list", "a tensor without a shape", "without iterations"],
)
def test_a_record_that_is_none_is_refused(spoil: Callable[[str], str], tmp_path: Path) -> None:
    path = record_path(tmp_path)
    path.parent.mkdir()
    path.write_text(spoil(to_json(RECORD)))
    with pytest.raises(DataError, match="is not the record of an exported model"):
        read_export(tmp_path)


def test_a_version_without_a_record_is_none_of_ours(tmp_path: Path) -> None:
    found: List[Path] = list(tmp_path.iterdir())
    with pytest.raises(DataError):
        read_export(tmp_path)
    assert list(tmp_path.iterdir()) == found == []
