"""Compiling alone: one device call of the training and one pass of validation, for the executables; nothing is kept."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.networks.host_events import HostEvents
from ipulaunch.workers.backends.interface import Trained
from ipulaunch.workers.feeds import training_feed, validation_batch, validation_feed, validation_progress
from ipulaunch.workers.instance import Instance


def compile_run(
    instance: Instance, sources: Mapping[str, Source], events: HostEvents, trained: Trained
) -> Dict[str, Any]:
    """Have everything compiled that a run with the same settings executes; returns the summary."""
    training = instance.settings.training
    compiled: List[str] = []
    if training.training:
        feed = training_feed(instance, sources["train"], range(events.updates_per_call))
        steps = events.updates_per_call * instance.backend.steps_per_update
        trained.fit(feed, epochs=1, steps_per_epoch=steps, callbacks=[])
        compiled.append("training")
    if training.validation:
        source = sources["validation"]
        feed, micro_size = validation_feed(instance, source), validation_batch(instance).micro_size
        instance.backend.validate(trained, feed, source.samples, micro_size, validation_progress(instance))
        compiled.append("validation")
    return {"metrics": {}, "compiled": compiled}
