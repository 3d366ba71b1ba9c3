"""What the parts of a run and its backends give each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Generic,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    TypeVar,
)  # fmt: skip

import numpy as np
import tensorflow as tf

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.workers.backends.collective import Collective
from ipulaunch.workers.backends.stopwatch import Stopwatch, TimedCollective
from ipulaunch.workers.models.measures import Measure, measures_of
from ipulaunch.workers.models.optimizers import scaled_rate

Maker = Callable[[Any], Any]  # (numbers of a micro-batch) to its (inputs, targets), in the step
Progress = Callable[[int, int], object]  # (micro-batches done, in all)
Trace = Callable[..., None]  # (epoch, update, step, replica, numbers planned, numbers read) of a micro-batch


class Feed(NamedTuple):
    """Micro-batches for fit() and validate()."""

    stream: tf.data.Dataset
    make: Optional[Maker] = None  # where the stream has the numbers of samples alone
    trace: Optional[Trace] = None  # where it has them beside the samples


class Trained(Protocol):
    """A model that a backend has prepared."""

    @property
    def more(self) -> List[Any]:
        """State that a checkpoint has to hold beside weights and optimizer."""

    def fit(self, feed: Feed, *, epochs: int, steps_per_epoch: int, callbacks: Sequence[Any]) -> Any:
        """Train on a feed; an epoch is a device call."""


Model = TypeVar("Model", bound=Trained)


class Estimators(ABC):
    """Makes Estimators for the devices of an instance."""

    returns_each_step: bool  # to the host, in evaluation

    def __init__(self, backend: Backend[Any]) -> None:
        self.settings, self.plan, self.collective = backend.settings, backend.plan, backend.collective
        self.batch, self.replicas, self.times = backend.batch, backend.replicas, backend.times
        self.measures = measures_of(self.settings)
        self.learning_rate = scaled_rate(self.settings.optimizer, self.batch)

    def over_instances(self, found: Mapping[str, Any], weight: float) -> Dict[str, float]:
        """The means over the samples of all instances, from those of this one and how many samples it had."""
        sums = [float(found[f"mean_{measure.name}"]) * weight for measure in self.measures]
        totals = self.collective.sum(np.array([*sums, weight]))
        return {measure.name: float(totals[i] / totals[-1]) for i, measure in enumerate(self.measures)}

    @abstractmethod
    def updates_per_run(self, updates_per_call: int) -> int:
        """Weight updates between two returns to the host."""

    @abstractmethod
    def evaluation_steps(self, steps: int) -> int:
        """How many steps evaluation is padded to."""

    @abstractmethod
    def begin_after(self, update: int) -> None:
        """Draw the random numbers of the updates that follow."""

    @abstractmethod
    def make(self, config: Dict[str, Any], steps_per_call: int, is_training: bool) -> Any:
        """An Estimator that runs so many steps in a device call."""

    @abstractmethod
    def training_feed(self, stream: tf.data.Dataset) -> tf.data.Dataset:
        """A training stream as the Estimator takes it."""

    @abstractmethod
    def evaluation_feed(self, stream: tf.data.Dataset, micro_size: int, more: int) -> tf.data.Dataset:
        """A validation stream as the Estimator takes it, with so many micro-batches more, which weigh nothing."""


class Backend(ABC, Generic[Model]):
    """Builds, trains and validates a model on the devices of this instance."""

    runs_by_replica: bool  # all micro-batches of a replica, then those of the next
    steps_per_update: int  # as the model's fit() counts them

    def __init__(self, settings: WorkloadSettings, plan: Plan, index: int, collective: Collective) -> None:
        self.settings, self.plan, self.index, self.times = settings, plan, index, Stopwatch()
        self.collective = TimedCollective(collective, self.times) if plan.instances > 1 else collective
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Get ready to make models."""

    @property
    def batch(self) -> Batch:
        """How all instances together divide the samples of an update."""
        return self.plan.batch

    @property
    def replicas(self) -> range:
        """The replicas of this instance, among those of all."""
        return self.plan.replicas_of(self.index)

    def report_to(self, directory: Path) -> None:
        """Write there what --profile asks for, which is nothing on CPUs."""

    @abstractmethod
    def scope(self) -> ContextManager[None]:
        """Models are made inside it."""

    @abstractmethod
    def dropout(self, rate: float, name: str) -> Any:
        """A layer."""

    @abstractmethod
    def prepare(self, model: tf.keras.Model, optimizer: Any, measures: Sequence[Measure], events: HostEvents) -> Model:
        """The model, ready for fit(), with the weights of instance 0 on all; the first measure is the loss."""

    @abstractmethod
    def validate(self, model: Model, feed: Feed, samples: int, micro_size: int, progress: Progress) -> Dict[str, float]:
        """The measures over the whole set, as one process would find them."""

    @abstractmethod
    def export(self, model: tf.keras.Model, spec: tf.TensorSpec, directory: Path, iterations: int) -> None:
        """Write a model as a program for servers, which takes inputs like this and runs so many times in a call."""

    @abstractmethod
    def estimators(self) -> Estimators:
        """What makes Estimators for the same devices."""
