"""Sources that read record files: staged near the instances, indexed once per host, and the same for all."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Union

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.data_pipeline.parallel import throttled
from ipulaunch.data_pipeline.records.reader import UNPACKED_FILES
from ipulaunch.data_pipeline.sources import cosmoflow, imagenet
from ipulaunch.data_pipeline.sources.pixel_records import image_records
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.data_pipeline.staging import stage
from ipulaunch.topology.planning.plan import Plan

Files = Sequence[Path]
Splits = Sequence[str]
Meet = Callable[[str], str]
Progress = Callable[[str, int, int], object]  # (what, done, in all)
Records = Union[cosmoflow.CosmoflowRecords, imagenet.ImagenetRecords]


def record_sources(
    job: Job, directory: str, splits: Splits, plan: Plan, instance: int, threads: int, meet: Meet, progress: Progress
) -> Dict[str, Source]:
    """The records of these splits in a directory; with data.stage_dir, from copies there."""
    find, read = (imagenet.find_files, _imagenet) if job.workload == "imagenet" else (cosmoflow.find_files, _cosmoflow)
    files: Dict[str, Files] = {split: find(Path(directory), split) for split in splits}
    if job.settings.data.stage_dir is not None:
        files = _staged(files, Path(directory), Path(job.settings.data.stage_dir), plan, instance, progress)
        meet("staged")  # by the other instances of this host too
    return _indexed(functools.partial(read, job, files, threads), splits, plan, instance, meet, progress)


def reading_warnings(job: Job, source: Source) -> List[str]:
    """A warning if reading is slow, because nearly every sample unpacks its whole file again."""
    if not isinstance(source, (cosmoflow.CosmoflowRecords, imagenet.ImagenetRecords)):
        return []
    data, index = job.settings.data, source.index
    counts = np.diff(index.firsts)[index.packed]
    files, most = len(counts), int(counts.max()) if len(counts) else 0
    near = files if data.shuffle_block == 1 else min(files, data.shuffle_window)  # files that are read alternately
    if most <= 1 or near <= UNPACKED_FILES:
        return []
    return [
        f"{files} files packed with gzip hold up to {most} samples each, and a file can only be unpacked as a"
        f" whole: in this order nearly every sample unpacks one. Unpack them, or keep neighbours together: --set"
        f" data.shuffle_block={most} --set data.shuffle_window={UNPACKED_FILES // 2}"
    ]


def _staged(
    files: Dict[str, Files], directory: Path, stage_dir: Path, plan: Plan, instance: int, progress: Progress
) -> Dict[str, Files]:
    staged = stage(
        [file for found in files.values() for file in found],
        directory,
        stage_dir,
        index=plan.placements[instance].local_index,
        instances=plan.neighbours_of(instance),
        progress=throttled(functools.partial(progress, "staging")),
    )
    copies = iter(staged)
    return {split: list(itertools.islice(copies, len(found))) for split, found in files.items()}


def _indexed(
    read: Callable[..., Records], splits: Splits, plan: Plan, instance: int, meet: Meet, progress: Progress
) -> Dict[str, Source]:
    """The first instance of each host builds the index, if there is none; the others find it."""
    sources: Dict[str, Source] = {}
    for turn in (True, False):
        if (plan.placements[instance].local_index == 0) is turn:
            for split in splits:
                source = read(split, progress=throttled(functools.partial(progress, "indexing")))
                if instance == 0:  # all instances see the same defects of files; one reports them
                    source.bad.update({-1 - number: defect for number, defect in enumerate(source.index.defects)})
                sources[split] = source
        if turn:
            meet("indexed")
    found = " and ".join(str(sources[split].samples) for split in splits)
    first = meet(found)
    if first != found:  # the instances would fall out of step
        raise DataError(
            f"instance {instance} finds {found} samples, instance 0 finds {first}",
            hint="the files must be the same on all hosts; ipulaunch data verify finds damaged ones",
        )
    return sources


def _cosmoflow(job: Job, files: Dict[str, Files], threads: int, split: str, **more: Any) -> cosmoflow.CosmoflowRecords:
    data = job.settings.data
    assert isinstance(data, CosmoflowData)
    return cosmoflow.CosmoflowRecords(data, split, files=files[split], threads=threads, **more)


def _imagenet(job: Job, files: Dict[str, Files], threads: int, split: str, **more: Any) -> imagenet.ImagenetRecords:
    data = job.settings.data
    assert isinstance(data, ImageData)
    return image_records(
        data.path, split, files=files[split], seed=job.settings.training.seed,
        augment=data.augment and split == "train", threads=threads, side=data.side, classes=data.classes,
        replaces_bad=data.bad_records == "skip", **more,
    )  # fmt: skip
