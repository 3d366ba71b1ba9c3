"""Loading the compiled program before the clock starts, as MLPerf's rules for the time to train allow."""

from __future__ import annotations

from ipulaunch.configs.runs.events import Loading
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.networks.host_events import HostEvents
from ipulaunch.workers.backends.interface import Trained
from ipulaunch.workers.feeds import training_feed
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.state.training_state import TrainingState


def load_program(
    instance: Instance, source: Source, events: HostEvents, trained: Trained, state: TrainingState
) -> None:
    """Make one device call, which compiles and loads the program, and take back what it has learned."""
    instance.records.event(Loading())
    before = state.copy()
    trained.fit(
        training_feed(instance, source, range(events.updates_per_call)),
        epochs=1,
        steps_per_epoch=events.updates_per_call * instance.backend.steps_per_update,
        callbacks=[],
    )
    state.restore(before)
