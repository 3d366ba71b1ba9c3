"""Exported models: where each version lies, and the record beside it that says what it takes and gives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.configs.text import some

SIGNATURE, INPUT, OUTPUT = "serving_default", "input", "output"
SAVED_MODEL = "saved_model.pb"  # what makes a directory a SavedModel
PIXELS, COUNTS = "pixels from 0 to 255", "particle counts"
LOGITS, TARGETS = "logits", "targets"

_SCHEMA = 1
# TensorFlow Serving allows files of others in this folder of a SavedModel, and loads none of them.
_RECORD = Path("assets.extra") / "export.json"
_HALF_WRITTEN = re.compile(r"\.\d+\.\d+")  # as temporary_beside() names them


class Tensor(NamedTuple):
    """The input or the output of a model; the first number of its shape is the batch."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    values: str  # what they are


class ExportedWeights(NamedTuple):
    """Where the weights come from; nothing is known of random ones."""

    checkpoint: Optional[str] = None
    update: Optional[int] = None
    epoch: Optional[float] = None
    run: Optional[str] = None  # that wrote the checkpoint


class ExportRecord(NamedTuple):
    """What a client has to know of an exported model."""

    workload: str
    config: Optional[str]  # the preset
    model: str
    version: int
    backend: str
    tensorflow: str
    python: str
    input: Tensor
    output: Tensor
    classes: Optional[int]
    precision: str
    iterations: int  # of the program in a call
    pipeline_splits: Tuple[str, ...]  # of the exported program
    weights: ExportedWeights
    settings: Mapping[str, Any]  # as in job.yaml

    @property
    def name(self) -> str:
        """What a server calls the model."""
        return self.config or self.workload

    @property
    def batch_size(self) -> int:
        return self.input.shape[0]

    def data(self) -> Dict[str, Any]:
        """The record as plain data."""
        tensors = {"input": self.input._asdict(), "output": self.output._asdict(), "weights": self.weights._asdict()}
        derived = {"name": self.name, "signature": SIGNATURE, "batch_size": self.batch_size}
        return {"schema": _SCHEMA, **self._asdict(), **tensors, **derived}


def record_path(version: Path) -> Path:
    """Where the record of a version is."""
    return version / _RECORD


def to_json(record: ExportRecord) -> str:
    """The record as text; read_export() gives back an equal one."""
    return json.dumps(record.data(), indent=1) + "\n"


def read_export(version: Path) -> ExportRecord:
    """The record of a version that ipulaunch has exported."""
    path = record_path(version)
    try:
        data = parse_json(read_text(path))
        given = {name: data[name] for name in ExportRecord._fields}
        given.update(
            input=_tensor(data["input"]),
            output=_tensor(data["output"]),
            weights=ExportedWeights(**data["weights"]),
            pipeline_splits=tuple(data["pipeline_splits"]),
            settings=dict(data["settings"]),
        )
        return ExportRecord(**given)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not the record of an exported model: {error}", hint="ipulaunch export writes one"
        ) from error


def _tensor(data: Mapping[str, Any]) -> Tensor:
    return Tensor(**{**data, "shape": tuple(int(size) for size in data["shape"])})


def versions_in(directory: Path) -> List[int]:
    """The versions of a model that a server finds in a directory, the oldest first."""
    return sorted(int(path.name) for path in directory.iterdir() if _is_number(path.name) and path.is_dir())


def servable_versions(directory: Path) -> List[Tuple[int, Path]]:
    """The complete versions in a directory, the newest last; 001 and 1 are the same one."""
    found = {int(path.name): path for path in sorted(directory.iterdir()) if _is_number(path.name)}
    return sorted((number, path) for number, path in found.items() if (path / SAVED_MODEL).is_file())


def half_written_in(directory: Path) -> List[Path]:
    """What exports that were killed have left in a directory."""
    return [path for path in directory.iterdir() if _HALF_WRITTEN.fullmatch(path.name)]


def refuse_occupied(directory: Path, version: int, *, adds: bool) -> None:
    """Refuse a directory that a new version cannot go to.

    It is new or empty, or holds other versions and the user `adds` one by naming it.
    """
    if not directory.exists():
        return
    hint = "give --export-dir a new or an empty directory"
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", hint=hint)
    found = sorted(path.name for path in directory.iterdir() if not _HALF_WRITTEN.fullmatch(path.name))
    others = [name for name in found if not (_is_number(name) and (directory / name).is_dir())]
    if others:
        raise UsageError(f"{directory} holds {some(others, 3)}, and no versions of a model alone", hint=hint)
    versions = versions_in(directory)
    if version in versions:
        raise UsageError(
            f"{directory} holds version {version} of a model already",
            hint=f"--model-version {versions[-1] + 1} adds one",
        )
    if versions and not adds:
        raise UsageError(
            f"{directory} holds versions of a model already: {', '.join(map(str, versions))}",
            hint=f"--model-version {version} adds one, or {hint}",
        )


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()
