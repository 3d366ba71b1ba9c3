"""Which samples a job trains on and which it validates on."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.data_pipeline.records.files import SPLITS
from ipulaunch.data_pipeline.records.reader import UNPACKED_FILES
from ipulaunch.data_pipeline.sources import cosmoflow, imagenet
from ipulaunch.data_pipeline.sources.cifar import Cifar
from ipulaunch.data_pipeline.sources.cosmoflow import CosmoflowRecords
from ipulaunch.data_pipeline.sources.image_arrays import ImageArrays
from ipulaunch.data_pipeline.sources.imagenet import ImagenetRecords
from ipulaunch.data_pipeline.sources.mnist import Mnist
from ipulaunch.data_pipeline.sources.normalise import conversion
from ipulaunch.data_pipeline.sources.source import Source, Unread
from ipulaunch.data_pipeline.sources.synthetic import MadeOnDevice, SyntheticCosmoflow, SyntheticImages
from ipulaunch.data_pipeline.staging import stage
from ipulaunch.data_pipeline.throttled import now_and_then
from ipulaunch.topology.planning.popdist import Place

Files = Sequence[Path]
Splits = Sequence[str]
Meet = Callable[[str], str]
Progress = Callable[[str, int, int], object]  # (what, done, in all)


def make_sources(job: Job, place: Place, threads: int, *, meet: Meet, progress: Progress) -> Dict[str, Source]:
    """The sources of both splits; `meet` waits for the others and gives what instance 0 gave.

    Without training, or without validation, that split is not looked at: it has no samples then. `progress` hears now
    and then of "staging", in bytes, and of "indexing", in files.
    """
    job.settings.data.refuse_unused(job.workload)
    unread: Dict[str, Source] = {split: Unread() for split in SPLITS}
    return {**unread, **_sources(job, _splits(job), place, threads, meet, progress)}


def reading_warnings(job: Job, source: Source) -> List[str]:
    """What makes reading slow: packed files that are unpacked again for nearly every one of their samples."""
    if not isinstance(source, (CosmoflowRecords, ImagenetRecords)):
        return []
    data, index = job.settings.data, source.index
    counts = np.diff(index.firsts)[index.packed]
    files, most = len(counts), int(counts.max()) if len(counts) else 0
    near = files if data.shuffle_block == 1 else min(files, data.shuffle_window)  # files that are read in turn
    if most <= 1 or near <= UNPACKED_FILES:
        return []
    return [
        f"{files} files packed with gzip hold up to {most} samples each, and of a file nothing can be read but the"
        f" whole: in this order nearly every sample unpacks one. Unpack them, or keep neighbours together: --set"
        f" data.shuffle_block={most} --set data.shuffle_window={UNPACKED_FILES // 2}"
    ]


def _splits(job: Job) -> Splits:
    """The splits that a job reads."""
    training = job.settings.training
    return [split for split, is_read in zip(SPLITS, (training.training, training.validation)) if is_read]


def _sources(
    job: Job, splits: Splits, place: Place, threads: int, meet: Meet, progress: Progress
) -> Mapping[str, Source]:
    data, seed = job.settings.data, job.settings.training.seed
    if data.synthetic_data == "ipu":
        return {split: _made_on_device(job, split) for split in splits}
    if isinstance(data, CosmoflowData):
        if data.directory is None:
            return {split: SyntheticCosmoflow(data, split, seed) for split in splits}
        files = _files(cosmoflow.find_files, data.directory, data.stage_dir, splits, place, meet, progress)
        return _indexed(functools.partial(_cosmoflow, data, files, threads), splits, place, meet, progress)
    if data.is_unnamed:
        raise DataError(
            f"{job.workload} needs {data.option}, or --synthetic-data cpu for synthetic ones",
            hint=PUBLISHED_SETS[job.workload].hint,
        )
    if data.directory is None:
        return {split: SyntheticImages(_images(job), split, seed) for split in splits}
    if job.workload == "imagenet":
        files = _files(imagenet.find_files, data.directory, data.stage_dir, splits, place, meet, progress)
        sources = _indexed(functools.partial(_imagenet, job, files, threads), splits, place, meet, progress)
    else:
        sources = {split: _IN_MEMORY[job.workload](job, split) for split in splits}
    for split, source in sources.items():
        source.samples = min(data.n_train if split == "train" else data.n_valid, source.samples)
    return sources


def _files(
    find: Callable[[Path, str], Files],
    directory: str,
    stage_dir: Optional[str],
    splits: Splits,
    place: Place,
    meet: Meet,
    progress: Progress,
) -> Dict[str, Files]:
    """The record files of these splits; with a stage_dir, their copies there."""
    files = {split: find(Path(directory), split) for split in splits}
    if stage_dir is None:
        return files
    staged = stage(
        [file for found in files.values() for file in found],
        Path(directory),
        Path(stage_dir),
        index=place.local_index,
        instances=place.local_instances,
        progress=now_and_then(functools.partial(progress, "staging")),
    )
    meet("staged")  # by the other instances of this host too
    copies = iter(staged)
    return {split: list(itertools.islice(copies, len(found))) for split, found in files.items()}


def _indexed(
    read: Callable[..., Union[CosmoflowRecords, ImagenetRecords]],
    splits: Splits,
    place: Place,
    meet: Meet,
    progress: Progress,
) -> Dict[str, Source]:
    """The first instance of each host builds the index, if there is none; the others find it."""
    sources: Dict[str, Source] = {}
    for turn in (True, False):
        if (place.local_index == 0) is turn:
            for split in splits:
                source = read(split, progress=now_and_then(functools.partial(progress, "indexing")))
                if place.instance == 0:  # defects of files are the same for all, and are counted once
                    source.bad.update({-1 - number: defect for number, defect in enumerate(source.index.defects)})
                sources[split] = source
        if turn:
            meet("indexed")
    found = " and ".join(str(sources[split].samples) for split in splits)
    first = meet(found)
    if first != found:  # they would fall out of step
        raise DataError(
            f"instance {place.instance} finds {found} samples, instance 0 finds {first}",
            hint="the files must be the same on all hosts; ipulaunch data verify finds damaged ones",
        )
    return sources


def _cosmoflow(data: CosmoflowData, files: Dict[str, Files], threads: int, split: str, **more: Any) -> CosmoflowRecords:
    return CosmoflowRecords(data, split, files=files[split], threads=threads, **more)


def _images(job: Job) -> ImageData:
    """The data of a job that is on images."""
    assert isinstance(job.settings.data, ImageData)
    return job.settings.data


def _imagenet(job: Job, files: Dict[str, Files], threads: int, split: str, **more: Any) -> ImagenetRecords:
    data = _images(job)
    _check_shape(job, (data.side, data.side, imagenet.CHANNELS))
    return ImagenetRecords(
        data.path, split, files=files[split], seed=job.settings.training.seed,
        augment=data.augment and split == "train", threads=threads, side=data.side, classes=data.classes,
        replaces_bad=data.bad_records == "skip", **more,
    )  # fmt: skip


def _cifar(job: Job, split: str, *, classes: int) -> Source:
    data = _images(job)
    augment = data.augment and split == "train"
    source = Cifar(data.path, split, classes=classes, seed=job.settings.training.seed, augment=augment)
    return _fitting(job, source)


def _mnist(job: Job, split: str) -> Source:
    return _fitting(job, Mnist(job.settings.data.path, split))


def _fitting(job: Job, source: ImageArrays) -> Source:
    """The source, whose images and labels must be such as the network takes."""
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
        asked, found = (" x ".join(map(str, each)) for each in (job.settings.shape, shape))
        raise SettingsError(
            f"data.side and data.channels ask for {asked} values, and the images of {job.workload} have {found}",
            hint=f"set data.side to {shape[0]} and data.channels to {shape[-1]}, or leave both out",
        )


_IN_MEMORY: Dict[str, Callable[[Job, str], Source]] = {
    "cifar10": functools.partial(_cifar, classes=10),
    "cifar100": functools.partial(_cifar, classes=100),
    "mnist": _mnist,
}


def _made_on_device(job: Job, split: str) -> MadeOnDevice:
    settings = job.settings
    data, seed = settings.data, settings.training.seed
    samples = data.n_train if split == "train" else data.n_valid
    more: Dict[str, Any] = {"key": 2 * seed + SPLITS.index(split), "convert": conversion(data)}
    if isinstance(data, CosmoflowData):
        return MadeOnDevice(samples, (np.int16, settings.shape), (np.float32, (data.targets,)), **more)
    return MadeOnDevice(samples, (np.uint8, settings.shape), (np.int32, ()), classes=_images(job).classes, **more)
