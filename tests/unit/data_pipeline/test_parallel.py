from __future__ import annotations

import time

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.parallel import Progress, in_order

STEPS = 1000


def test_work_under_way_ends_at_its_next_count_when_nobody_takes_its_result() -> None:
    progress = Progress(lambda event: None, "steps", 2 * STEPS)

    def work(steps: int) -> int:
        for _ in range(steps):
            time.sleep(0.01)
            progress.add()
        return steps

    results = in_order(work, [1, STEPS, STEPS], 2, progress)
    assert next(results) == 1
    start = time.monotonic()
    results.close()
    assert time.monotonic() - start < 5  # of the ten that the work takes
    assert progress.done < STEPS


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
