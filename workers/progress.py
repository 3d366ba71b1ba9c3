"""What happens between the updates of a training: records, logs and checkpoints."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Dict

import tensorflow as tf

from ipulaunch.configs.errors import JobError, StoppedError
from ipulaunch.topology.host_events import HostEvents
from ipulaunch.workers.instance import Instance

_EVENT_INTERVAL_S = 0.2  # a display shows no more; a million updates need not leave a million lines


class Progress(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Counts updates, records them, and calls `log` and `save` when their time has come."""

    def __init__(
        self,
        at: Instance,
        events: HostEvents,
        log: Callable[[Dict[str, Any]], None],
        save: Callable[[Progress], None],
    ) -> None:
        super().__init__()
        self.at, self.events, self.log, self.save = at, events, log, save
        self.updates = 0
        self.call_updates, self.train_s, self.lap = 0, 0.0, 0.0
        self.warm_updates, self.warm_s = 0, 0.0  # without the first call, which compiles
        self.last_event = 0.0
        self.metrics: Dict[str, float] = {}
        self.sums: Dict[str, float] = {}  # since the last log
        self.summed = 0

    @property
    def since_log(self) -> Dict[str, Any]:
        """What a resumed training needs to write the same next log."""
        return {"updates": self.summed, "sums": dict(self.sums)}

    def continue_from(self, update: int, since_log: Dict[str, Any]) -> None:
        self.updates, self.summed = update, int(since_log["updates"])
        self.sums = {name: float(value) for name, value in since_log["sums"].items()}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.call_updates, self.lap = 0, time.perf_counter()

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        now = time.perf_counter()
        new = (step + 1) // self.at.backend.steps_per_update - self.call_updates  # since the last return to the host
        seconds = now - self.lap
        if self.train_s:
            self.warm_updates, self.warm_s = self.warm_updates + new, self.warm_s + seconds
        self.updates, self.call_updates = self.updates + new, self.call_updates + new
        self.train_s += seconds
        values = {name: float(value) for name, value in (logs or {}).items()}
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * new
        self.summed += new
        if now - self.last_event >= _EVENT_INTERVAL_S:
            self.last_event = now
            self.at.records.event("update", update=self.updates, samples_per_s=self.rate(), **values)
        if self.events.logs_at(self.updates):
            self._log()
        saves = self.events.saves_at(self.updates)
        if saves:
            self.save(self)
        if self.at.stop.agreed():
            if not saves:
                self.save(self)
            raise StoppedError(f"stopped on request after update {self.updates}, with a checkpoint")
        self.lap = time.perf_counter()

    def _log(self) -> None:
        means = {name: total / self.summed for name, total in self.sums.items()}
        if not all(map(math.isfinite, means.values())):
            raise JobError(
                f"the loss is not finite any more after update {self.updates}: {means}",
                hint="lower the learning rate; the last good state is the newest checkpoint",
            )
        self.metrics, self.sums, self.summed = means, {}, 0
        row = {"update": self.updates, "epoch": self.epoch, **means}
        self.at.records.event("log", samples_per_s=self.rate(), **row)
        self.log({**row, "samples_per_s": self.rate(), "train_s": self.train_s})

    @property
    def epoch(self) -> float:
        """Epochs made; a whole number at the end of one."""
        per_epoch = self.events.updates_per_epoch
        return self.updates // per_epoch if self.updates % per_epoch == 0 else round(self.updates / per_epoch, 4)

    def rate(self) -> float:
        """Samples per second of this instance's own replicas, compilation apart."""
        updates, seconds = self.warm_updates, self.warm_s
        if not updates:  # there was only the call that compiles
            updates, seconds = self.call_updates, self.train_s
        return updates * self.at.batch.global_size / self.at.place.instances / seconds if seconds else 0.0
