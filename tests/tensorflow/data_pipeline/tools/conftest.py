from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
import tensorflow as tf

from ipulaunch.data_pipeline.tools import make_cosmoflow, make_images


def _quiet(event: Dict[str, Any]) -> None:
    pass


@pytest.fixture(scope="session")
def cmyk_jpeg() -> bytes:
    """A CMYK JPEG of 8 x 8 cyan pixels."""
    # Tests are imported by path, so a neighbour is too.
    spec = importlib.util.spec_from_file_location("cmyk", Path(__file__).with_name("cmyk.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data: bytes = module.cmyk_jpeg()
    return data


@pytest.fixture
def jpeg() -> Callable[..., bytes]:
    """A JPEG of a given size, all of one brightness."""

    def make(height: int = 6, width: int = 8, channels: int = 3, value: int = 100) -> bytes:
        data: bytes = tf.io.encode_jpeg(tf.fill([height, width, channels], tf.constant(value, tf.uint8))).numpy()
        return data

    return make


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """A CosmoFlow set: 5 records of 4 voxels a side in 3 files, and 2 for validation."""
    options = {"samples": 5, "validation_samples": 2, "side": 4, "samples_per_file": 2, "gzip": False, "seed": 0}
    make_cosmoflow.run({**options, "out": str(tmp_path / "volumes")}, _quiet)
    return tmp_path / "volumes"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """An ImageNet set: 6 records in 2 files, and 2 for validation."""
    options = {"samples": 6, "validation_samples": 2, "side": 24, "files": 2, "classes": 5, "boxes": True, "seed": 0}
    make_images.run({**options, "kind": "imagenet", "out": str(tmp_path / "images")}, _quiet)
    return tmp_path / "images"
