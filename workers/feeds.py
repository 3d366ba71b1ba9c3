"""What an instance trains on and validates with: its share of a source, as its backend takes it."""

from __future__ import annotations

from typing import Any, Callable, Optional

from ipulaunch.configs.runs.events import Validating
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.data_pipeline.throttled import now_and_then
from ipulaunch.topology import Batch
from ipulaunch.workers.backends.interface import Feed, Maker, Trace
from ipulaunch.workers.instance import Instance


def shuffle_of(settings: Any) -> Shuffle:
    """The order in which a training takes its samples."""
    data = settings.data
    return Shuffle(settings.training.seed, data.shuffle_block, data.shuffle_window, data.shuffle)


def training_feed(instance: Instance, source: Source, updates: range, trace: Optional[Trace] = None) -> Feed:
    """The micro-batches of this instance in these updates."""
    stream = training_stream(
        source,
        instance.batch,
        instance.replicas,
        shuffle=shuffle_of(instance.settings),
        updates=updates,
        by_replica=instance.backend.runs_by_replica,
        threads=instance.threads,
        remainder=instance.settings.training.remainder,
        traced=trace is not None,
    )
    return Feed(instance.sent(stream), _maker(source), trace)


def validation_batch(instance: Instance) -> Batch:
    """How validation divides its samples: a step of all replicas at a time."""
    return Batch(
        instance.settings.training.validation_micro_batch_size or instance.batch.micro_size,
        instance.batch.replicas,
        1,
    )


def validation_feed(instance: Instance, source: Source) -> Feed:
    """The micro-batches of this instance in one pass over a validation set."""
    stream = validation_stream(source, validation_batch(instance), instance.replicas, threads=instance.threads)
    return Feed(instance.sent(stream), _maker(source))


def validation_progress(instance: Instance) -> Callable[[int, int], None]:
    """What records now and then how far a validation is: one that is silent for long would count as hung."""
    return now_and_then(lambda done, total: instance.records.event(Validating(done, total)))


def _maker(source: Source) -> Optional[Maker]:
    """What makes the samples of a source that only has their numbers."""
    return getattr(source, "make", None)
