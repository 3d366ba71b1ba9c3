"""The record files of a split, found by their names, in the same way for training and for the tools.

A name that starts with a dot is never data: it is an index, or the rest of an interrupted copy.
"""

from __future__ import annotations

import collections
import re
from pathlib import Path
from typing import Counter, NamedTuple, Tuple

SPLITS = ("train", "validation")

_SHARD = re.compile(r"[a-z]+-(\d{1,6})-of-(\d{1,6})")


class Shards(NamedTuple):
    """The files of one split of ImageNet, each of which says how many there are."""

    paths: Tuple[Path, ...]
    missing: Tuple[Path, ...]  # that the names of the others imply
    strangers: Tuple[Path, ...]  # of another set


def volumes(data_dir: Path, split: str) -> Tuple[Path, ...]:
    """CosmoFlow's files of a split, in the order of their names."""
    return tuple(sorted(path for path in (data_dir / split).glob("*.tfrecord*") if not path.name.startswith(".")))


def shards(data_dir: Path, split: str) -> Shards:
    """ImageNet's files of a split, in the order of their names; those of the largest set, if there are several."""
    sets: Counter[Tuple[int, str]] = collections.Counter()
    names = set()
    for path in data_dir.glob(f"{split}-*-of-*"):
        match = _SHARD.fullmatch(path.name)
        if match:
            sets[len(match[1]), match[2]] += 1
            names.add(path.name)
    if not names:
        return Shards((), (), ())
    digits, total = max(sets, key=lambda each: (sets[each], each))
    promised = {f"{split}-{number:0{digits}}-of-{total}" for number in range(int(total))}
    parts = (names & promised, promised - names, names - promised)
    return Shards(*(tuple(data_dir / name for name in sorted(part)) for part in parts))
