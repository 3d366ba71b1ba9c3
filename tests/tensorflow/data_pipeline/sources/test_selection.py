from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import plan_of

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import WORKLOADS, resolve
from ipulaunch.data_pipeline.records.files import SPLITS
from ipulaunch.data_pipeline.sources import cifar_files, mnist_files
from ipulaunch.data_pipeline.sources.selection import make_sources
from ipulaunch.data_pipeline.sources.source import Source, data_errors
from ipulaunch.data_pipeline.stream import validation_stream
from ipulaunch.data_pipeline.tools import make_images
from ipulaunch.topology import Batch
from ipulaunch.topology.networks import network_of

ALONE = plan_of(Batch(1, 1, 1))
MakeSet = Callable[[str], Path]


@pytest.fixture
def made(tmp_path: Path) -> MakeSet:
    """A small set of a workload, with 30 images to train on and 8 to validate on."""

    def make(kind: str) -> Path:
        options = {"samples": 30, "validation_samples": 8, "side": 48, "files": 2, "classes": 10, "boxes": False}
        make_images.run({**options, "seed": 0, "kind": kind, "out": str(tmp_path / kind)}, lambda event: None)
        return tmp_path / kind

    return make


def sources(workload: str, data_dir: Path, *settings: str) -> Dict[str, Source]:
    """What a rehearsal of this workload reads."""
    about = job(workload, f"data.directory={data_dir}", *settings)
    return make_sources(about, ALONE, 0, 2, meet=str, progress=lambda what, done, total: None)


def job(workload: str, *settings: str) -> Job:
    overrides = [assignment(setting, "--set") for setting in settings]
    return Job(workload, "cpu", resolve(workload, rehearsal=True, overrides=overrides).settings)


def first_images(source: Source) -> Any:
    images, *_ = next(iter(validation_stream(source, Batch(4, 1, 1), range(1), threads=1)))
    return images


@pytest.mark.parametrize(
    ("workload", "settings", "shape"),
    [
        ("imagenet", [], (32, 32, 3)),
        ("imagenet", ["data.side=40", "data.augment=false"], (40, 40, 3)),
        ("cifar10", [], (32, 32, 3)),
        ("mnist", [], (28, 28, 1)),
    ],
    ids=["imagenet", "imagenet of another side", "cifar10", "mnist"],
)
def test_a_set_has_images_of_the_side_that_is_asked_for(
    workload: str, settings: Any, shape: Any, made: MakeSet
) -> None:
    found = sources(workload, made(workload), "data.n_train=20", *settings)
    assert (found["train"].samples, found["validation"].samples) == (20, 8)
    for source in found.values():
        images = first_images(source)
        assert images.dtype == np.uint8 and images.shape == (4, *shape)


@pytest.mark.parametrize(
    ("workload", "setting", "said"),
    [
        ("cifar10", "data.side=64", "ask for 64 x 64 x 3 values, and the images of cifar10 have 32 x 32 x 3"),
        ("mnist", "data.side=32", "ask for 32 x 32 x 1 values, and the images of mnist have 28 x 28 x 1"),
        ("mnist", "data.channels=3", "ask for 28 x 28 x 3 values, and the images of mnist have 28 x 28 x 1"),
        ("imagenet", "data.channels=4", "ask for 32 x 32 x 4 values, and the images of imagenet have 32 x 32 x 3"),
    ],
)
def test_images_of_another_shape_are_refused(workload: str, setting: str, said: str, made: MakeSet) -> None:
    with pytest.raises(SettingsError, match=said):
        sources(workload, made(workload), setting, "data.mean=[0]", "data.std=[255]")


@pytest.mark.parametrize("workload", ["cifar10", "mnist"])
def test_labels_beyond_the_classes_are_refused(workload: str, made: MakeSet) -> None:
    data_dir = made(workload)
    with pytest.raises(DataError, match="labels go up to 9, expected 0 to 4") as caught:
        sources(workload, data_dir, "data.classes=5")
    assert caught.value.hint == "set data.classes to 10"
    assert sources(workload, data_dir, "data.classes=20")["train"].samples == 30


def test_labels_beyond_the_classes_are_refused_where_they_are_read(made: MakeSet) -> None:
    source = sources("imagenet", made("imagenet"), "data.classes=2")["validation"]
    with pytest.raises(DataError, match=r"label \d+, expected 1 to 2"), data_errors(source):
        list(validation_stream(source, Batch(4, 1, 1), range(1), threads=1))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_directory_without_the_set_is_told_what_it_should_hold(workload: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(str(tmp_path))) as caught:
        make_sources(job(workload, f"data.directory={tmp_path}"), ALONE, 0, 2, meet=str, progress=lambda *about: None)
    assert caught.value.hint == PUBLISHED_SETS[workload].hint


@pytest.mark.parametrize(
    ("workload", "versions"),
    [
        ("cifar10", functools.partial(cifar_files.versions, classes=10)),
        ("cifar100", functools.partial(cifar_files.versions, classes=100)),
        ("mnist", mnist_files.versions),
    ],
)
def test_the_files_that_are_told_are_those_that_are_read(workload: str, versions: Any) -> None:
    told = PUBLISHED_SETS[workload].files
    paths = [
        path
        for split in SPLITS
        for version in versions(Path(), split)
        for part in (version[0], version[-1])  # what is between them is told as "to"
        for path in part.files
    ]
    assert paths and all(word in told for path in paths for word in path.parts)


def test_another_cifar_is_not_taken_for_the_one_that_is_asked_for(made: MakeSet) -> None:
    with pytest.raises(DataError, match="there is no CIFAR-100 in"):
        sources("cifar100", made("cifar10"))


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("cosmoflow", []),
        ("cosmoflow", ["data.host_preprocess=true"]),
        ("cifar10", []),
        ("cifar10", ["data.host_preprocess=true"]),
        ("cifar10", ["data.eight_bit_transfer=false"]),
    ],
    ids=["volumes", "volumes from the host", "images", "images from the host", "images as floats"],
)
def test_samples_made_on_the_device_are_such_as_the_network_takes(workload: str, settings: Any) -> None:
    overrides = [assignment(setting, "--set") for setting in ("data.synthetic_data=ipu", *settings)]
    job = Job(workload, "cpu", resolve(workload, rehearsal=True, overrides=overrides).settings)
    source: Any = make_sources(job, ALONE, 0, 2, meet=str, progress=lambda what, done, total: None)["train"]
    inputs, _ = source.make(tf.constant([3, 4], tf.int64))
    taken = network_of(job.settings).layers[0].options
    assert inputs.dtype == taken["dtype"] and inputs.shape == (2, *job.settings.shape)
    assert (tf.reduce_max(tf.cast(inputs, tf.float32)) < 10) == job.settings.data.host_preprocess  # of 0 to 127
