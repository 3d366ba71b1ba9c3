"""A set that does not fit into the memory of a host: its neighbours stay together, so that disks read in long runs."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.topology.machines.hosts import kernel_text, tightest_limit

_RUN = 4 << 20  # bytes that are read one after the other: a disk then spends little on finding them
_MIXED = 10_000  # samples at least, as in the published pipelines
_LENGTH = 8  # bytes at the start of a record, the lowest first
_COMPUTED = "computed"
_NAMES = {"cosmoflow": ("train", re.compile(r"[^.].*\.tfrecord.*")), "imagenet": (".", re.compile(r"train-\d+-of-\d+"))}


class _Set(NamedTuple):
    """What is known of training files without an index."""

    bytes: int
    first_record: int  # bytes of it


def with_long_runs(resolved: Resolved, memory: Optional[int] = None) -> Resolved:
    """The settings with an order of two levels and a note about it, where the order is left to us and the set is large.

    Only the launcher decides this, once: the order becomes a setting of the run, so that whoever continues it, on
    whatever machine, takes the same one.
    """
    data = resolved.settings.data
    is_open = data.shuffle and not {"data.shuffle_block", "data.shuffle_window"} & resolved.given
    if data.directory is None or resolved.workload not in _NAMES or not is_open or data.shuffle_block != 1:
        return resolved
    memory = memory or memory_of_host()
    found = _look(resolved.workload, Path(data.directory))
    if found is None or memory is None or found.bytes <= memory or 2 * found.first_record > _RUN:
        return resolved
    block = _RUN // found.first_record
    window = -(-_MIXED // block)
    origins = {**resolved.origins, "data.shuffle_block": _COMPUTED, "data.shuffle_window": _COMPUTED}
    text = (
        f"the training files have {found.bytes >> 30} GiB and this host has {memory >> 30} GiB of memory: {block}"
        f" neighbouring samples stay together and {window} such blocks are mixed, so that disks read long runs"
        " (data.shuffle_block, data.shuffle_window)"
    )
    return resolved._replace(
        settings=dataclasses.replace(
            resolved.settings, data=dataclasses.replace(data, shuffle_block=block, shuffle_window=window)
        ),
        origins=origins,
        given=resolved.given | {"data.shuffle_block", "data.shuffle_window"},
        notes=(*resolved.notes, text),
    )


def memory_of_host(root: Path = Path("/")) -> Optional[int]:
    """The bytes of memory that processes of this host may have."""
    found = re.search(r"MemTotal:\s+(\d+) kB", kernel_text(root / "proc/meminfo") or "")
    limit = tightest_limit("memory", "memory.max", "memory.limit_in_bytes", root)
    return min((each for each in (limit, int(found[1]) << 10 if found else None) if each), default=None)


def _look(workload: str, directory: Path) -> Optional[_Set]:
    """The size of the training files; nothing if they are packed, or are not here."""
    try:
        first = next(_files(workload, directory), None)
        if first is None:
            return None
        with Path(first).open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
        if not 0 < length < first.stat().st_size:  # packed, or damaged
            return None
        if 2 * length > _RUN:  # of large records each is a long run; there may be very many files
            return None
        return _Set(sum(entry.stat().st_size for entry in _files(workload, directory)), length)
    except OSError:
        return None


def _files(workload: str, directory: Path) -> Iterator[os.DirEntry[str]]:
    folder, name = _NAMES[workload]
    with os.scandir(directory / folder) as entries:
        for entry in entries:
            if name.fullmatch(entry.name) and entry.is_file():
                yield entry
