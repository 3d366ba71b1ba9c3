"""The order of samples: a function of (seed, epoch, position) alone, so that no instance ever asks another."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

import numpy as np

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.plan import Plan

_MIXED_AT_ONCE = 1 << 20  # samples, unless a window has more; bounds the memory


class Shuffle(NamedTuple):
    """How an epoch's order is drawn."""

    seed: int
    block: int = 1  # neighbouring samples that stay together, so that disks read in long runs; 1: none
    window: int = 1  # blocks whose samples are mixed with each other
    is_on: bool = True  # if not, every epoch has the order of the files
    shares: int = 1  # of the samples, one for each host: its replicas take no others


def shuffle_of(settings: WorkloadSettings, plan: Plan) -> Shuffle:
    """The order in which a training takes its samples."""
    data = settings.data
    shares = len(plan.hosts) if data.stage_shard else 1
    return Shuffle(settings.training.seed, data.shuffle_block, data.shuffle_window, data.shuffle, shares)


def share_of(samples: int, shares: int, number: int) -> range:
    """The samples of one share: neighbours, and as many as in the others or one more."""
    return range(number * samples // shares, (number + 1) * samples // shares)


def id_type(most: int) -> Any:
    """The smaller type that holds this number: half the memory where it suffices."""
    return np.int32 if most < 2**31 else np.int64


def order_type(samples: int, shuffle: Shuffle) -> Any:
    """The type of the numbers in an epoch's order; the last block reaches beyond the samples."""
    return id_type(samples + shuffle.block)


def epoch_order(samples: int, shuffle: Shuffle, epoch: int, share: int = 0) -> np.ndarray:
    """The permutation of 0..samples-1 that an epoch trains in: of all samples, or of blocks and then within windows.

    Each share of a set, of so many samples, has its own.

    Sorting Philox's raw stream, and not Generator.permutation: numpy promises the raw stream to stay the same in
    every version, and a run may resume under another one.
    """
    kind = order_type(samples, shuffle)
    if not shuffle.is_on:
        return np.arange(samples, dtype=kind)
    key, counter = np.array([shuffle.seed, epoch], np.uint64), np.array([0, 0, share, 0], np.uint64)
    bits = np.random.Philox(key=key, counter=counter)
    if shuffle.block == 1:
        return np.argsort(bits.random_raw(samples), kind="stable").astype(kind)
    blocks = np.argsort(bits.random_raw(-(-samples // shuffle.block)), kind="stable").astype(kind)
    order: np.ndarray = (blocks[:, None] * kind(shuffle.block) + np.arange(shuffle.block, dtype=kind)).ravel()
    order = order[order < samples]
    width = shuffle.block * shuffle.window
    piece = width * max(1, _MIXED_AT_ONCE // width)
    for start in range(0, samples, piece):
        part = order[start : start + piece]
        windows = np.arange(len(part)) // width
        part[:] = part[np.lexsort((bits.random_raw(len(part)), windows))]
    return order


def last_weights(samples: int, batch: Batch, shares: int = 1) -> np.ndarray:
    """The weights of the samples in an epoch's last update, which `pad` fills."""
    size = batch.global_size // shares
    before = (samples - 1) // batch.global_size * size
    parts = np.zeros((shares, size), np.float32)
    for number, part in enumerate(parts):
        part[: len(share_of(samples, shares, number)) - before] = 1
    return _dealt(list(parts), batch)


def whole_updates(
    samples: int, shuffle: Shuffle, epoch: int, batch: Batch, remainder: str
) -> Tuple[np.ndarray, np.ndarray]:
    """An epoch's order cut or filled to whole weight updates, and the weight of each of its samples.

    `drop` leaves out the samples that do not fill an update; `repeat` fills the last one with the first samples of the
    next epoch, which will see them again; `pad` fills it with samples of weight 0. A share is filled from itself.
    """
    shares, missing = shuffle.shares, -samples % batch.global_size
    whole = samples // batch.global_size * batch.global_size if remainder == "drop" else samples + missing
    size = whole // shares
    parts = [_whole_share(samples, shuffle, epoch, number, size, remainder) for number in range(shares)]
    order = _dealt(parts, batch)
    if remainder != "pad":
        return order, np.broadcast_to(np.float32(1), len(order))
    weights = np.ones(len(order), np.float32)
    weights[-batch.global_size :] = last_weights(samples, batch, shares)
    return order, weights


def _whole_share(samples: int, shuffle: Shuffle, epoch: int, number: int, size: int, remainder: str) -> np.ndarray:
    """So many samples of a share, in an epoch's order."""
    share = share_of(samples, shuffle.shares, number)
    order = epoch_order(len(share), shuffle, epoch, number)
    if size > len(order):
        filling = epoch_order(len(share), shuffle, epoch + 1, number) if remainder == "repeat" else order
        order = np.concatenate([order, np.resize(filling, size - len(order))])
    if shuffle.shares > 1:
        order = order.astype(order_type(samples, shuffle)) + share.start
    return order[:size]


def _dealt(parts: List[np.ndarray], batch: Batch) -> np.ndarray:
    """The samples of each share to the replicas of one host, in every step of every update."""
    if len(parts) == 1:
        return parts[0]
    rows = [part.reshape(-1, batch.accumulation, batch.micro_size * batch.replicas // len(parts)) for part in parts]
    dealt: np.ndarray = np.concatenate(rows, axis=2).ravel()
    return dealt


def training_ids(order: np.ndarray, batch: Batch, replicas: range, *, by_replica: bool) -> np.ndarray:
    """What these replicas, those of one instance, take in an epoch: a row per micro-batch.

    In an update an IPU infeed hands out step after step, within a step a micro-batch to each replica; the CPU
    backend runs one replica after the other (`by_replica`). Which sample meets which replica is the same.
    """
    updates = len(order) // batch.global_size
    whole = order[: updates * batch.global_size]
    cube = whole.reshape(updates, batch.accumulation, batch.replicas, batch.micro_size)
    mine = cube[:, :, replicas.start : replicas.stop]
    if by_replica:
        mine = mine.swapaxes(1, 2)
    return mine.reshape(-1, batch.micro_size)


def validation_batch(settings: WorkloadSettings, batch: Batch) -> Batch:
    """How validation divides its samples: a step of all replicas at a time."""
    return Batch(settings.training.validation_micro_batch_size or batch.micro_size, batch.replicas, 1)


def validation_ids(samples: int, batch: Batch, replicas: range) -> Tuple[np.ndarray, np.ndarray]:
    """The samples that these replicas validate, and their weights: padding to whole micro-batches has weight 0."""
    per_step = batch.micro_size * batch.replicas
    steps = -(-samples // per_step)
    ids = np.arange(steps * per_step, dtype=id_type(steps * per_step)).reshape(steps, batch.replicas, batch.micro_size)
    mine = ids[:, replicas.start : replicas.stop].reshape(-1, batch.micro_size)
    return np.minimum(mine, samples - 1), (mine < samples).astype(np.float32)
