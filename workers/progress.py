"""What happens between the updates of a training: records, logs and checkpoints."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Dict, Mapping

import tensorflow as tf

from ipulaunch.configs.errors import DataError, JobError, StoppedError
from ipulaunch.configs.runs.events import Log, Update
from ipulaunch.topology.planning.batch import samples_of
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.workers.instance import Instance

_EVENT_INTERVAL_S = 0.2  # a display shows no more; a million updates need not leave a million lines


class Progress(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Counts updates, records them, and calls `log` and `save` when their time has come."""

    def __init__(
        self,
        instance: Instance,
        events: HostEvents,
        log: Callable[[Dict[str, Any]], None],
        save: Callable[[Progress], None],
        samples: int,
    ) -> None:
        super().__init__()
        self.instance, self.events, self.log, self.save, self.samples = instance, events, log, save, samples
        self.times = instance.backend.times
        self.updates = 0
        self.call_updates, self.here_s, self.lap = 0, 0.0, 0.0
        self.earlier_s = 0.0  # of the training that this one continues
        self.warm_updates, self.warm_s = 0, 0.0  # without the first call, which compiles
        self.last_event = 0.0
        self.metrics: Dict[str, float] = {}
        self.sums: Dict[str, float] = {}  # since the last log
        self.summed = 0.0  # updates; one that was padded is counted in part

    @property
    def facts(self) -> Dict[str, Any]:
        """What a resumed training needs to write the same next log, and to end with the same last one."""
        since_log = {"updates": self.summed, "sums": dict(self.sums), "logged": dict(self.metrics)}
        return {"since_log": since_log, "train_s": self.train_s}

    @property
    def train_s(self) -> float:
        """The seconds that all updates took, those of earlier processes among them."""
        return self.earlier_s + self.here_s

    def samples_in(self, updates: range) -> int:
        return samples_of(updates, self.samples, self.instance.batch, self.instance.settings.training.remainder)

    def continue_from(self, path: str, update: int, facts: Mapping[str, Any]) -> None:
        """Go on at the update of a checkpoint; older ones do not have the time that their training took."""
        try:
            since_log = facts["since_log"]
            self.updates, self.summed = update, float(since_log["updates"])
            self.earlier_s = float(facts.get("train_s", 0.0))
            self.sums = {name: float(value) for name, value in since_log["sums"].items()}
            self.metrics = {name: float(value) for name, value in since_log.get("logged", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DataError(f"{path} does not say what was summed since the last log: {error!r}") from error

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.call_updates, self.lap = 0, time.perf_counter()

    def on_train_batch_begin(self, step: int, logs: Any = None) -> None:
        self.times.turn_to("device")

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        self.times.turn_to("other")
        now = time.perf_counter()
        # Updates since the last return to the host.
        new = (step + 1) // self.instance.backend.steps_per_update - self.call_updates
        seconds = now - self.lap
        if self.here_s:
            self.warm_updates, self.warm_s = self.warm_updates + new, self.warm_s + seconds
        filled = self.samples_in(range(self.updates, self.updates + new)) / self.instance.batch.global_size
        self.updates, self.call_updates = self.updates + new, self.call_updates + new
        self.here_s += seconds
        # Samples of weight 0 add nothing to what was measured, and are counted in its mean.
        values = {name: float(value) * new / filled for name, value in (logs or {}).items()}
        self._require_finite(values)
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * filled
        self.summed += filled
        with self.times.part("logging"):
            if now - self.last_event >= _EVENT_INTERVAL_S:
                self.last_event = now
                self.instance.records.event(Update(self.updates, self.rate(), values))
            if self.events.logs_at(self.updates):
                self._log()
        saves = self.events.saves_at(self.updates)
        if saves:
            self._save()
        if self.instance.stop.agreed():
            if not saves:
                self._save()
            self.instance.record_times(self.updates)
            raise StoppedError(f"stopped on request after update {self.updates}, with a checkpoint")
        self.lap = time.perf_counter()

    def _save(self) -> None:
        with self.times.part("checkpoint"):
            self.save(self)

    def _require_finite(self, values: Dict[str, float]) -> None:
        """Stop a training whose loss is not a number: it has nothing left to learn, to log or to keep."""
        if not all(map(math.isfinite, values.values())):
            raise JobError(
                f"the loss is not finite any more after update {self.updates}: {values}",
                hint="lower the learning rate, or raise the precision; then resume, or start again",
            )

    def _log(self) -> None:
        means = {name: total / self.summed for name, total in self.sums.items()}
        self.metrics, self.sums, self.summed = means, {}, 0.0
        row = {"update": self.updates, "epoch": self.epoch, **means}
        self.instance.records.event(Log(self.events.epochs, self.rate(), self.updates, self.epoch, means))
        self.log({**row, "samples_per_s": self.rate() * self.instance.plan.instances, "train_s": self.train_s})
        self.instance.record_times(self.updates)

    @property
    def epoch(self) -> float:
        """Epochs made; a whole number at the end of one."""
        per_epoch = self.events.updates_per_epoch
        return self.updates // per_epoch if self.updates % per_epoch == 0 else round(self.updates / per_epoch, 4)

    def rate(self) -> float:
        """Samples per second of this instance's own replicas, compilation apart."""
        updates, seconds = self.warm_updates, self.warm_s
        if not updates:  # there was only the call that compiles
            updates, seconds = self.call_updates, self.here_s
        return updates * self.instance.batch.global_size / self.instance.plan.instances / seconds if seconds else 0.0
