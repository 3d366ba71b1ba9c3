from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from ipulaunch.data_pipeline.tools import index, make_images, verify

Events = List[Dict[str, Any]]


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Path]:
    """A small set of this kind: 20 training and 10 validation images."""

    def make(kind: str) -> Path:
        options = {"kind": kind, "samples": 20, "validation_samples": 10, "seed": 0, "out": str(tmp_path / kind)}
        make_images.run(options, lambda event: None)
        return tmp_path / kind

    return make


def defects(events: Events) -> Dict[str, str]:
    return {Path(event["file"]).name: event["message"] for event in events if event["event"] == "defect"}


@pytest.mark.parametrize(("kind", "form"), [("cifar10", "32 x 32 x 3"), ("mnist", "28 x 28 x 1")])
def test_a_good_set_has_no_defects(kind: str, form: str, made: Callable[[str], Path], events: Events) -> None:
    result = verify.run({"directory": str(made(kind)), "instances": 2, "micro_batch_size": 4}, events.append)
    assert (result["kind"], result["form"], result["defects"]) == (kind, form, 0)
    assert result["records"] == {"train": 20, "validation": 10} and result["bytes"] > 0
    assert "train does not have the" in result["notes"][0]["message"]
    assert result["shards"]["train"] == {"steps": 2, "instances": 2, "per_instance": 8, "left_out": 4}
    assert not defects(events)


@pytest.mark.parametrize("kind", ["cifar10", "mnist"])
def test_no_index_is_needed(kind: str, made: Callable[[str], Path], events: Events) -> None:
    directory = made(kind)
    before = sorted(directory.rglob("*"))
    assert index.run({"directory": str(directory)}, events.append) == {"kind": kind, "splits": {}}
    assert sorted(directory.rglob("*")) == before


def test_every_bad_file_of_cifar_is_named(tmp_path: Path, events: Events) -> None:
    row = bytes([3]) + bytes(3072)
    for number in (1, 2, 4, 5):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(row * 2)
    (tmp_path / "data_batch_2.bin").write_bytes(row[:-1])
    (tmp_path / "data_batch_5.bin").write_bytes(bytes([10]) + bytes(3072))
    result = verify.run({"directory": str(tmp_path)}, events.append)
    found = defects(events)
    assert result["defects"] == 3 and result["records"] == {"train": 4}
    assert found["data_batch_2.bin"] == "has 3072 bytes, expected a multiple of 3073"
    assert found["data_batch_3.bin"] == "the file is missing"
    assert "labels are 10 to 10, expected 0 to 9" in found["data_batch_5.bin"]


def test_bad_files_of_mnist_are_named(made: Callable[[str], Path], events: Events) -> None:
    directory = made("mnist")
    (directory / "train-labels-idx1-ubyte.gz").unlink()
    (directory / "t10k-labels-idx1-ubyte.gz").write_bytes(b"text")
    result = verify.run({"directory": str(directory)}, events.append)
    found = defects(events)
    assert result["defects"] == 2
    assert found["train-labels-idx1-ubyte"] == "the file is missing"
    assert found["t10k-labels-idx1-ubyte.gz"] == "starts with 74657874, expected 00000801: an idx file"


def test_keras_archives_are_checked_too(tmp_path: Path, events: Events) -> None:
    images, labels = np.zeros((4, 32, 32, 3), np.uint8), np.array([[0], [1], [2], [99]])
    np.savez(tmp_path / "cifar100.npz", x_train=images, y_train=labels, x_test=images, y_test=labels + 1)
    result = verify.run({"directory": str(tmp_path)}, events.append)
    assert (result["kind"], result["records"]) == ("cifar100", {"train": 4, "validation": 0})
    assert "labels are 1 to 100, expected 0 to 99" in defects(events)["cifar100.npz"]
