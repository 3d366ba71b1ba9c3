"""What an instance trains on and validates with: its share of a source, its trace, and what could not be read."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import numpy as np

from ipulaunch.configs.runs.events import Replaced, Replacement, Validating
from ipulaunch.data_pipeline.parallel import throttled
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.workers.backends.collective import Collective
from ipulaunch.workers.backends.interface import Feed, Maker, Trace
from ipulaunch.workers.instance import Instance


def training_feed(instance: Instance, source: Source, updates: range, trace: Optional[Trace] = None) -> Feed:
    """The micro-batches of this instance in these updates."""
    stream = training_stream(
        source,
        instance.batch,
        instance.backend.replicas,
        shuffle=instance.shuffle,
        updates=updates,
        by_replica=instance.backend.runs_by_replica,
        threads=instance.threads,
        remainder=instance.settings.training.remainder,
        traced=trace is not None,
    )
    return Feed(instance.sent(stream), _maker(source), trace)


def validation_feed(instance: Instance, source: Source) -> Feed:
    """The micro-batches of this instance in one pass over a validation set."""
    batch = instance.validation_batch
    stream = validation_stream(source, batch, instance.backend.replicas, threads=instance.threads)
    return Feed(instance.sent(stream), _maker(source))


def validation_progress(instance: Instance) -> Callable[[int, int], None]:
    """Records how far a validation is, at most every few seconds; one that is silent for long is considered hung."""
    return throttled(lambda done, total: instance.records.event(Validating(done, total)))


def _maker(source: Source) -> Optional[Maker]:
    """What makes the samples of a source that only has their numbers."""
    return getattr(source, "make", None)


@contextlib.contextmanager
def tracing(instance: Instance, source: Source) -> Iterator[Optional[Trace]]:
    """A function that writes a line per sample into this instance's samples.csv; nothing without --trace-samples."""
    if not instance.settings.training.trace_samples:
        yield None
        return
    replacements: Set[Tuple[int, int]] = set()

    def record_replacement(sample: int, by: int) -> None:
        """Only what the source itself knows to be bad: anything else that differs, an audit is to find."""
        if sample in source.bad and (sample, by) not in replacements:
            replacements.add((sample, by))
            instance.records.event(Replacement(sample, by, source.bad[sample].message))

    with instance.run.samples(instance.index).open("w", encoding="ascii") as file:

        def write(text: str) -> None:
            file.write(text)
            file.flush()  # an instance may be killed; a call to the system for each micro-batch is little beside it

        def trace(epoch: Any, update: Any, step: Any, replica: Any, planned: np.ndarray, read: np.ndarray) -> None:
            for at_place in np.flatnonzero(planned != read):
                record_replacement(int(planned[at_place]), int(read[at_place]))
            write("".join(f"{epoch},{update},{step},{replica},{number}\n" for number in read))

        write("epoch,update,step,replica,sample\n")
        yield trace


def count_skipped_records(instance: Instance, *sources: Source) -> Dict[str, int]:
    """How many samples were replaced, each counted once, and how many files were damaged; each is recorded."""
    samples, files = 0, 0
    for source in sources:
        for error in source.bad.values():
            instance.records.event(Replaced(error.message))
        samples += _in_any([number for number in source.bad if number >= 0], instance.backend.collective)
        files += sum(number < 0 for number in source.bad)  # on instance 0 alone
    return {"replaced_samples": samples, "damaged_files": int(instance.backend.collective.sum(np.array([files]))[0])}


def _in_any(numbers: List[int], collective: Collective) -> int:
    """How many different numbers all instances together have; none is negative."""
    most = int(collective.rows(np.array([len(numbers)])).max())
    if not most:
        return 0
    table = collective.rows(np.array([*numbers, *[-1] * (most - len(numbers))], np.int64))
    return len(set(table[table >= 0].tolist()))
