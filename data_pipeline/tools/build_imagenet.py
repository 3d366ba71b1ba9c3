"""Turns ImageNet's raw images into TFRecord files of the published form; continues an interrupted build."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.configs.runs.directory import made_whole, write_whole
from ipulaunch.configs.text import counted, duration
from ipulaunch.data_pipeline.parallel import Progress, Report, cores, in_order
from ipulaunch.data_pipeline.records.tfrecord import scan
from ipulaunch.data_pipeline.tools.new_set import encode_example, locked, write_records
from ipulaunch.data_pipeline.tools.preparation import Preparation, preparation_of
from ipulaunch.data_pipeline.tools.raw_images import RawImage, list_images
from ipulaunch.data_pipeline.tools.verify import check_file

_IMAGES_PER_SHARD = 1251  # as in the published set: 1,281,167 images in 1024 files
_STATE = ".ipulaunch-build.json"
_TRIED = 48  # images, for an estimate
_BESIDE = 300  # bytes of a record that are not its image


class _Shard(NamedTuple):
    path: Path
    images: List[RawImage]


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Write all shards that are not there yet, after an estimate of their size and of the time."""
    out, preparation = Path(options["out"]), preparation_of(options)
    labels, threads = options["validation_labels"], options["workers"] or cores()
    images = list_images(Path(options["raw"]), Path(labels) if labels else None)
    shards = _shards(out, images, options["shards"])
    out.mkdir(parents=True, exist_ok=True)
    busy = UsageError(f"another process is building a set in {out}", hint="wait for its end")
    with locked(out, busy):
        _claim(out, images, len(shards["train"]), preparation)
        everything = [shard for part in shards.values() for shard in part]
        waiting = [shard for shard in everything if not _is_whole(shard)]
        report({"event": "note", "text": _estimate(out, waiting, preparation, threads)})
        progress = Progress(report, "images", sum(len(shard.images) for shard in waiting))

        def write(shard: _Shard) -> int:
            return _write_shard(shard, preparation, progress)

        converted = sum(in_order(write, waiting, threads, progress))
    return {
        "out": str(out),
        "images": {split: len(part) for split, part in images.items()},
        "classes": max(image.label for image in images["train"]) if images["train"] else 0,
        "shards": {split: len(part) for split, part in shards.items()},
        "kept": len(everything) - len(waiting),
        "converted": converted,
        "preparation": preparation.text,
        "bytes": sum(shard.path.stat().st_size for shard in everything),
    }


def _is_whole(shard: _Shard) -> bool:
    """Whether a file is there with all its records: a machine that lost power may have kept its name alone."""
    if not shard.path.is_file():
        return False
    found = scan(shard.path)
    return found.defect is None and len(found.offsets) == len(shard.images)


def _estimate(out: Path, waiting: Sequence[_Shard], preparation: Preparation, threads: int) -> str:
    """The size and the time that some of the images promise for all; an error if the disk cannot take that."""
    images = [image for shard in waiting for image in shard.images]
    if not images:
        return "all files are there"
    tried = images[:: -(-len(images) // _TRIED)]
    start = time.perf_counter()
    size = sum(len(preparation.apply(image.file).encoded) + _BESIDE for image in tried) / len(tried) * len(images)
    seconds = (time.perf_counter() - start) / len(tried) * len(images) / threads
    free = shutil.disk_usage(out).free
    if size > free:
        raise DataError(
            f"{len(images)} images take about {size / 1e9:.1f} GB in {out}, which has {free / 1e9:.1f} GB to spare",
            hint="give --out a directory on a larger disk, or choose a smaller --shorter-side; --pixels take most",
        )
    return (
        f"{len(images)} images in {counted(len(waiting), 'file')}: about {size / 1e9:.3g} GB and"
        f" {duration(seconds)} with {counted(threads, 'thread')}; {out} has {free / 1e9:.1f} GB to spare"
    )


def _shards(out: Path, images: Dict[str, List[RawImage]], asked: Optional[int]) -> Dict[str, List[_Shard]]:
    shards = {}
    for split, part in images.items():
        if not part:
            raise DataError(f"there are no images for {split}")
        files = asked or -(-len(part) // _IMAGES_PER_SHARD)
        if asked and split == "validation":
            files = max(1, asked // 8)  # as published
        edges = [len(part) * number // files for number in range(files + 1)]
        shards[split] = [
            _Shard(out / f"{split}-{number:05}-of-{files:05}", part[edges[number] : edges[number + 1]])
            for number in range(files)
        ]
    return shards


def _claim(out: Path, images: Dict[str, List[RawImage]], shards: int, preparation: Preparation) -> None:
    """Refuse an `out` that was begun with other images or options; remove what a killed build left half-written."""
    names = [f"{split} {image.label} {image.file.name}" for split, part in images.items() for image in part]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    state = {"images": digest, "shards": shards, **preparation.state}
    place = out / _STATE
    if not place.exists():
        if next(out.iterdir(), None) is not None:
            raise UsageError(f"{out} exists and is not an empty directory", hint="give --out a new directory")
        write_whole(place, json.dumps({**state, "count": len(names)}, indent=1) + "\n")
        return
    try:
        before = json.loads(place.read_text(encoding="utf-8"))
    except ValueError:
        before = {}
    changed = [name.replace("_", " ") for name, value in state.items() if before.get(name) != value]
    if changed:
        hint = "give the same options to continue it, or --out another directory"
        if "images" in changed:
            changed[0] += _difference(before.get("count"), len(names))
            hint = "to continue it, put back what is missing and remove what was added, or give --out a new directory"
        raise UsageError(f"{out} holds a build that was begun with other {' and '.join(changed)}", hint=hint)
    for leftover in out.glob(".*-*-of-*.*"):
        leftover.unlink()


def _difference(before: Any, now: int) -> str:
    """How many images there are now, compared with before, if that is known."""
    if not isinstance(before, int):
        return ""
    if before == now:
        return f" (there are still {now}, with other names or classes)"
    return f" (there are {now} now, {abs(now - before)} {'fewer' if now < before else 'more'})"


def _write_shard(shard: _Shard, preparation: Preparation, progress: Progress) -> int:
    """Write one file of records, and read it back; returns how many images were converted."""
    converted = 0

    def records() -> Iterator[bytes]:
        nonlocal converted
        for image in shard.images:
            encoded, header, is_new = preparation.apply(image.file)
            converted += is_new
            yield encode_example(
                {
                    "image/height": [header.height],
                    "image/width": [header.width],
                    "image/colorspace": "RGB",
                    "image/channels": [3],
                    "image/format": header.format,
                    "image/filename": image.file.name,
                    "image/class/label": [image.label],
                    "image/class/synset": image.synset,
                    **({"image/preparation": preparation.text} if preparation.text else {}),
                    "image/encoded": encoded,
                }
            )
            progress.add()

    with made_whole(shard.path) as temporary:
        write_records(temporary, records())
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        checked = check_file("imagenet", "", temporary, progress)
        if checked.defects or checked.records != len(shard.images):
            found = checked.defects[0][1] if checked.defects else f"{checked.records} of {len(shard.images)} records"
            raise DataError(f"{shard.path} is not as it was written: {found}", hint="check that disk")
    return converted
