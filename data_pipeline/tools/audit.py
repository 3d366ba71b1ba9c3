"""Proves from what the replicas say they took that a run used every sample exactly once in each epoch.

An epoch is a pass over the samples here, also where the run counts a number of weight updates as one.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple

import numpy as np

from ipulaunch.configs.cosmoflow import CosmoflowData
from ipulaunch.configs.errors import DataError
from ipulaunch.configs.job import Job, from_yaml
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.data_pipeline.order import Shuffle, whole_updates
from ipulaunch.data_pipeline.tools.parallel import Progress, Report
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


class _Begun(NamedTuple):
    """What an instance said when it began to train."""

    samples: int
    epochs: int
    updates_per_epoch: int
    first_update: int


class _Run(NamedTuple):
    """What the run was to do."""

    plan: Plan
    job: Job
    samples: int
    updates: range  # from where it was resumed to its end
    per_pass: int  # updates of one pass over the samples

    @property
    def passes(self) -> range:
        return range(self.updates.start // self.per_pass, -(-self.updates.stop // self.per_pass))

    def part_of(self, epoch: int) -> range:
        """The updates that the run made of a pass: not all where it was resumed or ended inside of it."""
        start = epoch * self.per_pass
        return range(max(start, self.updates.start), min(start + self.per_pass, self.updates.stop))


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Check the traces of a run against its plan, its job and the order that both imply."""
    directory = RunDirectory(Path(options["run"]))
    findings = _Findings(report)
    about = _read_run(directory, findings)
    rows = _read_traces(directory, about, findings, report)
    known = (rows["epoch"] >= about.passes.start) & (rows["epoch"] < about.passes.stop)
    _add_nowhere(rows[~known], findings)
    for epoch in about.passes:
        _check_epoch(rows[rows["epoch"] == epoch], epoch, about, findings)
    batch, training = about.plan.batch, about.job.settings.training
    return {
        "run": str(directory.path),
        "instances": about.plan.instances,
        "replicas": batch.replicas,
        "epochs": training.num_epochs,
        "updates_per_epoch": about.updates.stop // training.num_epochs,
        "updates_per_pass": about.per_pass,
        "first_update": about.updates.start,
        "global_batch": batch.global_size,
        "samples": about.samples,
        "rows": len(rows),
        "remainder": training.remainder,
        "discrepancies": findings.count,
        "told": findings.told,
    }


def _read_run(directory: RunDirectory, findings: _Findings) -> _Run:
    texts = []
    for path in (directory.plan, directory.job):
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}", hint="give the directory of a run: runs/NAME") from error
    plan, job = from_json(texts[0]), from_yaml(texts[1], str(directory.job))
    training = job.settings.training
    begun = [_read_begun(directory.events(placement.instance)) for placement in plan.placements]
    samples, first = begun[0].samples, begun[0].first_update
    per_pass = updates_per_epoch(samples, plan.batch, training.remainder)
    per_epoch = training.weight_updates_per_epoch or per_pass
    # Where and on how many samples a run begins, only the run knows; what else it said must follow from its job.
    expected = _Begun(samples, training.num_epochs, per_epoch, first)
    wrong = [instance for instance, said in enumerate(begun) if said != expected]
    messages = [f"instance {at} began with {_values(begun[at])}, expected {_values(expected)}" for at in wrong]
    findings.add(messages, len(wrong))
    total = training.num_epochs * per_epoch
    if not 0 <= first < total:
        raise DataError(f"{directory.path}: the run began at update {first}, and it has {total}")
    if first and training.resume is None:
        findings.add([f"the run began at update {first}, and does not resume another"], 1)
    _check_samples(samples, job.settings.data, findings)
    return _Run(plan, job, samples, range(first, total), per_pass)


def _read_begun(events: Path) -> _Begun:
    said = [event for event in _events(events) if event.get("event") == "training"]
    if not said:
        raise DataError(f"{events.parent.parent}: the run did not begin to train", hint=f"{events} has no such event")
    try:
        return _Begun(*(int(said[-1][name]) for name in _Begun._fields))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{events}: the event of the training does not say {', '.join(_Begun._fields)}") from error


def _events(path: Path) -> Iterator[Dict[str, Any]]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the last line of a run that was killed
                yield json.loads(line)


def _check_samples(samples: int, data: Any, findings: _Findings) -> None:
    """As many as asked for, or fewer where they come from a set."""
    directory = data.data_dir if isinstance(data, CosmoflowData) else data.dataset_path
    if samples > data.n_train or (samples < data.n_train and directory is None):
        findings.add([f"the run trained on {samples} samples, asked for were {data.n_train}"], 1)


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
    """One pass against its order: every place of its updates filled once, with the samples that belong there."""
    batch, training = about.plan.batch, about.job.settings.training
    data = about.job.settings.data
    updates = about.part_of(epoch)
    shuffle = Shuffle(training.seed, data.shuffle_block, data.shuffle_window)
    order, _ = whole_updates(about.samples, shuffle, epoch, batch, training.remainder)
    before = updates.start - epoch * about.per_pass
    order = order[before * batch.global_size : (before + len(updates)) * batch.global_size]
    update = rows["update"] - updates.start
    inside = (update >= 0) & (update < len(updates)) & (rows["step"] >= 0) & (rows["step"] < batch.accumulation)
    inside &= (rows["replica"] >= 0) & (rows["replica"] < batch.replicas)
    _add_nowhere(rows[~inside], findings)
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
    elif len(updates) == about.per_pass:
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
    return f"epoch {epoch}, update {about.part_of(epoch).start + update}, step {step}, replica {replica}"


def _add_nowhere(rows: np.ndarray, findings: _Findings) -> None:
    findings.add([f"there is no such place: {_words(row)}" for row in rows[:_SHOWN]], len(rows))


def _values(begun: _Begun) -> str:
    return ", ".join(f"{name} {value}" for name, value in begun._asdict().items())


def _words(row: Any) -> str:
    return ", ".join(f"{name} {row[name]}" for name in _COLUMNS)
