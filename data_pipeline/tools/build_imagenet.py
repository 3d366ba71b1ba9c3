"""Turns ImageNet's raw images, or those of record files, into TFRecord files; continues an interrupted build."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.configs.runs.directory import made_whole
from ipulaunch.configs.text import counted, duration
from ipulaunch.data_pipeline.parallel import Progress, Report, cores, in_order
from ipulaunch.data_pipeline.records.tfrecord import FOOTER, HEADER, scan
from ipulaunch.data_pipeline.tools.build_images import Images
from ipulaunch.data_pipeline.tools.build_state import BuildState
from ipulaunch.data_pipeline.tools.new_set import locked, write_records
from ipulaunch.data_pipeline.tools.preparation import Preparation, preparation_of
from ipulaunch.data_pipeline.tools.raw_images import raw_images
from ipulaunch.data_pipeline.tools.record_images import record_images
from ipulaunch.data_pipeline.tools.verify import check_file

_IMAGES_PER_SHARD = 1251  # as in the published set: 1,281,167 images in 1024 files
_TRIED = 48  # images, for an estimate


class _Shard(NamedTuple):
    path: Path
    images: Images
    numbers: range


class _Build(NamedTuple):
    """What is the same for all files."""

    preparation: Preparation
    tolerant: bool  # leave damaged images out
    state: BuildState
    progress: Progress


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Write all shards that are not there yet, after an estimate of their size and of the time."""
    out, preparation = Path(options["out"]), preparation_of(options)
    threads, tolerant = options["workers"] or cores(), options.get("bad_records") == "skip"
    images = _images_of(options, preparation, report)
    shards = _shards(out, images, options["shards"])
    out.mkdir(parents=True, exist_ok=True)
    busy = UsageError(f"another process is building a set in {out}", hint="wait for its end")
    with locked(out, busy):
        state = BuildState(out, images, len(shards.get("train", ())), preparation)
        everything = [shard for part in shards.values() for shard in part]
        waiting = [shard for shard in everything if not _is_whole(shard, state)]
        report({"event": "note", "text": _estimate(out, waiting, preparation, threads, tolerant)})
        progress = Progress(report, "images", sum(len(shard.numbers) for shard in waiting))
        build = _Build(preparation, tolerant, state, progress)
        converted = sum(in_order(lambda shard: _write_shard(shard, build), waiting, threads, progress))
    defects = [defect.message for part in images.values() for defect in part.defects]
    left_out = [message for shard in everything for message in state.left_out.get(shard.path.name, ())]
    return {
        "out": str(out),
        "images": {split: _written(part, state) for split, part in shards.items()},
        "classes": images["train"].classes if "train" in images else None,
        "shards": {split: len(part) for split, part in shards.items()},
        "kept": len(everything) - len(waiting),
        "converted": converted,
        "left_out": left_out,
        "damaged_files": defects,
        "preparation": preparation.text,
        "bytes": sum(shard.path.stat().st_size for shard in everything),
    }


def _images_of(options: Mapping[str, Any], preparation: Preparation, report: Report) -> Mapping[str, Images]:
    """The images that the options name, by split."""
    raw, records, labels = options.get("raw"), options.get("records"), options["validation_labels"]
    if raw is not None and records is None:
        return raw_images(Path(raw), Path(labels) if labels else None)
    if raw is not None or records is None:
        raise UsageError("a build needs either --raw or --records", hint="give one of them")
    if labels is not None:
        raise UsageError("--validation-labels is for --raw: records have labels of their own", hint="leave it out")
    if preparation == Preparation() and options["shards"] is None:
        raise UsageError(f"nothing would change in {records}", hint="give --shorter-side, --pixels or --shards")
    return record_images(Path(records), report, tolerant=options.get("bad_records") == "skip")


def _shards(out: Path, images: Mapping[str, Images], files_wanted: Optional[int]) -> Dict[str, List[_Shard]]:
    """The new files of each split: as many as asked for, or as many as the set has that is prepared."""
    shards = {}
    for split, part in images.items():
        files = files_wanted or -(-part.count // _IMAGES_PER_SHARD)
        if files_wanted and split == "validation":
            files = max(1, files_wanted // 8)  # as published
        edges = [part.count * number // files for number in range(files + 1)]
        if part.edges is not None and not files_wanted:
            edges, files = part.edges, len(part.edges) - 1
        shards[split] = [
            _Shard(out / f"{split}-{number:05}-of-{files:05}", part, range(edges[number], edges[number + 1]))
            for number in range(files)
        ]
    return shards


def _is_whole(shard: _Shard, state: BuildState) -> bool:
    """Whether a file is there with all its records: a machine that lost power may have kept its name alone."""
    if not shard.path.is_file():
        return False
    found = scan(shard.path)
    return found.defect is None and len(found.offsets) == _written([shard], state)


def _written(shards: Sequence[_Shard], state: BuildState) -> int:
    """How many images these files have."""
    return sum(len(shard.numbers) - len(state.left_out.get(shard.path.name, ())) for shard in shards)


def _estimate(out: Path, waiting: Sequence[_Shard], preparation: Preparation, threads: int, tolerant: bool) -> str:
    """The size and the time that some of the images promise for all; an error if the disk cannot take that."""
    count = sum(len(shard.numbers) for shard in waiting)
    if not count:
        return "all files are there"
    makers = {images: images.maker(preparation) for images in {shard.images for shard in waiting}}
    every = ((makers[shard.images], number) for shard in waiting for number in shard.numbers)
    sizes, tried, start = [], 0, time.perf_counter()
    for make, number in itertools.islice(every, 0, None, -(-count // _TRIED)):
        tried += 1
        with contextlib.suppress(*[DataError] * tolerant):
            sizes.append(len(make(number).data) + HEADER + FOOTER)
    if not sizes:
        raise DataError(f"none of {counted(tried, 'image')} that were tried can be used", hint="is it the right set?")
    seconds = (time.perf_counter() - start) / tried * count / threads
    size, free = sum(sizes) / tried * count, shutil.disk_usage(out).free
    if size > free:
        raise DataError(
            f"{count} images take about {size / 1e9:.1f} GB in {out}, which has {free / 1e9:.1f} GB to spare",
            hint="give --out a directory on a larger disk, or choose a smaller --shorter-side; --pixels take most",
        )
    return (
        f"{count} images in {counted(len(waiting), 'file')}: about {size / 1e9:.3g} GB and"
        f" {duration(seconds)} with {counted(threads, 'thread')}; {out} has {free / 1e9:.1f} GB to spare"
    )


def _write_shard(shard: _Shard, build: _Build) -> int:
    """Write one file of records, and read it back; returns how many images were converted."""
    make, converted = shard.images.maker(build.preparation), 0
    left_out: List[str] = []

    def records() -> Iterator[bytes]:
        nonlocal converted
        for number in shard.numbers:
            try:
                data, is_new = make(number)
            except DataError as error:
                if not build.tolerant:
                    raise
                left_out.append(error.message)
            else:
                converted += is_new
                yield data
            build.progress.add()

    with made_whole(shard.path) as temporary:
        write_records(temporary, records())
        if left_out and len(left_out) == len(shard.numbers):  # rather a disk that fails than as many bad images
            raise DataError(
                f"none of the {len(left_out)} images of {shard.path.name} can be used; the first: {left_out[0]}",
                hint="check the disk that they are read from",
            )
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        checked, expected = check_file("imagenet", "", temporary, build.progress), len(shard.numbers) - len(left_out)
        if checked.defects or checked.records != expected:
            found = checked.defects[0][1] if checked.defects else f"{checked.records} of {expected} records"
            raise DataError(f"{shard.path} is not as it was written: {found}", hint="check that disk")
        build.state.leave_out(shard.path.name, left_out)
    return converted
