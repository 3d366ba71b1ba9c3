"""The sources of CosmoFlow and ImageNet, which read record files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Dict, Iterable, List

import numpy as np

from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.data_pipeline.records.reader import UNPACKED_FILES
from ipulaunch.data_pipeline.sources import cosmoflow, imagenet
from ipulaunch.data_pipeline.sources.imagenet_contents import PictureContents
from ipulaunch.data_pipeline.sources.pixel_records import image_records
from ipulaunch.data_pipeline.sources.prepared_files import Files, Position, indexed, shared, staged
from ipulaunch.data_pipeline.sources.source import Meet, Progress, Source
from ipulaunch.topology.planning.plan import Plan

Splits = Iterable[str]


def record_sources(
    job: Job, directory: str, splits: Splits, plan: Plan, instance: int, threads: int, meet: Meet, progress: Progress
) -> Dict[str, Source]:
    """The records of these splits in a directory; with data.stage_dir, from copies there, of all or of a share."""
    find, kind = (imagenet.find_files, _imagenet) if job.workload == "imagenet" else (cosmoflow.find_files, _cosmoflow)
    files: Dict[str, Files] = {split: find(Path(directory), split) for split in splits}
    read, position = functools.partial(kind, job, threads), Position(plan, instance, threads, meet, progress)
    if job.settings.data.stage_shard:
        contents = PictureContents() if job.workload == "imagenet" else None
        return shared(read, files, job, position, contents)
    if job.settings.data.stage_dir is not None:
        files = staged(files, job, position)
    return indexed(read, files, position)


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


def _cosmoflow(job: Job, threads: int, split: str, files: Files, **more: Any) -> cosmoflow.CosmoflowRecords:
    data = job.settings.data
    assert isinstance(data, CosmoflowData)
    return cosmoflow.CosmoflowRecords(data, split, files=files, threads=threads, **more)


def _imagenet(job: Job, threads: int, split: str, files: Files, **more: Any) -> imagenet.ImagenetRecords:
    data = job.settings.data
    assert isinstance(data, ImageData)
    return image_records(
        data.path, split, files=files, seed=job.settings.training.seed,
        augment=data.augment and split == "train", threads=threads, side=data.side, classes=data.classes,
        replaces_bad=data.bad_records == "skip", **more,
    )  # fmt: skip
