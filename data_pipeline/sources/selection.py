"""Which samples a job trains on and which it validates on."""

from __future__ import annotations

import functools
from typing import Callable, Dict, Mapping, Tuple

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.data_pipeline.records.files import SPLITS
from ipulaunch.data_pipeline.sources.image_arrays import Cifar, ImageArrays, Mnist
from ipulaunch.data_pipeline.sources.image_decoding import CHANNELS
from ipulaunch.data_pipeline.sources.record_sources import Splits, record_sources
from ipulaunch.data_pipeline.sources.source import Meet, Progress, Source, Unread
from ipulaunch.data_pipeline.sources.synthetic import SyntheticCosmoflow, SyntheticImages, made_on_device
from ipulaunch.topology.planning.plan import Plan


def make_sources(
    job: Job, plan: Plan, instance: int, threads: int, *, meet: Meet, progress: Progress
) -> Dict[str, Source]:
    """The sources of both splits; `meet` waits for the other instances and returns what instance 0 passed.

    A job without training, or without validation, does not read that split: its source has no samples. `progress`
    gets "staging", in bytes, and "indexing", in files, about once a second.
    """
    job.settings.data.refuse_unused(job.workload)
    unread: Dict[str, Source] = {split: Unread() for split in SPLITS}
    return {**unread, **_sources(job, _splits(job), plan, instance, threads, meet, progress)}


def _splits(job: Job) -> Splits:
    """The splits that a job reads."""
    training = job.settings.training
    return [split for split, is_read in zip(SPLITS, (training.training, training.validation)) if is_read]


def _sources(
    job: Job, splits: Splits, plan: Plan, instance: int, threads: int, meet: Meet, progress: Progress
) -> Mapping[str, Source]:
    data, seed = job.settings.data, job.settings.training.seed
    if data.synthetic_data == "ipu":
        return {split: made_on_device(job.settings, split) for split in splits}
    if isinstance(data, CosmoflowData):
        if data.directory is None:
            return {split: SyntheticCosmoflow(data, split, seed) for split in splits}
        return record_sources(job, data.directory, splits, plan, instance, threads, meet, progress)
    if data.is_unnamed:
        raise DataError(
            f"{job.workload} needs {data.option}, or --synthetic-data cpu for synthetic samples",
            hint=PUBLISHED_SETS[job.workload].hint,
        )
    if data.directory is None:
        return {split: SyntheticImages(_images(job), split, seed) for split in splits}
    if job.workload == "imagenet":
        _check_shape(job, (data.side, data.side, CHANNELS))
        sources = record_sources(job, data.directory, splits, plan, instance, threads, meet, progress)
    else:
        sources = {split: _IN_MEMORY[job.workload](job, split) for split in splits}
    for split, source in sources.items():
        source.samples = min(data.n_train if split == "train" else data.n_valid, source.samples)
    return sources


def _images(job: Job) -> ImageData:
    """The data of a job that is on images."""
    assert isinstance(job.settings.data, ImageData)
    return job.settings.data


def _cifar(job: Job, split: str, *, classes: int) -> Source:
    data = _images(job)
    augment = data.augment and split == "train"
    source = Cifar(data.path, split, classes=classes, seed=job.settings.training.seed, augment=augment)
    return _fitting(job, source)


def _mnist(job: Job, split: str) -> Source:
    return _fitting(job, Mnist(job.settings.data.path, split))


def _fitting(job: Job, source: ImageArrays) -> Source:
    """The source, after a check that the network can take its images and labels."""
    _check_shape(job, source.inputs[1])
    data, last = _images(job), int(source.labels.max())
    if last >= data.classes:
        raise DataError(
            f"{data.directory}: labels go up to {last}, expected 0 to {data.classes - 1}",
            hint=f"set data.classes to {last + 1}",
        )
    return source


def _check_shape(job: Job, shape: Tuple[int, ...]) -> None:
    if job.settings.shape != shape:
        given, found = (" x ".join(map(str, each)) for each in (job.settings.shape, shape))
        raise SettingsError(
            f"data.side and data.channels ask for {given} values, and the images of {job.workload} have {found}",
            hint=f"set data.side to {shape[0]} and data.channels to {shape[-1]}, or leave both out",
        )


_IN_MEMORY: Dict[str, Callable[[Job, str], Source]] = {
    "cifar10": functools.partial(_cifar, classes=10),
    "cifar100": functools.partial(_cifar, classes=100),
    "mnist": _mnist,
}
