"""CosmoFlow's published records: `x`, the int16 bytes of a volume, and `y`, its targets as floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowModel, side_options
from ipulaunch.data_pipeline.records.example import NotAnExample, Span, find_features
from ipulaunch.data_pipeline.records.files import volumes
from ipulaunch.data_pipeline.records.index import Index, Progress, open_index
from ipulaunch.data_pipeline.records.memory import ReusedMemory, aligned
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.sources.source import ArraySource

_LEAVE_OUT = "fetch the set again, or leave such records out: --bad-records skip"


def find_files(data_dir: Path, split: str) -> Tuple[Path, ...]:
    """The record files of a split, in the order of their names."""
    files = volumes(data_dir, split)
    if not files:
        hint = PUBLISHED_SETS["cosmoflow"].hint
        raise DataError(f"there are no *.tfrecord files in {data_dir / split}", hint=hint)
    return files


class _Layout(NamedTuple):
    """The bytes of a record around and between its volume and its targets, the same in most records of a set."""

    length: int
    volume: Span
    targets: Span
    frame: Tuple[bytes, bytes, bytes]  # before the first of the two, between them, after the second


class CosmoflowRecords(ArraySource):
    """Samples of a split, fetched by number. A volume goes from the page cache into its batch in one copy."""

    def __init__(
        self,
        data: CosmoflowData,
        split: str,
        *,
        threads: int,
        files: Optional[Sequence[Path]] = None,
        index: Optional[Index] = None,
        progress: Optional[Progress] = None,
    ) -> None:
        super().__init__()
        self.replaces_bad = data.bad_records == "skip"
        wanted = data.n_train if split == "train" else data.n_valid
        files = files or find_files(data.path, split)
        if index is None:
            index = open_index(files, threads=threads, progress=progress, tolerant=self.replaces_bad)
        self.index: Index = index
        if not self.index.records:
            hint = self.index.defects[0].message if self.index.defects else ""
            raise DataError(f"the {len(files)} files in {files[0].parent} hold no record", hint=hint)
        self.samples = min(wanted, self.index.records)
        self.shape = (data.side, data.side, data.side, data.channels)
        self.n_targets = data.targets
        self.inputs, self.targets = (np.int16, self.shape), (np.float32, (data.targets,))
        self.reader, self.memory = RecordReader(self.index), ReusedMemory()
        self.fits = False  # whether any record was as expected
        self.layout = self._first_layout()
        self.fits = True

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """The volumes and targets of these samples."""
        volumes = self.memory.array((len(ids), *self.shape), np.int16)
        targets = aligned((len(ids), self.n_targets), np.float32)
        for row, number in enumerate(ids):
            self._load_one(int(number), volumes[row], targets[row])
        return volumes, targets

    def following(self, number: int) -> int:
        return self.reader.following(number)

    def _load_one(self, record: int, volume: np.ndarray, targets: np.ndarray) -> None:
        if not self._load_in_place(record, volume, targets):
            self._unpack(record, volume, targets)
        if not np.isfinite(targets).all():
            found = f"{self.index.place(record)}: y is {targets.tolist()}, expected finite numbers"
            raise DataError(found, hint=_LEAVE_OUT)

    def _load_in_place(self, record: int, volume: np.ndarray, targets: np.ndarray) -> bool:
        """Read a record straight into its batch; returns whether its fields lie where those of the first one do."""
        if int(self.index.lengths[record]) != self.layout.length:
            return False
        frame = [bytearray(len(part)) for part in self.layout.frame]
        first, second = (volume, targets) if self.layout.volume.start < self.layout.targets.start else (targets, volume)
        pieces: List[Any] = [frame[0], first.reshape(-1), frame[1], second.reshape(-1), frame[2]]
        self.reader.read_into(record, [piece for piece in pieces if len(piece)])
        return tuple(map(bytes, frame)) == self.layout.frame

    def _unpack(self, record: int, volume: np.ndarray, targets: np.ndarray) -> None:
        """A record whose fields lie elsewhere than in the first one."""
        data = self.reader.read(record)
        layout = self._check(record, data)
        volume[...] = np.frombuffer(data, "<i2", volume.size, layout.volume.start).reshape(volume.shape)
        targets[...] = np.frombuffer(data, "<f4", targets.size, layout.targets.start)

    def _first_layout(self) -> _Layout:
        records = self.index.there(self.samples)
        for record in records:
            try:
                return self._layout_of(record)
            except DataError:
                if not self.replaces_bad or record == records[-1]:
                    raise
        raise AssertionError("a set has at least one sample")

    def _layout_of(self, record: int) -> _Layout:
        return self._check(record, self.reader.read(record))

    def _check(self, record: int, data: bytes) -> _Layout:
        try:
            features = find_features(data)
        except NotAnExample as error:
            raise DataError(f"{self.index.place(record)}: not a tf.train.Example: {error}") from error
        volume = self._span(record, features, "x", "bytes", 2 * int(np.prod(self.shape)), f"int16 {self.shape}")
        targets = self._span(record, features, "y", "floats", 4 * self.n_targets, f"{self.n_targets} floats")
        first, second = sorted((volume, targets), key=lambda span: span.start)
        frame = (data[: first.start], data[first.stop : second.start], data[second.stop :])
        return _Layout(len(data), volume, targets, frame)

    def _span(self, record: int, features: Dict[str, Span], name: str, kind: str, size: int, words: str) -> Span:
        place, span = self.index.place(record), features.get(name)
        if span is None:
            raise DataError(f"{place}: there is no feature {name}", hint="CosmoFlow records have x and y")
        if span.kind != kind or span.stop - span.start != size:
            kind = "" if span.kind == "bytes" else f" of {span.kind or 'nothing'}"
            found = f"{span.stop - span.start} bytes{kind}"
            hint = self._right_side(span) if name == "x" else "data.targets must be that of the set"
            if self.fits:
                hint = f"other records are as expected; {_LEAVE_OUT}"
            raise DataError(f"{place}: {name} is {found}, expected {size} bytes: {words}", hint=hint)
        return span

    def _right_side(self, volume: Span) -> str:
        voxels, rest = divmod(volume.stop - volume.start, 2 * self.shape[-1])
        side = round(voxels ** (1 / 3))
        if rest == 0 and side**3 == voxels and side:
            return f"use {side_options(side, CosmoflowModel().n_conv_layers)}, as the set has this size"
        return "data.side and data.channels must be those of the set"
