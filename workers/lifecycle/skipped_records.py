"""What could not be read and was left out, over all instances."""

from __future__ import annotations

from typing import Dict, List

import numpy as np

from ipulaunch.configs.runs.events import Replaced
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.workers.backends.collective import Collective
from ipulaunch.workers.instance import Instance


def count_skipped_records(instance: Instance, *sources: Source) -> Dict[str, int]:
    """How many samples were replaced, each counted once, and how many files were damaged; each is recorded."""
    samples, files = 0, 0
    for source in sources:
        for error in source.bad.values():
            instance.records.event(Replaced(error.message))
        samples += _in_any([number for number in source.bad if number >= 0], instance.backend.collective)
        files += sum(number < 0 for number in source.bad)  # on instance 0 alone
    return {"replaced_samples": samples, "damaged_files": int(instance.backend.collective.sum(np.array([files]))[0])}


def _in_any(numbers: List[int], collective: Collective) -> int:
    """How many numbers any instance has, none of which is negative."""
    most = int(collective.rows(np.array([len(numbers)])).max())
    if not most:
        return 0
    table = collective.rows(np.array([*numbers, *[-1] * (most - len(numbers))], np.int64))
    return len(set(table[table >= 0].tolist()))
