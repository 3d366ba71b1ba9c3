"""What a run with an Estimator asks of the backend that makes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Dict

import tensorflow as tf


class Estimators(ABC):
    """Makes Estimators for the devices of this instance."""

    returns_each_step: bool  # to the host, in evaluation

    @abstractmethod
    def updates_per_run(self, updates_per_call: int) -> int:
        """Weight updates between two returns to the host."""

    @abstractmethod
    def evaluation_steps(self, steps: int) -> int:
        """How many steps evaluation is padded to."""

    @abstractmethod
    def make(self, config: Dict[str, Any], steps_per_call: int, is_training: bool) -> Any:
        """An Estimator that runs so many steps in a device call."""

    @abstractmethod
    def training_feed(self, stream: tf.data.Dataset) -> tf.data.Dataset:
        """A training stream as the Estimator takes it."""

    @abstractmethod
    def evaluation_feed(self, stream: tf.data.Dataset, micro_size: int, more: int) -> tf.data.Dataset:
        """A validation stream as the Estimator takes it, with so many micro-batches more, which count nothing."""
