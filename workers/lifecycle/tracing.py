"""Traces what the replicas of an instance take: a line for every sample, and a record of each that was replaced."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional, Set, Tuple

import numpy as np

from ipulaunch.configs.runs.events import Replacement
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.workers.backends.interface import Trace
from ipulaunch.workers.instance import Instance


@contextlib.contextmanager
def tracing(instance: Instance, source: Source) -> Iterator[Optional[Trace]]:
    """What writes a line per sample of a micro-batch into this instance's samples.csv, if that is asked for."""
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
