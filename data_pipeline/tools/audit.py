"""Proves from what the replicas say they took that a run used every sample exactly once in each epoch."""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.job import Job, from_yaml
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.data_pipeline.index import open_index
from ipulaunch.data_pipeline.order import Shuffle, whole_updates
from ipulaunch.data_pipeline.tools.parallel import Progress, Report, cores
from ipulaunch.data_pipeline.tools.sets import find_set
from ipulaunch.topology.batch import updates_per_epoch
from ipulaunch.topology.plan import Plan, from_json

_COLUMNS = ("epoch", "update", "step", "replica", "sample")
_SHOWN = 10  # discrepancies of each kind that are named


class _Findings:
    """Discrepancies, the first of each kind in words."""

    def __init__(self, report: Report) -> None:
        self.report, self.count, self.told = report, 0, 0

    def add(self, messages: List[str], count: int) -> None:
        self.count += count
        for message in messages[:_SHOWN]:
            self.told += 1
            self.report({"event": "defect", "message": message})


class _Run(NamedTuple):
    """What the run was to do."""

    plan: Plan
    job: Job
    samples: int
    updates: int  # of one epoch
    epochs: int


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Check the traces of a run against its plan, its job and the order that both imply."""
    directory = RunDirectory(Path(options["run"]))
    about = _read_run(directory)
    findings = _Findings(report)
    rows = _read_traces(directory, about, findings, report)
    epochs = np.unique(rows["epoch"]).tolist()
    for epoch in sorted(set(range(about.epochs)) | set(epochs)):
        _check_epoch(rows[rows["epoch"] == epoch], epoch, about, findings)
    batch = about.plan.batch
    return {
        "run": str(directory.path),
        "instances": about.plan.instances,
        "replicas": batch.replicas,
        "epochs": about.epochs,
        "updates_per_epoch": about.updates,
        "global_batch": batch.global_size,
        "samples": about.samples,
        "rows": len(rows),
        "remainder": about.job.settings.training.remainder,
        "discrepancies": findings.count,
        "told": findings.told,
    }


def _read_run(directory: RunDirectory) -> _Run:
    texts = []
    for path in (directory.plan, directory.job):
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}", hint="give the directory of a run: runs/NAME") from error
    plan, job = from_json(texts[0]), from_yaml(texts[1], str(directory.job))
    training = job.settings.training
    samples = _samples(directory, job, plan)
    updates = updates_per_epoch(samples, plan.batch, training.remainder)
    return _Run(plan, job, samples, updates, training.num_epochs)


def _samples(directory: RunDirectory, job: Job, plan: Plan) -> int:
    """How many samples an epoch had: as many as asked for, or all of a set that has fewer."""
    data = job.settings.data
    if data.data_dir is None:
        return int(data.n_train)
    if Path(data.data_dir).is_dir():
        files = find_set(Path(data.data_dir)).splits.get("train", ())
        return min(int(data.n_train), open_index(files, threads=cores()).records)
    if job.settings.training.remainder == "drop":  # the set is gone; the run has said what it had
        for event in _events(directory):
            if event.get("event") == "training":
                return int(event["updates_per_epoch"]) * plan.batch.global_size + int(event["left_out"])
    raise DataError(f"{data.data_dir} is not there any more, so its samples cannot be counted")


def _events(directory: RunDirectory) -> Iterator[Dict[str, Any]]:
    if directory.events(0).exists():
        for line in directory.events(0).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def _read_traces(directory: RunDirectory, about: _Run, findings: _Findings, report: Report) -> np.ndarray:
    """The rows of all instances, and whether each instance wrote as many, of its own replicas only."""
    progress = Progress(report, "instances", about.plan.instances)
    local, parts = about.plan.replicas_per_instance, []
    for placement in about.plan.placements:
        part = _read_trace(directory.samples(placement.instance))
        first = placement.first_replica
        foreign = part[(part["replica"] < first) | (part["replica"] >= first + local)]
        messages = [
            f"instance {placement.instance}, which holds replicas {first} to {first + local - 1}: {_words(row)}"
            for row in foreign[:_SHOWN]
        ]
        findings.add(messages, len(foreign))
        parts.append(part)
        progress.add()
    counts = [len(part) for part in parts]
    if len(set(counts)) > 1:
        low, high = int(np.argmin(counts)), int(np.argmax(counts))
        findings.add([f"instance {low} took {counts[low]} samples, instance {high} took {counts[high]}"], 1)
    return np.concatenate(parts)


def _read_trace(path: Path) -> np.ndarray:
    try:
        head, _, body = path.read_text(encoding="ascii").partition("\n")
    except (OSError, UnicodeDecodeError) as error:
        hint = "samples are traced when a run is started with --trace-samples"
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}", hint=hint) from error
    if head.split(",") != list(_COLUMNS):
        raise DataError(f"{path} starts with {head[:60]!r}, expected {','.join(_COLUMNS)}")
    lines = body.count("\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy stops at what is no number; the count tells
        try:
            values = np.fromstring(body.replace("\n", ","), np.int64, sep=",")
        except ValueError:
            values = np.empty(0, np.int64)
    if len(values) != lines * len(_COLUMNS) or not (body.endswith("\n") or not body):
        raise DataError(f"{path}: not every line has {len(_COLUMNS)} numbers", hint="was the run cut off?")
    return values.view([(name, np.int64) for name in _COLUMNS]).reshape(-1)


def _check_epoch(rows: np.ndarray, epoch: int, about: _Run, findings: _Findings) -> None:
    """One epoch against its order: every place filled once, with the samples that belong there."""
    batch, training = about.plan.batch, about.job.settings.training
    if epoch >= about.epochs:
        findings.add([f"epoch {epoch}, after the last of {about.epochs}: {_words(rows[0])}"], len(rows))
        return
    data = about.job.settings.data
    shuffle = Shuffle(training.seed, data.shuffle_block, data.shuffle_window)
    order, _ = whole_updates(about.samples, shuffle, epoch, batch, training.remainder)
    update = rows["update"] - epoch * about.updates
    inside = (update >= 0) & (update < about.updates) & (rows["step"] >= 0) & (rows["step"] < batch.accumulation)
    inside &= (rows["replica"] >= 0) & (rows["replica"] < batch.replicas)
    findings.add([f"there is no such place: {_words(row)}" for row in rows[~inside][:_SHOWN]], int((~inside).sum()))
    rows, update = rows[inside], update[inside]
    place = (update * batch.accumulation + rows["step"]) * batch.replicas + rows["replica"]
    counts = np.bincount(place, minlength=len(order) // batch.micro_size)
    _check_places(counts, epoch, about, findings)

    # Within a micro-batch the order of samples means nothing.
    taken = rows["sample"][np.lexsort((rows["sample"], place))]
    expected = np.sort(order.reshape(-1, batch.micro_size), axis=1)
    full = counts == batch.micro_size
    starts = (np.cumsum(counts) - counts)[full]
    cells = taken[starts[:, None] + np.arange(batch.micro_size)] if len(starts) else expected[full]
    wrong = np.flatnonzero((cells != expected[full]).any(axis=1))
    numbers = np.flatnonzero(full)
    messages = [
        f"{_place_words(number, epoch, about)} took {cell.tolist()}, expected {expected[number].tolist()}"
        for number, cell in zip(numbers[wrong[:_SHOWN]].tolist(), cells[wrong[:_SHOWN]])
    ]
    findings.add(messages, len(wrong))

    if training.remainder == "drop":
        samples, times = np.unique(rows["sample"], return_counts=True)
        again = samples[times > 1]
        messages = [f"epoch {epoch}: sample {sample} was taken more than once" for sample in again[:_SHOWN].tolist()]
        findings.add(messages, len(again))
    else:
        lost = np.setdiff1d(np.arange(about.samples), rows["sample"])
        findings.add(
            [f"epoch {epoch}: sample {sample} was never taken" for sample in lost[:_SHOWN].tolist()], len(lost)
        )


def _check_places(counts: np.ndarray, epoch: int, about: _Run, findings: _Findings) -> None:
    size = about.plan.batch.micro_size
    wrong = np.flatnonzero(counts != size)
    messages = [
        f"{_place_words(number, epoch, about)} took {counts[number]} samples, expected {size}"
        for number in wrong[:_SHOWN].tolist()
    ]
    findings.add(messages, len(wrong))


def _place_words(number: int, epoch: int, about: _Run) -> str:
    batch = about.plan.batch
    rest, replica = divmod(number, batch.replicas)
    update, step = divmod(rest, batch.accumulation)
    return f"epoch {epoch}, update {epoch * about.updates + update}, step {step}, replica {replica}"


def _words(row: Any) -> str:
    return ", ".join(f"{name} {row[name]}" for name in _COLUMNS)
