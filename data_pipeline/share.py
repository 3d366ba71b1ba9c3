"""A host's share of a set: only the records that its instances read, staged to its own disk as plain files.

The set keeps its numbers, so that crops, messages and traces are the same wherever a record lies.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from pathlib import Path
from typing import Iterator, List, NamedTuple, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError, PlanError
from ipulaunch.data_pipeline.order import share_of, validation_ids
from ipulaunch.data_pipeline.records.index import Index, Paths
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.records.tfrecord import FOOTER, HEADER, Buffer, masked_crc
from ipulaunch.data_pipeline.staging import Copy
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.plan import Plan

_AROUND = HEADER + FOOTER


class HostShare(NamedTuple):
    """Which of the hosts a host is, and its replicas."""

    number: int
    hosts: int
    replicas: range


def host_share(plan: Plan, instance: int) -> HostShare:
    """The share of the host of an instance; its replicas must be neighbours."""
    hosts, here = plan.hosts, plan.placements[instance].host
    mine = [placement.instance for placement in plan.placements if placement.host == here]
    number, size = hosts.index(here), len(plan.placements) // len(hosts)
    if mine != list(range(number * size, (number + 1) * size)):
        raise PlanError(
            f"host {here} has instances {', '.join(map(str, mine))}: with --stage-shard the instances of a host are"
            f" neighbours, {size} on each of {len(hosts)} hosts",
            hint="give as many instances to each host, one host after the other, or leave --stage-shard out",
        )
    each = plan.replicas_per_instance
    return HostShare(number, len(hosts), range(mine[0] * each, (mine[-1] + 1) * each))


def records_of_host(split: str, samples: int, share: HostShare, batch: Batch) -> np.ndarray:
    """The samples of a split that the instances of a host read, in the order of the files."""
    if split == "train":
        mine = share_of(samples, share.hosts, share.number)
        if not len(mine):
            raise DataError(
                f"{samples} training samples have no share for each of {share.hosts} hosts",
                hint="leave --stage-shard out",
            )
        return np.arange(mine.start, mine.stop)
    return np.unique(validation_ids(samples, batch, share.replicas)[0])


def staged_share(
    index: Index, records: np.ndarray, source: Path, target: Path, *, tolerant: bool
) -> Tuple[List[Copy], Index]:
    """The files to make of these records of a set, and the index of the set with them in their new places.

    Other shares of the set never pass for this one: each has a directory of its own. If `tolerant`, a damaged record
    is copied as it is, for the training to replace.
    """
    name = hashlib.sha256(records.astype("<i8").tobytes()).hexdigest()[:12]
    target = target / f"share-{name}"
    places = [target / path.relative_to(source) for path in index.paths]
    edges = np.searchsorted(records, index.firsts)
    sizes = index.lengths[records] + _AROUND
    ends = np.concatenate([[0], np.cumsum(sizes)])
    offsets = np.zeros_like(index.offsets)
    files = np.repeat(np.arange(len(places)), np.diff(edges))
    offsets[records] = ends[:-1] - ends[edges[files]] + HEADER
    reader = RecordReader(index)
    copies = [
        Copy(
            index.paths[file], places[file], int(ends[stop] - ends[start]), True,
            functools.partial(_blocks, reader, file, records[start:stop], tolerant),
        )
        for file, (start, stop) in enumerate(zip(edges.tolist(), edges[1:].tolist()))
        if stop > start
    ]  # fmt: skip
    packed = np.zeros(len(places), bool)
    return copies, index._replace(paths=Paths(places), offsets=offsets, packed=packed, staged=records)


def _blocks(reader: RecordReader, file: int, records: np.ndarray, tolerant: bool) -> Iterator[Buffer]:
    """The bytes of these records of a file, each checked."""
    for record in records.tolist():
        length = int(reader.index.lengths[record])
        header = struct.pack("<Q", length)
        yield header + struct.pack("<I", masked_crc(header))
        room = np.zeros(length + FOOTER, np.uint8)
        try:
            reader.fill(record, file, room)
        except DataError:
            if not tolerant:
                raise
        yield room
