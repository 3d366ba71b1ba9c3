"""CIFAR-10 and CIFAR-100 as samples to train on."""

from __future__ import annotations

from pathlib import Path

from ipulaunch.data_pipeline.sources.cifar_files import read_images
from ipulaunch.data_pipeline.sources.image_arrays import ImageArrays


class Cifar(ImageArrays):
    """Colour images of 32x32 in 10 or 100 classes."""

    def __init__(self, data_dir: Path, split: str, *, classes: int = 10, seed: int = 0, augment: bool = False) -> None:
        super().__init__(read_images(data_dir, split, classes), seed=seed, augment=augment)
