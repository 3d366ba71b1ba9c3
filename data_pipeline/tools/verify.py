"""Reads every byte of a set: the checksums of all records, their fields, the headers and ends of their images."""

from __future__ import annotations

import collections
import gzip
import struct
import zlib
from pathlib import Path
from typing import IO, Any, Counter, Dict, Iterator, List, NamedTuple, Optional, Tuple, cast

from ipulaunch.configs.errors import PlanError
from ipulaunch.data_pipeline.parallel import Progress, Report, cores, in_order
from ipulaunch.data_pipeline.records.files import SPLITS
from ipulaunch.data_pipeline.records.gzip_files import is_gzip
from ipulaunch.data_pipeline.records.tfrecord import FOOTER, HEADER, masked_crc
from ipulaunch.data_pipeline.tools.record_fields import check_record
from ipulaunch.data_pipeline.tools.sets import RecordSet, find_arrays, find_set, holds_records, verify_arrays
from ipulaunch.topology import Batch

_LARGEST_RECORD = 1 << 31  # bytes; a protocol buffer cannot be larger
_NOTED = 20  # places to show for each oddity


class Location(NamedTuple):
    """A file and, for a record, its number and its first byte."""

    file: str
    record: Optional[int] = None
    offset: Optional[int] = None


class Checked(NamedTuple):
    """The findings for one file."""

    split: str
    records: int
    size: int
    defects: List[Tuple[Location, str]]
    notes: List[Tuple[Location, str]]
    forms: List[Tuple[Location, str]]


class _Broken(Exception):
    """The rest of a file cannot be divided into records."""


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Verify a set; reports each defect at once, and returns the counts."""
    shares_of = _plan(options)
    directory = Path(options["directory"])
    if not holds_records(directory):
        arrays = find_arrays(directory)
        if arrays is not None:
            result = verify_arrays(arrays, report)
            counts = result["records"].items()
            return {**result, "shards": {split: shares_of(split, count) for split, count in counts if shares_of}}
    found = find_set(directory)
    defects: List[Tuple[Location, str]] = []

    def tell(place: Location, message: str) -> None:
        defects.append((place, message))
        report({"event": "defect", **place._asdict(), "message": message})

    for path in found.missing:
        tell(Location(str(path)), "the file is missing")
    for path in found.strangers:
        tell(Location(str(path)), f"it belongs to another set than the other {path.name.split('-')[0]} files")
    records: Counter[str] = collections.Counter(dict.fromkeys(found.splits, 0))
    notes: Dict[str, List[Location]] = {}
    forms: Dict[str, List[Location]] = {}
    note_counts: Counter[str] = collections.Counter()
    form_counts: Counter[str] = collections.Counter()
    size = 0
    for checked in _check_files(found, report):
        records[checked.split] += checked.records
        size += checked.size
        for place, message in checked.defects:
            tell(place, message)
        for counts, places, items in ((note_counts, notes, checked.notes), (form_counts, forms, checked.forms)):
            for place, text in items:
                counts[text] += 1
                if counts[text] <= _NOTED:
                    places.setdefault(text, []).append(place)
    usual = form_counts.most_common(1)[0][0] if form_counts else ""
    for form in sorted(set(forms) - {usual}):
        for place in forms[form]:
            more = f" ({form_counts[form]} records are so)" if form_counts[form] > 1 else ""
            tell(place, f"x is {form}, elsewhere {usual}{more}")
    return {
        "kind": found.kind,
        "form": usual,
        "files": {split: len(paths) for split, paths in found.splits.items()},
        "records": dict(records),
        "bytes": size,
        "defects": len(defects),
        "notes": [
            {"message": text, "records": note_counts[text], "places": [place._asdict() for place in notes[text]]}
            for text in sorted(notes)
        ]
        + [
            {"message": f"there are no {split} files: a run on this set needs {option}", "records": 0, "places": []}
            for split, option in zip(SPLITS, ("--no-training", "--no-validation"))
            if split not in found.splits
        ],
        "shards": {split: shares_of(split, count) for split, count in records.items()} if shares_of else {},
    }


def _check_files(found: RecordSet, report: Report) -> Iterator[Checked]:
    progress = Progress(report, "files", len(found.files))

    def check(item: Tuple[str, Path]) -> Checked:
        checked = check_file(found.kind, *item, progress)
        progress.add()
        return checked

    return in_order(check, found.files, cores(), progress)


def check_file(kind: str, split: str, path: Path, progress: Progress) -> Checked:
    """Read one file and check every record of it."""
    checked = Checked(split, 0, 0, [], [], [])
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        checked.defects.append((Location(str(path)), "it is not a file"))
        return checked
    number = position = 0
    try:
        size = path.stat().st_size
        with path.open("rb") as raw:
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if is_gzip(path) else raw
            while True:
                progress.check()
                try:
                    data, sound = _read_record(stream)
                except _Broken as error:
                    checked.defects.append((Location(str(path), number, position), str(error)))
                    break
                if data is None:
                    break
                place = Location(str(path), number, position)
                if not sound:
                    checked.defects.append((place, "the data has the wrong checksum"))
                else:
                    findings = check_record(kind, data)
                    checked.defects.extend((place, problem) for problem in findings.problems)
                    checked.notes.extend((place, note) for note in findings.notes)
                    checked.forms.extend([(place, findings.form)] if findings.form else [])
                number, position = number + 1, position + HEADER + len(data) + FOOTER
        if not number and not checked.defects:
            checked.notes.append((Location(str(path)), "no record in it"))
    except OSError as error:
        checked.defects.append((Location(str(path)), f"the file cannot be read: {error.strerror or error}"))
        size = 0
    return checked._replace(records=number, size=size)


def _read_record(stream: IO[bytes]) -> Tuple[Optional[bytes], bool]:
    """The next record, and whether it is as it was written; None at the end of the file."""
    try:
        header = stream.read(HEADER)
        if not header:
            return None, True
        if len(header) < HEADER:
            raise _Broken("the file ends inside a record's header")
        length, crc = struct.unpack("<QI", header)
        if masked_crc(header[:8]) != crc:
            raise _Broken("the length has the wrong checksum; the rest of the file cannot be read")
        if length > _LARGEST_RECORD:
            raise _Broken(f"a record of {length} bytes; the rest of the file cannot be read")
        data = stream.read(length + FOOTER)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _Broken(f"gzip cannot unpack the rest of the file: {error}") from error
    if len(data) < length + FOOTER:
        raise _Broken(f"the last {length + FOOTER - len(data)} bytes of the file are missing")
    body = data[:length]
    return body, masked_crc(body) == int.from_bytes(data[length:], "little")


def _plan(options: Dict[str, Any]) -> Any:
    """How the samples of a split are divided among the instances, if --replicas and --instances are given."""
    names = ("instances", "replicas", "micro_batch_size", "gradient_accumulation_count")
    instances, replicas, micro_size, accumulation = (options.get(name) for name in names)
    if not (instances or replicas or micro_size or accumulation):
        return None
    instances = instances or 1
    batch = Batch(micro_size or 1, replicas or instances, accumulation or 1)
    replicas = batch.replicas
    if replicas % instances:
        raise PlanError(
            f"{replicas} replicas are not divided evenly among {instances} instances",
            hint=f"use a multiple of {instances} for --replicas",
        )

    def shares(split: str, records: int) -> Dict[str, Any]:
        per_step = batch.micro_size * replicas
        if split == "train":
            steps = records // batch.global_size * batch.accumulation
            rest = {"left_out": records - steps * per_step}
        else:
            steps = -(-records // per_step)
            rest = {"padded": steps * per_step - records}
        return {"steps": steps, "instances": instances, "per_instance": steps * per_step // instances, **rest}

    return shares
