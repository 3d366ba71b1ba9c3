"""The order of samples: a function of (seed, epoch, position) alone, so that no instance ever asks another."""

from __future__ import annotations

from typing import NamedTuple, Tuple

import numpy as np

from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place


class Shuffle(NamedTuple):
    """How an epoch's order is drawn."""

    seed: int
    block: int = 1  # neighbouring samples that stay together, so that disks read in long runs; 1: none do
    window: int = 1  # blocks whose samples are mixed with each other


def epoch_order(samples: int, shuffle: Shuffle, epoch: int) -> np.ndarray:
    """The permutation of 0..samples-1 that an epoch trains in: of all samples, or of blocks and then within windows.

    Sorting Philox's raw stream, and not Generator.permutation: numpy promises the raw stream to stay the same in
    every version, and a run may resume under another one.
    """
    bits = np.random.Philox(key=np.array([shuffle.seed, epoch], np.uint64))
    if shuffle.block == 1:
        return np.argsort(bits.random_raw(samples), kind="stable")
    blocks = np.argsort(bits.random_raw(-(-samples // shuffle.block)), kind="stable")
    order = (blocks[:, None] * shuffle.block + np.arange(shuffle.block)).ravel()
    order = order[order < samples]
    windows = np.arange(samples) // (shuffle.block * shuffle.window)
    return order[np.lexsort((bits.random_raw(samples), windows))]


def whole_updates(
    samples: int, shuffle: Shuffle, epoch: int, batch: Batch, remainder: str
) -> Tuple[np.ndarray, np.ndarray]:
    """An epoch's order cut or filled to whole weight updates, and the weight of each of its samples.

    `drop` leaves out what fills no update; `repeat` fills the last one with the first samples of the next epoch, which
    will see them again; `pad` fills it with samples of weight 0.
    """
    order = epoch_order(samples, shuffle, epoch)
    if remainder == "drop":
        order = order[: samples // batch.global_size * batch.global_size]
        return order, np.ones(len(order), np.float32)
    missing = -samples % batch.global_size
    weights = np.ones(samples + missing, np.float32)
    if remainder == "repeat":
        following = epoch_order(samples, shuffle, epoch + 1)
        return np.concatenate([order, np.resize(following, missing)]), weights
    weights[samples:] = 0
    return np.concatenate([order, np.resize(order, missing)]), weights


def training_ids(order: np.ndarray, batch: Batch, place: Place, *, by_replica: bool) -> np.ndarray:
    """One instance's part of what all replicas take in an epoch: a row per micro-batch.

    In an update an IPU infeed hands out step after step, within a step a micro-batch to each replica; the CPU
    backend runs one replica after the other (`by_replica`). Which sample meets which replica is the same.
    """
    updates = len(order) // batch.global_size
    whole = order[: updates * batch.global_size]
    cube = whole.reshape(updates, batch.accumulation, batch.replicas, batch.micro_size)
    mine = cube[:, :, place.first_replica : place.first_replica + place.local_replicas]
    if by_replica:
        mine = mine.swapaxes(1, 2)
    return mine.reshape(-1, batch.micro_size)


def validation_ids(samples: int, batch: Batch, place: Place) -> Tuple[np.ndarray, np.ndarray]:
    """The samples one instance validates, and their weights: padding to whole micro-batches weighs 0."""
    per_step = batch.micro_size * batch.replicas
    steps = -(-samples // per_step)
    ids = np.arange(steps * per_step)
    weights = (ids < samples).astype(np.float32)
    ids = np.minimum(ids, samples - 1)
    mine = slice(place.first_replica, place.first_replica + place.local_replicas)
    shape = (steps, batch.replicas, batch.micro_size)
    return (
        ids.reshape(shape)[:, mine].reshape(-1, batch.micro_size),
        weights.reshape(shape)[:, mine].reshape(-1, batch.micro_size),
    )
