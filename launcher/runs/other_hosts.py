"""The other hosts of a launch, each asked over ssh whether it can take part."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Dict

from ipulaunch.configs.errors import StoppedError
from ipulaunch.configs.messages import note
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.supervise import processes
from ipulaunch.launcher.supervise.stop_signals import StopSignals
from ipulaunch.topology.machines.hosts import is_here

if TYPE_CHECKING:
    from ipulaunch.launcher.doctor.diagnosis import Diagnosis


def require_other_hosts(launch: Launch, path: Path, signals: StopSignals) -> Launch:
    """Refuse to start a rehearsal where a host could not take part, before anything is started.

    Returns the launch, with a note about hosts that ssh does not reach.
    """
    if not launch.engine.asks_hosts or is_alone(launch):
        return launch
    from ipulaunch.launcher.doctor.environment import this_machine
    from ipulaunch.launcher.doctor.remote_hosts import require_hosts

    try:
        with signals.interrupting():
            notes = require_hosts(_diagnosis(launch, path), this_machine())
    except KeyboardInterrupt:
        processes.end_all()  # questions that are still under way
        if launch.job is None or signals.first in (None, signal.SIGINT):
            raise
        what = f"{signal.Signals(signals.first).name}: stopped before anything was started"
        raise StoppedError(what) from None
    return launch._replace(messages=(*launch.messages, *map(note, notes)))


def unready_hosts(launch: Launch, path: Path) -> Dict[str, str]:
    """The hosts of a run that do not answer or could not take part any more, and why."""
    if is_alone(launch):
        return {}
    from ipulaunch.launcher.doctor import remote_hosts
    from ipulaunch.launcher.doctor.environment import this_machine

    return remote_hosts.unready_hosts(_diagnosis(launch, path), this_machine())


def is_alone(launch: Launch) -> bool:
    """Whether all instances run on this machine."""
    return all(map(is_here, launch.solution.plan.hosts))


def _diagnosis(launch: Launch, path: Path) -> Diagnosis:
    from ipulaunch.launcher.doctor.diagnosis import Diagnosis, with_places

    diagnosis = Diagnosis(
        plan=launch.solution.plan,
        engine=launch.engine.name,
        python=launch.options.python or sys.executable,
        run_dir=path,
        hosts=launch.solution.plan.hosts,
        directory=Path.cwd(),
        is_own_program=launch.job is None,
    )
    return with_places(diagnosis, launch.job.workload, launch.job.settings) if launch.job else diagnosis
