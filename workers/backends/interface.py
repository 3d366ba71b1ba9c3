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
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    TypeVar,
)  # fmt: skip

import tensorflow as tf

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Batch
from ipulaunch.topology.networks.host_events import HostEvents
from ipulaunch.topology.planning.popdist import Place
from ipulaunch.workers.backends.collective import Collective
from ipulaunch.workers.models.measures import Measure

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


class Backend(ABC, Generic[Model]):
    """Builds, trains and validates a model on the devices of this instance."""

    runs_by_replica: bool  # all micro-batches of a replica, then those of the next
    steps_per_update: int  # as the model's fit() counts them

    def __init__(self, settings: WorkloadSettings, batch: Batch, place: Place, collective: Collective) -> None:
        self.settings, self.batch, self.place, self.collective = settings, batch, place, collective

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
