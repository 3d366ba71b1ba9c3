from __future__ import annotations

import time
from typing import List, Tuple

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.parallel import Progress, in_order, throttled

LONGEST_S = 600.0  # bounds a hang
STEPS = 1000


def test_work_under_way_ends_at_its_next_count_when_nobody_takes_its_result() -> None:
    progress = Progress(lambda event: None, "steps", STEPS)
    ended_late: List[int] = []
    deadline = time.monotonic() + LONGEST_S

    def work(number: int) -> int:
        while number:  # for ever, unless it is ended
            if time.monotonic() > deadline:
                ended_late.append(number)
                break
            time.sleep(0.01)
            progress.add()
        return number

    results = in_order(work, range(3), 2, progress)
    assert next(results) == 0
    results.close()  # waits for the others
    assert ended_late == []


def test_an_error_is_not_hidden_by_the_work_that_it_ends() -> None:
    progress = Progress(lambda event: None, "steps", STEPS)

    def work(number: int) -> None:
        if number == 1:
            raise DataError("the second item")
        while number > 1:
            time.sleep(0.01)
            progress.check()

    with pytest.raises(DataError, match="the second item"):
        list(in_order(work, range(4), 4, progress))


def test_throttled_progress_is_reported_once_a_second_and_at_its_end() -> None:
    reported: List[Tuple[int, int]] = []
    times = iter([0.0, 0.4, 0.9, 1.0, 1.5, 2.5, 2.6])
    progress = throttled(lambda done, total: reported.append((done, total)), clock=lambda: next(times))
    for done in range(1, 8):
        progress(done, 7)
    assert reported == [(1, 7), (4, 7), (6, 7), (7, 7)]
