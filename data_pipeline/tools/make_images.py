"""Makes sets of pictures in the published formats of ImageNet, CIFAR-10, CIFAR-100 and MNIST."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np

from ipulaunch.data_pipeline.parallel import Progress, Report, cores, in_order
from ipulaunch.data_pipeline.tools.new_set import Part, encode_example, generator, new_directory, write_records
from ipulaunch.data_pipeline.tools.old_pickle import old_pickle
from ipulaunch.data_pipeline.tools.pictures import paint

_JPEG_QUALITY = 96  # with the noise of the pictures, about the 110 kB that one of ImageNet's takes
_CIFAR_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR_BATCHES = 5


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Write the set named in options["kind"]."""
    counts = {"train": options["samples"], "validation": options["validation_samples"]}
    progress = Progress(report, "pictures", sum(counts.values()))
    out = Path(options["out"])
    with new_directory(out) as directory:
        _KINDS[options["kind"]](directory, counts, options, progress)
        sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    return {"out": str(out), "samples": counts, "files": len(sizes), "bytes": sum(sizes)}


def _imagenet(directory: Path, counts: Dict[str, int], options: Dict[str, Any], progress: Progress) -> None:
    import tensorflow as tf

    def records(shard: Part) -> Iterator[bytes]:
        for number in shard.samples:
            features = imagenet_sample(options, shard.split, number)
            pixels = features.pop("pixels")
            encoded: bytes = tf.io.encode_jpeg(pixels, quality=_JPEG_QUALITY).numpy()
            yield encode_example({**features, "image/encoded": encoded})
            progress.add()

    def write(shard: Part) -> None:
        write_records(directory / shard.name, records(shard))

    files = options["files"]
    # The published set has an eighth as many files for validation.
    shards = _shards("train", counts["train"], files)
    shards += _shards("validation", counts["validation"], max(1, files // 8))
    for _ in in_order(write, shards, cores(), progress):
        pass


def _shards(split: str, count: int, files: int) -> List[Part]:
    edges = np.linspace(0, count, files + 1).astype(int).tolist()
    names = [f"{split}-{number:05}-of-{files:05}" for number in range(files)]
    return [Part(split, name, range(*edges[number : number + 2])) for number, name in enumerate(names)]


def imagenet_sample(options: Dict[str, Any], split: str, number: int) -> Dict[str, Any]:
    """The features of one example, its picture still as pixels. Sizes vary around side x 3/4 side, some upright."""
    draw = generator(options["seed"], split, number)
    label = int(draw.integers(options["classes"]))
    width, height = (options["side"] * draw.uniform(0.8, 1.2, 2) * (1, 0.75)).astype(int).clip(1).tolist()
    if draw.random() < 0.25:
        width, height = height, width
    pixels, box = paint(draw, label, options["classes"], height, width)
    features: Dict[str, Any] = {
        "pixels": pixels,
        "image/height": [height],
        "image/width": [width],
        "image/colorspace": "RGB",
        "image/channels": [3],
        "image/format": "JPEG",
        "image/filename": f"{split}_{number:08}.JPEG",
        "image/class/label": [label + 1],
        "image/class/synset": f"n{label:08}",
    }
    if options["boxes"]:
        sides = {f"image/object/bbox/{side}": np.array([value]) for side, value in box._asdict().items()}
        features.update({**sides, "image/object/bbox/label": [label + 1]})
    return features


def small_samples(
    options: Dict[str, Any], split: str, count: int, side: int, progress: Progress, classes: int = 10
) -> Tuple[np.ndarray, np.ndarray]:
    """This many square pictures, all at once, and their labels."""

    def one(number: int) -> Tuple[np.ndarray, int]:
        draw = generator(options["seed"], split, number)
        label = int(draw.integers(classes))
        picture, _ = paint(draw, label, classes, side, side, noise=25)
        progress.add()
        return picture, label

    pictures, labels = np.empty((count, side, side, 3), np.uint8), np.empty(count, np.uint8)
    for number, (picture, label) in enumerate(in_order(one, range(count), cores(), progress)):
        pictures[number], labels[number] = picture, label
    return pictures, labels


def _cifar10(directory: Path, counts: Dict[str, int], options: Dict[str, Any], progress: Progress) -> None:
    pickled, binary = _made(directory, "cifar-10-batches-py", "cifar-10-batches-bin")
    for split, count in counts.items():
        rows, labels = _cifar_rows(options, split, count, progress, 10)
        is_train = split == "train"
        parts = np.array_split(np.arange(count), _CIFAR_BATCHES) if is_train else [np.arange(count)]
        for number, part in enumerate(parts, 1):
            name = f"data_batch_{number}" if is_train else "test_batch"
            about = f"training batch {number} of {_CIFAR_BATCHES}" if is_train else "testing batch 1 of 1"
            batch = {
                b"batch_label": about.encode(),
                b"labels": labels[part].tolist(),
                b"data": rows[part],
                b"filenames": [b"made_up_s_%06d.png" % sample for sample in part.tolist()],
            }
            (pickled / name).write_bytes(old_pickle(batch))
            (binary / f"{name}.bin").write_bytes(np.column_stack([labels[part], rows[part]]).tobytes())
    meta: Dict[bytes, Any] = {
        b"num_cases_per_batch": -(-counts["train"] // _CIFAR_BATCHES),
        b"label_names": [name.encode() for name in _CIFAR_NAMES],
        b"num_vis": 3072,
    }
    (pickled / "batches.meta").write_bytes(old_pickle(meta))
    (binary / "batches.meta.txt").write_text("\n".join(_CIFAR_NAMES) + "\n\n")


def _cifar100(directory: Path, counts: Dict[str, int], options: Dict[str, Any], progress: Progress) -> None:
    pickled, binary = _made(directory, "cifar-100-python", "cifar-100-binary")
    for split, count in counts.items():
        rows, labels = _cifar_rows(options, split, count, progress, 100)
        groups = labels // 5  # the published set has 20 groups of 5 classes each
        name = "train" if split == "train" else "test"
        batch = {
            b"filenames": [b"made_up_s_%06d.png" % sample for sample in range(count)],
            b"batch_label": b"training batch 1 of 1" if split == "train" else b"testing batch 1 of 1",
            b"fine_labels": labels.tolist(),
            b"coarse_labels": groups.tolist(),
            b"data": rows,
        }
        (pickled / name).write_bytes(old_pickle(batch))
        (binary / f"{name}.bin").write_bytes(np.column_stack([groups, labels, rows]).tobytes())
    names = {"fine": [f"class_{number:02}" for number in range(100)], "coarse": [f"group_{n:02}" for n in range(20)]}
    meta: Dict[bytes, Any] = {}
    for kind, texts in names.items():
        meta[f"{kind}_label_names".encode()] = [text.encode() for text in texts]
        (binary / f"{kind}_label_names.txt").write_text("\n".join(texts) + "\n")
    (pickled / "meta").write_bytes(old_pickle(meta))


def _made(directory: Path, *names: str) -> List[Path]:
    """New directories with these names."""
    made = [directory / name for name in names]
    for path in made:
        path.mkdir()
    return made


def _cifar_rows(
    options: Dict[str, Any], split: str, count: int, progress: Progress, classes: int
) -> Tuple[np.ndarray, np.ndarray]:
    """The pictures of a split as published, all of red, of green and of blue, and their labels."""
    pictures, labels = small_samples(options, split, count, 32, progress, classes)
    return pictures.transpose(0, 3, 1, 2).reshape(count, 3072), labels


def _mnist(directory: Path, counts: Dict[str, int], options: Dict[str, Any], progress: Progress) -> None:
    for split, count in counts.items():
        pictures, labels = small_samples(options, split, count, 28, progress)
        grey = pictures.mean(axis=3).astype(np.uint8)
        prefix = "train" if split == "train" else "t10k"
        for name, values in ((f"{prefix}-images-idx3-ubyte.gz", grey), (f"{prefix}-labels-idx1-ubyte.gz", labels)):
            # 0, 0, the code of unsigned bytes, how many dimensions; then each of them
            head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
            with (directory / name).open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                packed.write(head + values.tobytes())


_KINDS: Dict[str, Callable[[Path, Dict[str, int], Dict[str, Any], Progress], None]] = {
    "imagenet": _imagenet,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "mnist": _mnist,
}
