"""One instance's part of a run, from top to bottom: data, network, training, validation, summary."""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ipulaunch.configs.runs.directory import write_whole
from ipulaunch.configs.runs.events import PREPARING, Event, Loading, TimeToTrain
from ipulaunch.data_pipeline.sources.record_sources import reading_warnings
from ipulaunch.data_pipeline.sources.selection import make_sources
from ipulaunch.data_pipeline.sources.source import Source, data_errors
from ipulaunch.workers.feeds import count_skipped_records
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.state.curves import draw_curves
from ipulaunch.workers.state.history import History
from ipulaunch.workers.state.weights_and_biases import wandb_run
from ipulaunch.workers.train import make_trainer, train
from ipulaunch.workers.validate import validate


def run_instance(instance: Instance) -> Dict[str, Any]:
    """Train, validate, or both. Returns the summary of the run as instance 0 has it, on every instance."""
    start = time.perf_counter()
    sources = make_sources(
        instance.job,
        instance.plan,
        instance.index,
        instance.threads,
        meet=instance.backend.collective.first,
        progress=preparing(instance.records.event),
    )
    for warning in reading_warnings(instance.job, sources["train"]):
        instance.warn(warning)
    with wandb_run(instance) as wandb:
        history = History(instance.run, wandb.log) if instance.writes else None
        with data_errors(*sources.values()):
            summary = _train_and_validate(instance, sources, history)
        summary["preparation"] = {split: source.preparation for split, source in sources.items() if source.preparation}
        summary.update(count_skipped_records(instance, *sources.values()))
        summary.update(instance.costs(time.perf_counter() - start))
        # Instance 0 alone knows the checkpoints, and clocks differ.
        text = instance.backend.collective.first(json.dumps(summary, indent=1))
        agreed: Dict[str, Any] = json.loads(text)
        wandb.summarise(agreed)
    if history is not None:
        history.close()
        write_whole(instance.run.summary, text + "\n")
        _draw(instance, history)
    return agreed


def preparing(
    event: Callable[[Event], object], clock: Callable[[], float] = time.monotonic
) -> Callable[[str, int, int], None]:
    """Records how far the preparation of the data is, and how long the rest will take."""
    begun: Dict[str, Tuple[float, int, int]] = {}

    def report(what: str, done: int, total: int) -> None:
        if what not in begun or begun[what][2] != total:  # of another split
            begun[what] = clock(), done, total
        start, before, _ = begun[what]
        left_s = (clock() - start) * (total - done) / (done - before) if done > before else 0.0
        event(PREPARING[what](done, total, round(left_s, 1)))

    return report


def _train_and_validate(
    instance: Instance, sources: Mapping[str, Source], history: Optional[History]
) -> Dict[str, Any]:
    settings, training = instance.settings, instance.settings.training
    trainer = make_trainer(instance, sources)
    summary: Dict[str, Any] = {"metrics": {}}
    if settings.device.compile_only and not instance.job.is_rehearsal:
        return {**summary, "compiled": trainer.compile_alone(sources)}
    if training.training and settings.logging.mlperf:
        instance.records.event(Loading())
        trainer.load(sources["train"])
    start = time.perf_counter()
    instance.backend.times.begin()
    if training.training:
        summary = train(instance, trainer, sources["train"], history)
    if training.validation:
        found = validate(instance, trainer, sources["validation"], history)
        instance.record_times(trainer.events.total_updates)
        summary = {**summary, **found, "metrics": {**summary["metrics"], **found["metrics"]}}
    if training.training and training.validation:
        summary["time_to_train_s"] = time.perf_counter() - start
        instance.records.event(TimeToTrain(summary["time_to_train_s"]))
    if training.training and training.clean_dir:
        trainer.clean()
        summary["checkpoint"] = trainer.newest
    return {**summary, **instance.backend.times.of_all(instance.backend.collective)}


def _draw(instance: Instance, history: History) -> None:
    """The curves, which are an extra: a training that is complete does not fail for them."""
    try:
        draw_curves(instance.run, history.rows)
    except Exception as error:  # noqa: BLE001 - matplotlib is the user's own, and may be broken in any way
        message = f"the curves could not be drawn: {type(error).__name__}: {error}"
        instance.warn(message)
