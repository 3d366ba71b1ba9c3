"""The published data set of each workload: its files, and where they come from, in the words of every refusal."""

from __future__ import annotations

from typing import NamedTuple, Tuple


class PublishedSet(NamedTuple):
    """What a directory with the set holds, and how to get it."""

    files: str
    origin: str
    signs: Tuple[str, ...] = ()  # patterns, of which a directory with the set, or a part of it, has one

    @property
    def hint(self) -> str:
        return f"the set has {self.files}; it comes from {self.origin}"


_CIFAR = "www.cs.toronto.edu/~kriz/cifar.html, as archives to unpack there"
_ARRAYS = "with x_train, y_train, x_test and y_test"

PUBLISHED_SETS = {
    "cosmoflow": PublishedSet(
        "train/*.tfrecord and validation/*.tfrecord",
        "NERSC, portal.nersc.gov: the MLPerf HPC set cosmoUniverse_2019_05_4parE_tf;"
        " small ones: ipulaunch data make cosmoflow",
    ),
    "imagenet": PublishedSet(
        "train-00000-of-01024 and so on, and validation-00000-of-00128 and so on",
        "image-net.org, made into records by ipulaunch data build imagenet; small ones: ipulaunch data make imagenet",
        ("train-*-of-*", "validation-*-of-*"),
    ),
    "cifar10": PublishedSet(
        "data_batch_1.bin to data_batch_5.bin and test_batch.bin, or these without .bin,"
        f" also in cifar-10-batches-bin or cifar-10-batches-py; or cifar10.npz {_ARRAYS}",
        f"{_CIFAR}; small ones: ipulaunch data make cifar10",
        ("data_batch_*", "test_batch*", "cifar-10-batches-*", "cifar10.npz"),
    ),
    "cifar100": PublishedSet(
        "train.bin and test.bin, or these without .bin, also in cifar-100-binary or cifar-100-python;"
        f" or cifar100.npz {_ARRAYS}",
        _CIFAR,
        ("train.bin", "test.bin", "train", "test", "cifar-100-*", "cifar100.npz"),
    ),
    "mnist": PublishedSet(
        "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte,"
        " also with .gz; or mnist.npz",
        "yann.lecun.com/exdb/mnist or github.com/zalandoresearch/fashion-mnist, mnist.npz from Keras;"
        " small ones: ipulaunch data make mnist",
        ("*-images-idx3-ubyte*", "mnist.npz"),
    ),
}
