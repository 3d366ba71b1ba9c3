from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings
from ipulaunch.data_pipeline.tools.new_set import encode_example, write_records
from ipulaunch.launcher.doctor.diagnosis import Diagnosis, with_places
from ipulaunch.launcher.doctor.places import check_volumes
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.network import shapes

pytestmark = pytest.mark.core


def volume(side: int) -> bytes:
    values = np.zeros((side, side, side, 4), np.int16)
    return encode_example({"x": values.tobytes(), "y": np.zeros(4, np.float32)})


def diagnosis(tmp_path: Path, side: int, *, validation: bool = True) -> Diagnosis:
    settings = CosmoflowSettings(data=CosmoflowData(directory=str(tmp_path), side=side))
    training = dataclasses.replace(settings.training, validation=validation)
    return with_places(Diagnosis(), "cosmoflow", dataclasses.replace(settings, training=training))


@pytest.fixture()
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(split: str, *records: bytes, packed: bool = False) -> Path:
        path = tmp_path / split / "part-00000.tfrecord"
        path.parent.mkdir()
        write_records(path, records)
        if packed:
            path.write_bytes(gzip.compress(path.read_bytes()))
        return path

    return write


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("side", [1, 4, 16, 64])
def test_volumes_as_asked(
    side: int, packed: bool, write: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    for split in ("train", "validation"):
        write(split, volume(side), packed=packed)
    checks = check_volumes(diagnosis(tmp_path, side), make_environment())
    assert [(check.name, check.state) for check in checks] == [("train volumes", "ok"), ("validation volumes", "ok")]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_other_volumes_are_named_with_the_option(
    packed: bool, write: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    path = write("train", volume(32), packed=packed)
    (check,) = check_volumes(diagnosis(tmp_path, 64), make_environment())
    assert (check.state, check.fix) == ("missing", "use --side 32")
    assert check.found == f"{path}: volumes of 32 x 32 x 32, and the job is for 64 x 64 x 64"


def test_small_volumes_are_named_with_as_many_layers_as_they_take(
    write: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    write("train", volume(16))
    (check,) = check_volumes(diagnosis(tmp_path, 64), make_environment())
    assert check.fix == "use --side 16 --n-conv-layers 4"
    model = CosmoflowModel(n_conv_layers=4)
    shapes(network_of(CosmoflowSettings(data=CosmoflowData(side=16), model=model)))


def test_an_empty_record_is_no_volume(
    write: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    write("train", b"")
    (check,) = check_volumes(diagnosis(tmp_path, 64), make_environment())
    assert check.state == "missing" and "a record of 0 bytes" in check.found


def test_records_of_something_else(
    write: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    write("train", bytes(50_000))
    (check,) = check_volumes(diagnosis(tmp_path, 64), make_environment())
    assert check.state == "missing"
    assert "a record of 50,000 bytes, and a volume of 64 x 64 x 64 takes 2,097,152" in check.found


@pytest.mark.parametrize(
    ("content", "states"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b"abc", [], id="cut-off"),
        pytest.param(b"\x1f\x8b\x08\x00 is no archive", ["missing"], id="no-archive"),
        pytest.param(b"\x1f\x8b", ["missing"], id="archive-cut-off"),
        pytest.param(b"\xff" * 8, ["missing"], id="huge"),
    ],
)
def test_files_that_hold_no_records(
    content: bytes, states: Any, write: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    write("train").write_bytes(content)
    assert [check.state for check in check_volumes(diagnosis(tmp_path, 4), make_environment())] == states


def test_splits_that_a_job_does_not_read(
    write: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    write("train", volume(4))
    write("validation", volume(8))
    assert [check.state for check in check_volumes(diagnosis(tmp_path, 4), make_environment())] == ["ok", "missing"]
    only_training = diagnosis(tmp_path, 4, validation=False)
    assert [check.state for check in check_volumes(only_training, make_environment())] == ["ok"]


def test_synthetic_volumes_are_as_asked(make_environment: Callable[..., Any]) -> None:
    assert check_volumes(with_places(Diagnosis(), "cosmoflow", CosmoflowSettings()), make_environment()) == []
