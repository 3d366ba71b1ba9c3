"""What an instance trains on and validates with: its share of a source, as its backend takes it."""

from __future__ import annotations

from typing import Callable, Optional

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.data_pipeline.throttled import now_and_then
from ipulaunch.topology import Batch
from ipulaunch.workers.backends.interface import Feed, Maker, Trace
from ipulaunch.workers.instance import Instance


def shuffle_of(settings: WorkloadSettings) -> Shuffle:
    """The order in which a training takes its samples."""
    data = settings.data
    return Shuffle(settings.training.seed, data.shuffle_block, data.shuffle_window, data.shuffle)


def training_feed(at: Instance, source: Source, updates: range, trace: Optional[Trace] = None) -> Feed:
    """The micro-batches of this instance in these updates."""
    stream = training_stream(
        source,
        at.batch,
        at.place,
        shuffle=shuffle_of(at.job.settings),
        updates=updates,
        by_replica=at.backend.runs_by_replica,
        threads=at.threads,
        remainder=at.job.settings.training.remainder,
        traced=trace is not None,
    )
    return Feed(at.sent(stream), _maker(source), trace)


def validation_batch(at: Instance) -> Batch:
    """How validation divides its samples: a step of all replicas at a time."""
    return Batch(at.job.settings.training.validation_micro_batch_size or at.batch.micro_size, at.batch.replicas, 1)


def validation_feed(at: Instance, source: Source) -> Feed:
    """The micro-batches of this instance in one pass over a validation set."""
    stream = validation_stream(source, validation_batch(at), at.place, threads=at.threads)
    return Feed(at.sent(stream), _maker(source))


def validation_progress(at: Instance) -> Callable[[int, int], None]:
    """What records now and then how far a validation is: one that is silent for long would count as hung."""
    return now_and_then(lambda done, total: at.records.event("validating", done=done, total=total))


def _maker(source: Source) -> Optional[Maker]:
    """What makes the samples of a source that only has their numbers."""
    return getattr(source, "make", None)
