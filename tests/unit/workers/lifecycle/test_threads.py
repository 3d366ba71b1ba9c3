"""How many threads prepare the input of an instance."""

from __future__ import annotations

from typing import Dict, Tuple

import pytest

from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.workers.lifecycle.binding import size_pools


@pytest.mark.parametrize(("texts", "threads"), [((), 6), (("data.pipeline_num_parallel=48",), 48)])
def test_an_input_pipeline_has_a_thread_per_core_or_as_many_as_asked(texts: Tuple[str, ...], threads: int) -> None:
    settings = resolve("imagenet", rehearsal=True, overrides=[assignment(text, "--set") for text in texts]).settings
    environ: Dict[str, str] = {}
    assert size_pools(6, Job("imagenet", "cpu", settings), environ).data == threads
    assert environ["TF_NUM_INTEROP_THREADS"] == "6"
