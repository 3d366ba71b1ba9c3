"""What the loop of a run asks of Keras and of Estimators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.topology.planning.identity import identity_of
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.progress import Progress

Row = Dict[str, Any]
_REFUSED = "the settings refuse this with an Estimator"


class Begun(NamedTuple):
    """Where a training begins."""

    update: int  # so many were made before
    metrics: Optional[Path] = None  # what was measured until then
    checkpoint: str = ""  # that it continues from
    again: Tuple[str, ...] = ()  # names of earlier checkpoints that this training validates again


class Trainer(ABC):
    """Trains and evaluates the network of a job. The loop plans, announces, logs, records and judges for both kinds.

    The API of Estimators leaves these to them: they open a session of their own, so that they continue from their own
    directory and write checkpoints between two device calls; and they evaluate one checkpoint, the newest.
    """

    remedy = "lower the learning rate"  # where a validation loss is not finite

    def __init__(self, instance: Instance, events: HostEvents) -> None:
        self.instance, self.events = instance, events

    def identity_on(self, source: Source) -> Row:
        """What must not change between this training and the one that it continues."""
        job = self.instance.job
        return identity_of(job.workload, job.settings, self.instance.plan, source.samples)

    @property
    @abstractmethod
    def learning_rate(self) -> float:
        """The rate of the last update."""

    @property
    @abstractmethod
    def newest(self) -> str:
        """The newest checkpoint; all instances ask together."""

    @abstractmethod
    def begin(self, source: Source, progress: Progress) -> Begun:
        """Continue from a checkpoint, where there is one to continue from."""

    @abstractmethod
    def fit(self, source: Source, progress: Progress, start: int) -> None:
        """Make the updates that are left after the first `start`, and report each device call to the progress."""

    @abstractmethod
    def save(self, progress: Progress) -> None:
        """Write the checkpoint that is due after an update."""

    @abstractmethod
    def saved(self) -> List[Path]:
        """The checkpoints to evaluate, the same on all instances; without any, the weights that there are."""

    @abstractmethod
    def evaluate(self, checkpoint: Optional[Path], source: Source) -> Optional[Row]:
        """What validation finds, and the update; None for a checkpoint that is damaged."""

    def load(self, source: Source) -> None:
        """Load the compiled program before the clock starts."""
        raise NotImplementedError(_REFUSED)

    def compile_alone(self, sources: Mapping[str, Source]) -> List[str]:
        """Compile all that a run executes, and name it."""
        raise NotImplementedError(_REFUSED)

    def clean(self) -> None:
        """Remove the checkpoints of this run."""
        raise NotImplementedError(_REFUSED)
