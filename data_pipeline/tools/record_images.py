"""The images of a set of record files, to be prepared; all other features of a record stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.parallel import Progress, Report, cores
from ipulaunch.data_pipeline.records.example import NotAnExample, encoded_features, find_features
from ipulaunch.data_pipeline.records.files import SPLITS, shards
from ipulaunch.data_pipeline.records.index import Index, open_index
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.sources.image_decoding import Undecodable
from ipulaunch.data_pipeline.sources.imagenet import find_files
from ipulaunch.data_pipeline.tools.build_images import PREPARATION, Images, Maker, NewRecord
from ipulaunch.data_pipeline.tools.new_set import encode_feature, example_of
from ipulaunch.data_pipeline.tools.preparation import Preparation
from ipulaunch.data_pipeline.tools.record_fields import check_record

_IMAGE = "image/encoded"
_SKIP = "copy the file again and run the same line again, or leave damaged images out: --bad-records skip"


class RecordImages(Images):
    """Images in record files."""

    def __init__(self, index: Index) -> None:
        self.index, self.count, self.defects = index, index.records, index.defects
        self.edges = index.firsts.tolist()

    def names(self) -> List[str]:
        counts = (self.index.firsts[1:] - self.index.firsts[:-1]).tolist()
        return [f"{path.name} {path.stat().st_size} {count}" for path, count in zip(self.index.paths, counts)]

    def maker(self, preparation: Preparation) -> Maker:
        reader = RecordReader(self.index)  # of its own, because it keeps the packed files that it reads unpacked

        def make(number: int) -> NewRecord:
            try:
                made = _prepared(reader.read(number), preparation)
                problems = check_record("imagenet", made.data).problems
            except NotAnExample as error:
                problems = (f"not a tf.train.Example: {error}",)
            except Undecodable as error:
                problems = (str(error),)
            if problems:
                raise DataError(f"{self.index.place(number)}: {problems[0]}", hint=_SKIP)
            return made

        return make


def _prepared(record: bytes, preparation: Preparation) -> NewRecord:
    """A record with its image prepared. Small features come first: a training looks for them at a record's start."""
    features = find_features(record)
    image, before = features.get(_IMAGE), features.get(PREPARATION)
    if image is None or image.kind != "bytes":
        raise Undecodable(f"there is no feature {_IMAGE}")
    try:
        encoded, header, is_new = preparation.apply(record[image.start : image.stop])
    except Undecodable as error:
        raise Undecodable(f"the image cannot be decoded: {error}") from error
    earlier = record[before.start : before.stop].decode("utf-8", "replace") if before is not None else ""
    first: Dict[str, Any] = {
        "image/height": [header.height],
        "image/width": [header.width],
        "image/format": header.format,
        PREPARATION: "; ".join(filter(None, (earlier, preparation.text))),
        **({"image/colorspace": "RGB", "image/channels": [3]} if is_new else {}),
    }
    kept = [feature for name, feature in encoded_features(record) if name not in (*first, _IMAGE)]
    made = [encode_feature(name, value) for name, value in first.items() if value]
    return NewRecord(example_of([*made, *kept, encode_feature(_IMAGE, encoded)]), is_new)


def record_images(directory: Path, report: Report, *, tolerant: bool) -> Dict[str, Images]:
    """The images of a set, by split; of a damaged file those before the defect, if `tolerant`. One split may be all."""
    splits = [split for split in SPLITS if shards(directory, split).paths]
    found: Dict[str, Images] = {}
    for split in splits or SPLITS[:1]:  # whose absence is an error
        files = find_files(directory, split)
        progress = Progress(report, f"{split} files indexed", len(files))
        index = open_index(files, threads=cores(), progress=progress.reach, tolerant=tolerant)
        if not index.records:
            raise DataError(f"the {len(files)} {split} files in {directory} hold no record")
        found[split] = RecordImages(index)
    return found
