"""The raw images of ImageNet, in class folders or in the challenge's archives, each with its class."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records.files import SPLITS
from ipulaunch.data_pipeline.sources.image_decoding import Undecodable
from ipulaunch.data_pipeline.tools import raw_archives
from ipulaunch.data_pipeline.tools.build_images import PREPARATION, Images, Maker, NewRecord
from ipulaunch.data_pipeline.tools.new_set import encode_example
from ipulaunch.data_pipeline.tools.preparation import Preparation
from ipulaunch.data_pipeline.tools.raw_archives import RawFile, is_image

_LABELS = "validation_labels.txt"
_GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_SYNSETS = "synsets.txt"  # in the order of the development kit's numbers
_SHUFFLE_KEY = 12345  # any number; always the same, so that a continued build has the same order

Classes = Dict[str, List[RawFile]]


class RawImage(NamedTuple):
    """One image, and the class it shows."""

    file: RawFile
    label: int  # from 1
    synset: str


class RawImages(Images):
    """The raw images of a split."""

    def __init__(self, images: List[RawImage]) -> None:
        self.images, self.count = images, len(images)
        self.classes = max(image.label for image in images)

    def names(self) -> List[str]:
        return [f"{image.label} {image.file.name}" for image in self.images]

    def maker(self, preparation: Preparation) -> Maker:
        def make(number: int) -> NewRecord:
            image = self.images[number]
            try:
                encoded, header, is_new = preparation.apply(image.file.read())
            except Undecodable as error:
                raise DataError(f"{image.file} cannot be decoded: {error}", hint=image.file.remedy) from error
            record = encode_example(
                {
                    "image/height": [header.height],
                    "image/width": [header.width],
                    "image/colorspace": "RGB",
                    "image/channels": [3],
                    "image/format": header.format,
                    "image/filename": image.file.name,
                    "image/class/label": [image.label],
                    "image/class/synset": image.synset,
                    **({PREPARATION: preparation.text} if preparation.text else {}),
                    "image/encoded": encoded,
                }
            )
            return NewRecord(record, is_new)

        return make


def raw_images(raw: Path, validation_labels: Optional[Path]) -> Dict[str, Images]:
    """All raw images, by split."""
    found = list_images(raw, validation_labels)
    for split in SPLITS:
        if not found.get(split):
            raise DataError(f"there are no images for {split}")
    return {split: RawImages(images) for split, images in found.items()}


def list_images(raw: Path, validation_labels: Optional[Path]) -> Dict[str, List[RawImage]]:
    """All images by split, in an order that is shuffled but always the same."""
    train = _training_classes(raw)
    labels = {synset: number for number, synset in enumerate(train, 1)}
    found = {"train": _labelled("train", train, labels)}
    folder = next((raw / name for name in ("validation", "val") if (raw / name).is_dir()), None)
    archive = raw / raw_archives.VALIDATION
    if folder is not None and _folders(folder):
        unknown = sorted(set(_folders(folder)) - set(labels))
        if unknown:
            raise DataError(f"{folder / unknown[0]}: train/ has no class of this name")
        found["validation"] = _labelled("validation", _in_folders(folder), labels)
    elif folder is not None:
        found["validation"] = _flat(_images(folder), folder, raw, validation_labels, labels)
    elif archive.is_file():
        found["validation"] = _flat(raw_archives.images_in(archive), archive, raw, validation_labels, labels)
    return {split: _shuffled(images) for split, images in found.items()}


def _training_classes(raw: Path) -> Classes:
    train, archive = raw / "train", raw / raw_archives.TRAIN
    classes = _in_folders(train)
    if not classes and archive.is_file():
        classes = raw_archives.images_by_class(archive)
        if not classes:
            raise DataError(f"{archive} holds no archives of classes", hint="expected n01440764.tar and so on in it")
    if not classes:
        hint = f"expected train/n01440764/*.JPEG and one folder per class, or {raw_archives.TRAIN}"
        raise DataError(f"there are no class folders in {train}", hint=hint)
    return classes


def _folders(directory: Path) -> List[str]:
    """The names of the class folders; those that start with a dot belong to programs, such as .ipynb_checkpoints."""
    if not directory.is_dir():
        return []
    return sorted(path.name for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))


def _images(directory: Path) -> List[RawFile]:
    return [RawFile(path, path.name) for path in sorted(directory.iterdir()) if is_image(path.name)]


def _in_folders(directory: Path) -> Classes:
    return {synset: _images(directory / synset) for synset in _folders(directory)}


def _labelled(split: str, classes: Classes, labels: Dict[str, int]) -> List[RawImage]:
    empty = [synset for synset, files in classes.items() if not files]
    if empty:  # it would shift the labels of all classes behind it
        hint = f"{split}/{empty[0]} must hold the JPEG or PNG files themselves; remove a class that has none"
        raise DataError(f"there are no {split} images of class {empty[0]}", hint=hint)
    return [RawImage(file, labels[synset], synset) for synset, files in classes.items() for file in files]


def _flat(
    images: List[RawFile], where: Path, raw: Path, given: Optional[Path], labels: Dict[str, int]
) -> List[RawImage]:
    """Images in the order of their names, and a line with the class of each."""
    path = given or next((raw / name for name in (_LABELS, _GROUND_TRUTH) if (raw / name).is_file()), raw / _LABELS)
    lines = _words(path, "--validation-labels FILE: a class per line, in the order of the images' names")
    if len(images) != len(lines):
        raise DataError(f"{path} has {len(lines)} labels, {where} has {len(images)} images")
    if path.name == _GROUND_TRUTH:
        numbered = _by_number(_synsets_of_the_kit(path, labels))
    else:
        numbered = _by_number(list(labels))
        if any(
            name.lstrip("0") in numbered for name in labels
        ):  # such a name could also be the number of another class
            numbered = {}
    return [RawImage(file, *_class(line, numbered, labels, path)) for file, line in zip(images, lines)]


def _by_number(synsets: List[str]) -> Dict[str, str]:
    return {str(number): synset for number, synset in enumerate(synsets, 1)}


def _synsets_of_the_kit(path: Path, labels: Dict[str, int]) -> List[str]:
    """The classes in the development kit's order. It is not that of their names, and the kit keeps it in meta.mat."""
    place = path.with_name(_SYNSETS)
    synsets = _words(
        place,
        f"the numbers in {_GROUND_TRUTH} follow the kit's meta.mat: write its WNIDs to {_SYNSETS}, one per line in the"
        " order of their ILSVRC2012_ID, or give --validation-labels a file with a synset per line",
    )
    unknown = sorted(set(labels) - set(synsets))
    if unknown:
        raise DataError(f"{place} has {len(synsets)} classes, but not {unknown[0]} of the training images")
    return synsets


def _words(path: Path, hint: str) -> List[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}", hint=hint) from error


def _class(line: str, numbered: Dict[str, str], labels: Dict[str, int], path: Path) -> Tuple[int, str]:
    """A line names a class, or its number."""
    synset = numbered.get(line.lstrip("0"), line)
    if synset not in labels:
        known = f"neither a class of the training images nor a number to {len(numbered)}"
        if not numbered:
            known = "the training images have classes named by numbers, and none of this name"
        raise DataError(f"{path}: {line!r} is not a class: {known}")
    return labels[synset], synset


def _shuffled(images: List[RawImage]) -> List[RawImage]:
    # numpy keeps the raw stream of Philox the same in every version.
    keys = np.random.Philox(key=_SHUFFLE_KEY).random_raw(len(images))
    return [images[number] for number in np.argsort(keys, kind="stable")]
