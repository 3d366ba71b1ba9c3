"""The learning rate over time."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict

import tensorflow as tf

from ipulaunch.configs.settings.optimization import Schedule


def learning_rate(settings: Schedule, rate: float, updates_per_epoch: int, epochs: int) -> Any:
    """What a Keras optimizer takes as its learning rate: a number if it never changes, otherwise a schedule."""
    if settings.name == "const" and not settings.warmup_epochs:
        return rate
    return RateOverTime(rate, updates_per_epoch, epochs, **dataclasses.asdict(settings))


class RateOverTime(tf.keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A shape over the weight updates, with its warm-up."""

    def __init__(self, rate: float, updates_per_epoch: int, epochs: int, **settings: Any) -> None:
        super().__init__()
        self.rate, self.updates_per_epoch, self.epochs = rate, updates_per_epoch, epochs
        self.settings = Schedule(**settings)
        self.is_shifted = self.settings.warmup_mode == "shift"
        self.warmup = round(self.settings.warmup_epochs * updates_per_epoch)
        decay = self.settings.epochs_to_total_decay
        if decay is None:
            decay = epochs - self.settings.warmup_epochs if self.is_shifted else epochs
        self.decay = max(1.0, decay * updates_per_epoch)  # a warm-up as long as the training leaves nothing

    def get_config(self) -> Dict[str, Any]:
        numbers = {"rate": self.rate, "updates_per_epoch": self.updates_per_epoch, "epochs": self.epochs}
        return {**numbers, **dataclasses.asdict(self.settings)}

    def __call__(self, step: Any) -> Any:
        # Whole numbers as long as possible, and 32 bits after: float16 has no odd numbers above 2048.
        step = tf.cast(step, tf.int32)
        if self.settings.staircase:
            step = step // self.updates_per_epoch * self.updates_per_epoch
        position = tf.cast(step, tf.float32)
        if not self.warmup:
            return self._shape(position)
        if self.is_shifted:
            position = tf.cast(tf.maximum(step - self.warmup, 0), tf.float32)
        shape = self._shape(position)
        # One more than the steps taken: otherwise a staircase would hold its first epoch at a rate of 0.
        ramp = tf.cast(step + 1, tf.float32) / (self.warmup + 1.0)
        return tf.where(step < self.warmup, shape * ramp, shape)

    def _shape(self, position: Any) -> Any:
        """The rate so many updates after the shape began."""
        settings = self.settings
        left = tf.maximum(self.decay - position, 0.0) / self.decay
        if settings.name == "cosine":
            # Half an angle, squared: 1 + cos would leave rounding errors as large as the last rates.
            share = tf.square(tf.sin(0.5 * math.pi * left))
        elif settings.name == "polynomial":
            end = settings.end_learning_rate_ratio
            share = (1.0 - end) * tf.pow(left, settings.power) + end
        else:
            share = tf.ones_like(position)
            if settings.name == "stepped":
                for boundary, factor in zip(settings.boundaries, settings.factors):
                    share = tf.where(position >= boundary * self.updates_per_epoch, factor, share)
        return self.rate * share
