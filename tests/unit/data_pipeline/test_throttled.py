from __future__ import annotations

from typing import List, Tuple

from ipulaunch.data_pipeline.throttled import throttled


def test_progress_is_told_of_once_a_second_and_at_its_end() -> None:
    told: List[Tuple[int, int]] = []
    times = iter([0.0, 0.4, 0.9, 1.0, 1.5, 2.5, 2.6])
    progress = throttled(lambda done, total: told.append((done, total)), clock=lambda: next(times))
    for done in range(1, 8):
        progress(done, 7)
    assert told == [(1, 7), (4, 7), (6, 7), (7, 7)]
