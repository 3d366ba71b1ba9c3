"""Turns ImageNet's raw images into TFRecord files of the published form; continues an interrupted build."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.configs.runs.directory import made_whole, write_whole
from ipulaunch.data_pipeline.parallel import Progress, Report, cores, in_order
from ipulaunch.data_pipeline.sources.image_decoding import defect_of
from ipulaunch.data_pipeline.sources.image_header import ImageHeader, NotAnImage, read_header
from ipulaunch.data_pipeline.tools.new_set import encode_example, write_records
from ipulaunch.data_pipeline.tools.raw_archives import RawFile
from ipulaunch.data_pipeline.tools.raw_images import RawImage, list_images

_IMAGES_PER_SHARD = 1251  # as in the published set: 1,281,167 images in 1024 files
_JPEG_QUALITY = 96
_STATE = ".ipulaunch-build.json"
_REPLACE = (
    "replace it by a good image of the same name and run the same line again, which continues; to do without it,"
    " remove it and give --out a new directory"
)
_FETCH = "fetch the archive again and run the same line again, which continues"


class _Shard(NamedTuple):
    path: Path
    images: List[RawImage]


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Write all shards that are not there yet."""
    out, longest = Path(options["out"]), options["longest_side"]
    labels = options["validation_labels"]
    images = list_images(Path(options["raw"]), Path(labels) if labels else None)
    shards = _shards(out, images, options["shards"])
    _claim(out, images, len(shards["train"]), longest)
    everything = [shard for part in shards.values() for shard in part]
    waiting = [shard for shard in everything if not shard.path.exists()]
    progress = Progress(report, "images", sum(len(shard.images) for shard in waiting))

    def write(shard: _Shard) -> int:
        return _write_shard(shard, longest, progress)

    converted = sum(in_order(write, waiting, options["workers"] or cores(), progress))
    return {
        "out": str(out),
        "images": {split: len(part) for split, part in images.items()},
        "classes": max(image.label for image in images["train"]) if images["train"] else 0,
        "shards": {split: len(part) for split, part in shards.items()},
        "kept": len(everything) - len(waiting),
        "converted": converted,
    }


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


def _claim(out: Path, images: Dict[str, List[RawImage]], shards: int, longest: Optional[int]) -> None:
    """Refuse an `out` that was begun with other images or options."""
    names = [f"{split} {image.label} {image.file.name}" for split, part in images.items() for image in part]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    state = {"images": digest, "shards": shards, "longest_side": longest}
    out.mkdir(parents=True, exist_ok=True)
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


def _difference(before: Any, now: int) -> str:
    """How many images there are now, compared with before, if that is known."""
    if not isinstance(before, int):
        return ""
    if before == now:
        return f" (there are still {now}, with other names or classes)"
    return f" (there are {now} now, {abs(now - before)} {'fewer' if now < before else 'more'})"


def _write_shard(shard: _Shard, longest: Optional[int], progress: Progress) -> int:
    """Write one file of records; returns how many images were converted."""
    converted = 0

    def records() -> Iterator[bytes]:
        nonlocal converted
        for image in shard.images:
            encoded, header, is_new = _as_jpeg(image.file, longest)
            converted += is_new
            yield encode_example(
                {
                    "image/height": [header.height],
                    "image/width": [header.width],
                    "image/colorspace": "RGB",
                    "image/channels": [3],
                    "image/format": "JPEG",
                    "image/filename": image.file.name,
                    "image/class/label": [image.label],
                    "image/class/synset": image.synset,
                    "image/encoded": encoded,
                }
            )
            progress.add()

    with made_whole(shard.path) as temporary:
        write_records(temporary, records())
    return converted


def _as_jpeg(file: RawFile, longest: Optional[int]) -> Tuple[bytes, ImageHeader, bool]:
    """An image as JPEG in RGB or grey, its header, and whether it was converted."""
    data = file.read()
    try:
        header = read_header(data)
        pixels = tf.io.decode_image(data, channels=3, expand_animations=False)  # also turns CMYK into RGB
    except (NotAnImage, tf.errors.InvalidArgumentError) as error:
        hint = _REPLACE if file.size is None else _FETCH
        why = error if isinstance(error, NotAnImage) else defect_of(data)
        raise DataError(f"{file} cannot be decoded: {why}", hint=hint) from error
    is_plain = header.format == "JPEG" and header.channels in (1, 3)
    is_small = longest is None or max(header.height, header.width) <= longest
    if is_plain and is_small:  # decoded nevertheless: an image that is cut off would end a training
        return data, header, False
    if not is_small:
        scale = longest / max(header.height, header.width)  # type: ignore[operator]
        size = [max(1, round(side * scale)) for side in (header.height, header.width)]
        pixels = tf.cast(tf.round(tf.image.resize(pixels, size, method="area")), tf.uint8)
    encoded: bytes = tf.io.encode_jpeg(pixels, quality=_JPEG_QUALITY, chroma_downsampling=False).numpy()
    return encoded, read_header(encoded), True
