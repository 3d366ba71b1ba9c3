"""Which samples a job trains on and which it validates on."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Callable, Dict, Tuple

import numpy as np

from ipulaunch.configs.cosmoflow import CosmoflowData
from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.job import Job
from ipulaunch.data_pipeline.cifar import Cifar
from ipulaunch.data_pipeline.cosmoflow import CosmoflowRecords, find_files
from ipulaunch.data_pipeline.image_arrays import ImageArrays
from ipulaunch.data_pipeline.imagenet import CHANNELS, ImagenetRecords
from ipulaunch.data_pipeline.mnist import Mnist
from ipulaunch.data_pipeline.source import Source
from ipulaunch.data_pipeline.staging import stage
from ipulaunch.data_pipeline.synthetic import MadeOnDevice, SyntheticCosmoflow, SyntheticImages
from ipulaunch.topology.popdist import Place

_WHERE_SETS_COME_FROM = "see docs/data.md for the files of the published set; ipulaunch data make writes a small one"


def make_sources(
    job: Job, place: Place, threads: int, *, meet: Callable[[str], object], progress: Callable[[int, int], None]
) -> Dict[str, Source]:
    """The sources of both splits; `meet` waits for the other instances, `progress` hears of files being staged."""
    data, seed = job.settings.data, job.settings.training.seed
    splits = ("train", "validation")
    if data.synthetic_data == "ipu":
        return {split: _made_on_device(job, split) for split in splits}
    if isinstance(data, CosmoflowData):
        if data.data_dir is None:
            return {split: SyntheticCosmoflow(data, split, seed) for split in splits}
        if data.stage_dir is not None:
            _stage(Path(data.data_dir), Path(data.stage_dir), place, progress)
            meet("staged")  # by the other instances of this host too
            data = dataclasses.replace(data, data_dir=data.stage_dir)
        return _indexed(lambda split: CosmoflowRecords(data, split, threads=threads), place, meet)
    if data.dataset_path is None:
        if data.synthetic_data is None:
            raise DataError(
                f"{job.workload} needs --dataset-path, or --synthetic-data cpu for made-up images",
                hint=_WHERE_SETS_COME_FROM,
            )
        return {split: SyntheticImages(data, split, seed) for split in splits}
    read = _READERS[job.workload]
    sources = _indexed(lambda split: read(job, split, threads), place, meet)
    for split, most in zip(splits, (data.n_train, data.n_valid)):
        sources[split].samples = min(most, sources[split].samples)
    return sources


def _indexed(read: Callable[[str], Source], place: Place, meet: Callable[[str], object]) -> Dict[str, Source]:
    """The first instance of each host builds the index, if there is none; the others find it."""
    sources: Dict[str, Source] = {}
    for turn in (True, False):
        if (place.local_index == 0) is turn:
            sources = {split: read(split) for split in ("train", "validation")}
        if turn:
            meet("indexed")
    return sources


def _imagenet(job: Job, split: str, threads: int) -> Source:
    data = job.settings.data
    _check_shape(job, (data.side, data.side, CHANNELS))
    augment = data.augment and split == "train"
    source = ImagenetRecords(
        Path(data.dataset_path), split, seed=job.settings.training.seed, augment=augment, threads=threads,
        side=data.side, classes=data.classes,
    )  # fmt: skip
    source.replaces_bad = data.bad_records == "skip"
    return source


def _cifar(job: Job, split: str, threads: int, *, classes: int) -> Source:
    data = job.settings.data
    augment = data.augment and split == "train"
    source = Cifar(Path(data.dataset_path), split, classes=classes, seed=job.settings.training.seed, augment=augment)
    return _fitting(job, source)


def _mnist(job: Job, split: str, threads: int) -> Source:
    return _fitting(job, Mnist(Path(job.settings.data.dataset_path), split))


def _fitting(job: Job, source: ImageArrays) -> Source:
    """The source, whose images and labels must be such as the network takes."""
    _check_shape(job, source.inputs[1])
    data, last = job.settings.data, int(source.labels.max())
    if last >= data.classes:
        raise DataError(
            f"{data.dataset_path}: labels go up to {last}, expected 0 to {data.classes - 1}",
            hint=f"set data.classes to {last + 1}",
        )
    return source


def _check_shape(job: Job, shape: Tuple[int, ...]) -> None:
    if job.settings.shape != shape:
        asked, found = (" x ".join(map(str, each)) for each in (job.settings.shape, shape))
        raise SettingsError(
            f"data.side and data.channels ask for {asked} values, and the images of {job.workload} have {found}",
            hint=f"set data.side to {shape[0]} and data.channels to {shape[-1]}, or leave both out",
        )


_READERS: Dict[str, Callable[[Job, str, int], Source]] = {
    "imagenet": _imagenet,
    "cifar10": functools.partial(_cifar, classes=10),
    "cifar100": functools.partial(_cifar, classes=100),
    "mnist": _mnist,
}


def _made_on_device(job: Job, split: str) -> MadeOnDevice:
    settings = job.settings
    data, seed = settings.data, settings.training.seed
    samples = data.n_train if split == "train" else data.n_valid
    key = 2 * seed + (split == "validation")
    if isinstance(data, CosmoflowData):
        return MadeOnDevice(samples, (np.int16, settings.shape), (np.float32, (data.targets,)), key=key)
    return MadeOnDevice(samples, (np.uint8, settings.shape), (np.int32, ()), key=key, classes=data.classes)


def _stage(source: Path, target: Path, place: Place, progress: Callable[[int, int], None]) -> None:
    files = [file for split in ("train", "validation") for file in find_files(source, split)]
    stage(files, source, target, index=place.local_index, instances=place.local_instances, progress=progress)
