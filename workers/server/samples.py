"""Validation samples of a workload in a file that senders share, and their labels where they are classes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Tuple

import numpy as np

from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.data_pipeline.reported import Report
from ipulaunch.topology.planning.popdist import read_place
from ipulaunch.workers.pasted_line import plan_of_pasted_line
from ipulaunch.workers.server.sender import LABELS, SAMPLES
from ipulaunch.workers.startup import prepare_tensorflow, start_pasted

MOST_BYTES = 2**28  # of samples in all; where there are more, senders take these again


def run(options: Mapping[str, Any], report: Report) -> Dict[str, Any]:
    """Write the bytes of the samples, and of their labels, to a directory; returns what they are."""
    job = _validating(from_yaml(options["job"], "the settings"))
    directory = Path(options["directory"])
    parts: Any = []
    labels: Any = []
    done = 0
    for inputs, targets, total in _micro_batches(job, options["count"], report):
        parts.append(inputs)
        labels.append(targets)
        done += len(inputs)
        report({"event": "progress", "what": "samples", "done": done, "total": total})
    targets = np.concatenate(labels)
    is_class = targets.ndim == 1 and targets.dtype.kind in "iu"
    samples = np.concatenate(parts)
    samples.tofile(directory / SAMPLES)
    if is_class:
        targets.astype(np.int64).tofile(directory / LABELS)
    return {"dtype": samples.dtype.name, "shape": samples.shape, "is_synthetic": job.settings.data.is_synthetic}


def _validating(job: Job) -> Job:
    """The job that only reads the validation set; samples that nobody has named are synthetic."""
    data, training = job.settings.data, job.settings.training
    if data.is_unnamed or data.is_synthetic:
        data = dataclasses.replace(data, synthetic_data="cpu")
    training = dataclasses.replace(training, training=False, validation=True)
    return job._replace(settings=dataclasses.replace(job.settings, data=data, training=training))


def _micro_batches(job: Job, count: int, report: Report) -> Iterator[Tuple[Any, Any, int]]:
    """Micro-batches as the source has them, and how many samples there will be."""
    start = start_pasted(job, read_place({}, 1))
    threads = prepare_tensorflow(start)

    from ipulaunch.data_pipeline.sources.selection import make_sources
    from ipulaunch.data_pipeline.sources.source import data_errors
    from ipulaunch.data_pipeline.stream import validation_stream

    plan = plan_of_pasted_line(job, start.batch, start.place, start.binding, lambda text: [text])

    def progress(what: str, done: int, total: int) -> None:
        report({"event": "progress", "what": what, "done": done, "total": total})

    source = make_sources(job, plan, 0, threads.data, meet=lambda text: text, progress=progress)["validation"]
    left = total = min(count, source.samples)
    with data_errors(source):
        stream = validation_stream(source, start.batch, range(1), threads=threads.data)
        for inputs, targets, weights in stream.as_numpy_iterator():
            size = min(int(np.count_nonzero(weights)), left)
            if total == min(count, source.samples):
                total = min(total, max(1, MOST_BYTES // (inputs[0].nbytes or 1)))
                left = min(left, total)
            size = min(size, left)
            yield inputs[:size], targets[:size], total
            left -= size
            if not left:
                return
