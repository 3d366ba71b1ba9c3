from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.events import Replaced
from ipulaunch.workers.feeds import count_skipped_records


class Joined:
    """Two instances in two threads."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=600)
        self.given: Dict[int, np.ndarray] = {}

    def of(self, instance: int) -> Any:
        def rows(values: np.ndarray) -> np.ndarray:
            assert values.nbytes <= 100, "a few numbers, however large they are"
            self.given[instance] = values
            self.barrier.wait()
            found = np.stack([self.given[0], self.given[1]])
            self.barrier.wait()
            return found

        return SimpleNamespace(rows=rows, sum=lambda values: rows(values).sum(axis=0))


@pytest.mark.parametrize(
    ("bad", "samples", "files"),
    [
        pytest.param([[], []], 0, 0, id="none"),
        pytest.param([[3, 9], [3, 9]], 2, 0, id="both met the same"),
        pytest.param([[3], [9, 4]], 3, 0, id="each its own"),
        pytest.param([[2**40], [2**40, 0]], 2, 0, id="of a large set"),
        pytest.param([[-1, -2], []], 0, 2, id="files"),
        pytest.param([[-1, 3], [3]], 1, 1, id="a file and a sample"),
    ],
)
def test_samples_count_once_and_files_apart(bad: List[List[int]], samples: int, files: int) -> None:
    joined = Joined()
    events: List[Replaced] = []

    def count(instance: int) -> Dict[str, int]:
        records = SimpleNamespace(event=events.append)
        backend = SimpleNamespace(collective=joined.of(instance))
        source = SimpleNamespace(bad={number: DataError(f"{number} is bad") for number in bad[instance]})
        return count_skipped_records(SimpleNamespace(records=records, backend=backend), source)  # type: ignore[arg-type]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(count, (0, 1)))
    assert found == [{"replaced_samples": samples, "damaged_files": files}] * 2
    said = [event.message for event in events]
    assert sorted(said) == sorted(f"{number} is bad" for numbers in bad for number in numbers)
