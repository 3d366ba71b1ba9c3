"""MNIST and Fashion-MNIST as samples to train on."""

from __future__ import annotations

from pathlib import Path

from ipulaunch.data_pipeline.sources.image_arrays import ImageArrays
from ipulaunch.data_pipeline.sources.mnist_files import read_images


class Mnist(ImageArrays):
    """Grey images of 28x28 in ten classes."""

    def __init__(self, data_dir: Path, split: str) -> None:
        super().__init__(read_images(data_dir, split))
