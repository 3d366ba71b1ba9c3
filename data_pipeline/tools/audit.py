"""Proves from the traces of the replicas that a run used every sample exactly once in each epoch.

Here, an epoch is a pass over the samples, even if the run defines it as a number of weight updates. A resumed run has
several attempts; the audit takes from each the updates that no later attempt repeated.
"""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Set, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.configs.runs.untrusted import read_text
from ipulaunch.configs.settings.data import Data
from ipulaunch.data_pipeline.order import shuffle_of, whole_updates
from ipulaunch.data_pipeline.parallel import Progress, Report
from ipulaunch.data_pipeline.tools.traces import COLUMNS, Attempt, Begun, read_attempts, read_trace
from ipulaunch.topology.planning.batch import updates_per_epoch
from ipulaunch.topology.planning.plan import Plan, from_json

_SHOWN = 10  # discrepancies of each kind to show
_BYTES_PER_SAMPLE = 28  # to draw the order of a pass
_MANY_ROWS = 1_000_000  # rows that may be missing, or nine tenths of a larger run, before the run is refused


class _Findings:
    """Discrepancies, the first of each kind in words, and replaced samples, which are not discrepancies."""

    def __init__(self, report: Report) -> None:
        self.report, self.count, self.told, self.replaced = report, 0, 0, 0

    def add(self, messages: List[str], count: int) -> None:
        self.count += count
        for message in messages[:_SHOWN]:
            self.told += 1
            self.report({"event": "defect", "message": message})


class _Run(NamedTuple):
    """What the run was meant to do."""

    plan: Plan
    job: Job
    samples: int
    updates: range  # from where it was resumed to its end
    per_pass: int  # updates of one pass over the samples
    replacements: Set[Tuple[int, int]]

    @property
    def passes(self) -> range:
        return range(self.updates.start // self.per_pass, -(-self.updates.stop // self.per_pass))

    def part_of(self, epoch: int) -> range:
        """The updates of a pass that the run made: not all of them if the run was resumed or ended within the pass."""
        start = epoch * self.per_pass
        return range(max(start, self.updates.start), min(start + self.per_pass, self.updates.stop))


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Check the traces of a run against its plan, its job and the order that both imply."""
    directory = RunDirectory(Path(options["run"]))
    findings = _Findings(report)
    plan, job = _read_run(directory)
    attempts = read_attempts(directory, plan.instances)
    planned = _check_begun(directory, plan, job, attempts, findings)
    traces = _read_traces(attempts, plan, findings, report)
    about = planned._replace(updates=range(planned.updates.start, _last_update(attempts[-1], traces[-1], planned)))
    given_up = _given_up(attempts, about.updates.stop, planned.updates.stop)
    rows = np.concatenate([_part(*each, findings) for each in zip(attempts, traces, given_up)])
    _require_plausible(directory, about, len(rows))
    known = (rows["epoch"] >= about.passes.start) & (rows["epoch"] < about.passes.stop)
    _add_nowhere(rows[~known], findings)
    for epoch in about.passes:
        _check_epoch(rows[rows["epoch"] == epoch], epoch, about, findings)
    training = job.settings.training
    return {
        "run": str(directory.path),
        "attempts": len(attempts),
        "instances": plan.instances,
        "replicas": plan.batch.replicas,
        "epochs": training.num_epochs,
        "updates_per_epoch": planned.updates.stop // training.num_epochs,
        "updates_per_pass": about.per_pass,
        "first_update": about.updates.start,
        "last_update": about.updates.stop,
        "global_batch": plan.batch.global_size,
        "samples": about.samples,
        "rows": len(rows),
        "replaced": findings.replaced,
        "remainder": training.remainder,
        "discrepancies": findings.count,
        "told": findings.told,
    }


def _read_run(directory: RunDirectory) -> Tuple[Plan, Job]:
    texts = []
    for path in (directory.plan, directory.job):
        try:
            texts.append(read_text(path))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}", hint="give the directory of a run: runs/NAME") from error
    return from_json(texts[0]), from_yaml(texts[1], str(directory.job))


def _check_begun(
    directory: RunDirectory, plan: Plan, job: Job, attempts: Sequence[Attempt], findings: _Findings
) -> _Run:
    """The run as planned to its end; reports instances that began with other numbers."""
    training = job.settings.training
    samples = attempts[0].begun[0].samples
    per_pass = updates_per_epoch(samples, plan.batch, training.remainder)
    per_epoch = training.weight_updates_per_epoch or per_pass
    total = training.num_epochs * per_epoch
    # Only the run knows its first update and its number of samples; everything else must follow from its job.
    for attempt in attempts:
        expected = Begun(samples, training.num_epochs, per_epoch, attempt.first_update)
        wrong = [instance for instance, said in enumerate(attempt.begun) if said != expected]
        words = [f"{attempt.name}instance {at} began with {attempt.begun[at]}, expected {expected}" for at in wrong]
        findings.add(words, len(wrong))
    first, latest = attempts[0].first_update, attempts[-1].first_update
    if not 0 <= first < total or latest > total:
        said = first if latest <= total else latest
        raise DataError(f"{directory.path}: the run began at update {said}, and it has {total}")
    if first and training.resume is None:
        findings.add([f"the run began at update {first}, and does not resume another"], 1)
    _check_samples(samples, job.settings.data, findings)
    replacements = set().union(*(attempt.replacements for attempt in attempts))
    return _Run(plan, job, samples, range(first, total), per_pass, replacements)


def _check_samples(samples: int, data: Data, findings: _Findings) -> None:
    """As many samples as requested, or fewer if they come from a set."""
    if samples > data.n_train or (samples < data.n_train and data.directory is None):
        findings.add([f"the run trained on {samples} samples, and the job has {data.n_train}"], 1)


def _require_plausible(directory: RunDirectory, about: _Run, rows: int) -> None:
    """Refuse a run whose records claim far more than its traces hold, or than fits into memory."""
    expected = (about.updates.stop - about.updates.start) * about.plan.batch.global_size
    if expected > max(_MANY_ROWS, 10 * rows):
        raise DataError(f"{directory.path}: the traces have {rows} rows, the run says that it took {expected} samples")
    drawn = about.samples + about.job.settings.data.shuffle_block
    if drawn * _BYTES_PER_SAMPLE > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise DataError(f"{directory.path}: the order of {about.samples} samples does not fit into memory")


def _read_traces(
    attempts: Sequence[Attempt], plan: Plan, findings: _Findings, report: Report
) -> List[List[np.ndarray]]:
    """The rows of every instance of every attempt, and whether they are of its own replicas only."""
    progress = Progress(report, "instances", sum(attempt.instances for attempt in attempts))
    traces: List[List[np.ndarray]] = []
    for attempt in attempts:
        traces.append([])
        local = plan.replicas // attempt.instances
        for instance in range(attempt.instances):
            rows = read_trace(attempt.directory.samples(instance))
            first, last = instance * local, (instance + 1) * local - 1
            foreign = rows[(rows["replica"] < first) | (rows["replica"] > last)]
            messages = [
                f"{attempt.name}instance {instance}, which holds replicas {first} to {last}: {_words(row)}"
                for row in foreign[:_SHOWN]
            ]
            findings.add(messages, len(foreign))
            traces[-1].append(rows)
            progress.add()
    return traces


def _last_update(attempt: Attempt, traces: Sequence[np.ndarray], planned: _Run) -> int:
    """How many updates the run made.

    For a run without an end: those in its records, and later ones for which all replicas took all samples, as a killed
    instance records nothing more.
    """
    if attempt.is_done:
        return planned.updates.stop
    updates = np.concatenate([rows["update"] for rows in traces])
    updates = updates[(updates >= attempt.first_update) & (updates < planned.updates.stop)]
    made, counts = np.unique(updates, return_counts=True)
    whole = made[counts >= planned.plan.batch.global_size]
    traced = int(whole[-1]) + 1 if len(whole) else attempt.first_update
    return max(traced, min(attempt.last_update, planned.updates.stop))


def _given_up(attempts: Sequence[Attempt], stop: int, total: int) -> List[range]:
    """The updates of each attempt to leave out: the next attempt repeated them, or the run was killed during them."""
    last = range(0) if attempts[-1].is_done else range(stop, stop + 1)
    return [*(range(later.first_update, total) for later in attempts[1:]), last]


def _part(attempt: Attempt, traces: Sequence[np.ndarray], given_up: range, findings: _Findings) -> np.ndarray:
    """The rows of an attempt without the given-up updates; reports instances with fewer rows than others."""
    parts = [rows[(rows["update"] < given_up.start) | (rows["update"] >= given_up.stop)] for rows in traces]
    counts = [len(part) for part in parts]
    if len(set(counts)) > 1:
        low, high = int(np.argmin(counts)), int(np.argmax(counts))
        words = f"instance {low} took {counts[low]} samples, instance {high} took {counts[high]}"
        findings.add([attempt.name + words], 1)
    return np.concatenate(parts)


def _check_epoch(rows: np.ndarray, epoch: int, about: _Run, findings: _Findings) -> None:
    """One pass against its order: every place of its updates filled once, with the samples that belong there."""
    batch, training = about.plan.batch, about.job.settings.training
    updates = about.part_of(epoch)
    shuffle = shuffle_of(about.job.settings, about.plan)
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

    # Within a micro-batch the order of samples does not matter.
    taken = rows["sample"][np.lexsort((rows["sample"], place))]
    expected = np.sort(order.reshape(-1, batch.micro_size), axis=1)
    full = counts == batch.micro_size
    starts = (np.cumsum(counts) - counts)[full]
    cells = taken[starts[:, None] + np.arange(batch.micro_size)] if len(starts) else expected[full]
    numbers, messages = np.flatnonzero(full), []
    for at in np.flatnonzero((cells != expected[full]).any(axis=1)):
        cell, planned = cells[at].tolist(), expected[numbers[at]].tolist()
        replaced = _count_replaced(cell, planned, about.replacements)
        findings.replaced += replaced
        if replaced:
            taken[starts[at] : starts[at] + batch.micro_size] = planned  # each counts for the sample that it replaced
        else:
            messages.append(f"{_place_words(numbers[at], epoch, about)} took {cell}, expected {planned}")
    findings.add(messages, len(messages))

    if training.remainder == "drop":
        samples, times = np.unique(taken, return_counts=True)
        again = samples[times > 1]
        messages = [f"epoch {epoch}: sample {sample} was taken more than once" for sample in again[:_SHOWN].tolist()]
        findings.add(messages, len(again))
    elif len(updates) == about.per_pass:
        lost = np.setdiff1d(np.arange(about.samples), taken)
        findings.add(
            [f"epoch {epoch}: sample {sample} was never taken" for sample in lost[:_SHOWN].tolist()], len(lost)
        )


def _count_replaced(taken: List[int], planned: List[int], replacements: Set[Tuple[int, int]]) -> int:
    """How many samples of a micro-batch were replaced, if recorded replacements explain every difference; else 0."""
    missing = collections.Counter(planned) - collections.Counter(taken)
    others = collections.Counter(taken) - collections.Counter(planned)
    for sample in missing.elements():
        by = next((other for other in others if (sample, other) in replacements), None)
        if by is None:
            return 0
        others -= collections.Counter([by])
    return sum(missing.values())


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


def _words(row: Any) -> str:
    return ", ".join(f"{name} {row[name]}" for name in COLUMNS)
