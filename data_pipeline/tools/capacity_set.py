"""The set that a capacity is measured with: a part of the user's own, or a small one in the same form."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, List, NamedTuple, Sequence

from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.data_pipeline.parallel import Report, cores
from ipulaunch.data_pipeline.records.pixels import FORMAT
from ipulaunch.data_pipeline.sources import cosmoflow, imagenet
from ipulaunch.data_pipeline.sources.pixel_records import first_head, image_records
from ipulaunch.data_pipeline.tools import build_imagenet, make_cosmoflow, make_images
from ipulaunch.topology.capacity.forms import GZIP, JPEG, PIXELS, RECORDS, SMALL_JPEG

_VOLUMES, _PICTURES = 8, 48  # that are made
_MOST_BYTES, _MOST_FILES = 1 << 29, 64  # of a set that are looked at
_ENOUGH = 1024  # samples of an epoch, as starting one takes time too


class Found(NamedTuple):
    """A set to measure with."""

    source: Any
    files: Sequence[Path]
    form: str
    stored_bytes: float  # of a sample


def open_set(job: Job, form: str, is_made: bool, directory: Path, report: Report) -> Found:
    """The samples of a job, or of a set that is made; links and indexes go to the directory, never beside the set."""
    if is_made:
        _make(job, form, directory / "set", report)
    data = job.settings.data
    place = directory / "set" if is_made else data.path
    find = cosmoflow.find_files if isinstance(data, CosmoflowData) else imagenet.find_files
    files = _some(find(place, "train"))
    found = _open(job, files, directory / "once")
    size = sum(path.stat().st_size for path in files) / found.samples
    repeated = _open(job, files * max(1, -(-_ENOUGH // found.samples)), directory / "links")
    return Found(repeated, files, _form(found, files), size)


def _some(files: Sequence[Path]) -> List[Path]:
    """Some files of a set, from all over it."""
    step = max(1, len(files) // _MOST_FILES)
    chosen: List[Path] = []
    size = 0
    for path in files[::step]:
        size += path.stat().st_size
        if chosen and size > _MOST_BYTES:
            break
        chosen.append(path)
    return chosen


def _open(job: Job, files: Sequence[Path], directory: Path) -> Any:
    """A source of these files, under other names."""
    directory.mkdir()
    links = [directory / f"{number:05}-{path.name}" for number, path in enumerate(files)]
    for link, path in zip(links, files):
        link.symlink_to(path.resolve())
    data, threads = job.settings.data, cores()
    if isinstance(data, CosmoflowData):
        data = dataclasses.replace(data, n_train=1 << 40)
        return cosmoflow.CosmoflowRecords(data, "train", threads=threads, files=links)
    assert isinstance(data, ImageData)
    return image_records(
        directory, "train", files=links, seed=0, augment=True, threads=threads, side=data.side, classes=data.classes
    )


def _form(source: Any, files: Sequence[Path]) -> str:
    if isinstance(source, cosmoflow.CosmoflowRecords):
        return GZIP if bool(source.index.packed.any()) else RECORDS
    if first_head(files).form == FORMAT:
        return PIXELS
    return SMALL_JPEG if source.preparation else JPEG


def _make(job: Job, form: str, directory: Path, report: Report) -> None:
    data = job.settings.data
    if isinstance(data, CosmoflowData):
        options = {"out": str(directory), "samples": _VOLUMES, "validation_samples": 1, "seed": 0}
        make_cosmoflow.run({**options, "side": data.side, "samples_per_file": 1, "gzip": form == GZIP}, report)
        return
    published = directory if form == JPEG else directory.parent / "published"
    pictures = {
        "samples": _PICTURES,
        "validation_samples": 1,
        "seed": 0,
        "side": 500,
        "files": 4,
        "classes": 10,
        "boxes": False,
    }
    make_images.run({"kind": "imagenet", "out": str(published), **pictures}, report)
    if form != JPEG:
        prepared = {"records": str(published), "out": str(directory), "shorter_side": 256, "pixels": form == PIXELS}
        others = dict.fromkeys(("raw", "longest_side", "quality", "validation_labels", "workers", "shards"))
        build_imagenet.run({**others, **prepared}, report)
