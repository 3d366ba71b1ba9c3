from __future__ import annotations

from pathlib import Path
from typing import List, Optional

import pytest

from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.engines.direct import Direct
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.openmpi import OpenMpi
from ipulaunch.launcher.engines.poprun import Poprun
from ipulaunch.launcher.launch.workload_planning import launch_workload

ENGINES = [pytest.param(engine(), id=engine.__name__) for engine in (OpenMpi, Poprun, Direct)]


def worker_words(engine: Engine, run_dir: Optional[Path]) -> List[str]:
    """What follows `python -m ipulaunch.workers` on the line of an engine."""
    resolved = resolve("mnist", rehearsal=True, overrides=[assignment("training.num_epochs=3", "--set")])
    options = LaunchOptions(pod="4", host_layout="1x4")
    argv = launch_workload(resolved, options, engine, run_dir).command.argv
    return list(argv[argv.index("ipulaunch.workers") + 1 :])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_line_that_is_started_names_its_run_directory_alone(engine: Engine) -> None:
    words = worker_words(engine, Path("/runs/mine"))
    assert words == ["mnist", "--backend", engine.backend, "--run-dir", "/runs/mine"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_line_that_is_printed_carries_its_settings(engine: Engine) -> None:
    words = worker_words(engine, None)
    assert words[:3] == ["mnist", "--backend", engine.backend] and "--run-dir" not in words
    assert "--rehearsal" in words
    assert words[words.index("training.num_epochs=3") - 1] == "--set"
    assert ("--num-replicas" in words) == isinstance(engine, Direct)
