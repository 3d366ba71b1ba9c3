from __future__ import annotations

from typing import Optional

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.topology.planning.batch import Batch, make_batch, samples_of, updates_per_epoch


def test_arithmetic_is_shown() -> None:
    batch = Batch(micro_size=4, replicas=4, accumulation=2)
    assert batch.global_size == 32
    assert batch.formula == "global batch 32 = micro-batch 4 x 4 replicas x accumulation 2"


@pytest.mark.parametrize(
    ("accumulation", "global_size", "expected"),
    [
        pytest.param(None, None, 1, id="neither"),
        pytest.param(3, None, 3, id="accumulation"),
        pytest.param(None, 64, 4, id="global batch"),
        pytest.param(None, 16, 1, id="one step"),
    ],
)
def test_accumulation_follows(accumulation: Optional[int], global_size: Optional[int], expected: int) -> None:
    assert make_batch(2, 8, accumulation, global_size) == (Batch(2, 8, expected), [])


@pytest.mark.parametrize(
    ("asked", "used", "accumulation"),
    [(1, 16, 1), (15, 16, 1), (17, 16, 1), (23, 16, 1), (24, 32, 2), (39, 32, 2), (40, 48, 3), (1000, 1008, 63)],
)
def test_global_batch_is_rounded_to_the_nearest_and_says_so(asked: int, used: int, accumulation: int) -> None:
    batch, (warning,) = make_batch(2, 8, None, asked)
    assert (batch.global_size, batch.accumulation) == (used, accumulation)
    assert warning == (
        f"a global batch of {asked} is not a multiple of 2 x 8 = 16: using {used} with accumulation {accumulation}"
    )


def test_rounding_is_never_more_than_half_a_step() -> None:
    for micro in (1, 2, 3):
        for replicas in (1, 2, 16):
            for asked in range(1, 200):
                batch, warnings = make_batch(micro, replicas, None, asked)
                step = micro * replicas
                assert batch.accumulation == 1 or 2 * abs(batch.global_size - asked) <= step
                assert bool(warnings) is (batch.global_size != asked)


@pytest.mark.parametrize(
    ("accumulation", "global_size", "used"), [(None, None, 4), (6, None, 6), (None, 64, 4), (None, 1, 4), (None, 97, 8)]
)
def test_a_pipeline_takes_whole_turns(accumulation: Optional[int], global_size: Optional[int], used: int) -> None:
    batch, warnings = make_batch(2, 8, accumulation, global_size, turn=4)
    assert (batch, bool(warnings)) == (Batch(2, 8, used), global_size not in (None, 64))


@pytest.mark.parametrize(
    ("accumulation", "global_size", "used"),
    [(None, None, 8), (4, None, 4), (None, 64, 8), (None, 128, 8), (None, 130, 8), (None, 190, 12)],
)
def test_a_pipeline_may_need_more_than_a_turn(
    accumulation: Optional[int], global_size: Optional[int], used: int
) -> None:
    batch, warnings = make_batch(2, 8, accumulation, global_size, turn=4, least=8)
    assert (batch, bool(warnings)) == (Batch(2, 8, used), global_size in (64, 130, 190))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (64, "a global batch of 64 is less than 2 x 8 x 8 to fill the pipeline = 128"),
        (130, "a global batch of 130 is not a multiple of 2 x 8 x 4 to fill the pipeline = 64"),
    ],
)
def test_a_global_batch_that_is_rounded_to_the_least_says_why(asked: int, why: str) -> None:
    assert make_batch(2, 8, None, asked, turn=4, least=8)[1] == [f"{why}: using 128 with accumulation 8"]


def test_accumulation_and_global_batch_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match="global batch 64 and accumulation 4") as caught:
        make_batch(1, 16, 4, 64)
    assert "--global-batch-size or --gradient-accumulation-count" in caught.value.hint


@pytest.mark.parametrize(("samples", "updates"), [(32, 1), (63, 1), (64, 2), (10000, 312)])
def test_updates_per_epoch_leave_the_rest_out(samples: int, updates: int) -> None:
    assert updates_per_epoch(samples, Batch(2, 8, 2), "drop") == updates


@pytest.mark.parametrize("samples", [0, 1, 31])
def test_too_few_samples_are_refused_with_both_numbers(samples: int) -> None:
    with pytest.raises(SettingsError, match=f"^{samples} training samples .* global batch 32 = ") as caught:
        updates_per_epoch(samples, Batch(2, 8, 2), "drop")
    assert caught.value.hint


@pytest.mark.parametrize("remainder", ["repeat", "pad"])
@pytest.mark.parametrize(("samples", "updates"), [(1, 1), (32, 1), (33, 2), (64, 2)])
def test_updates_per_epoch_count_the_last_one_that_is_filled_up(remainder: str, samples: int, updates: int) -> None:
    assert updates_per_epoch(samples, Batch(2, 8, 2), remainder) == updates


@pytest.mark.parametrize(
    ("remainder", "updates", "samples"),
    [
        ("drop", range(4), 32),
        ("repeat", range(3, 10), 56),
        ("pad", range(2), 16),
        ("pad", range(2, 3), 4),
        ("pad", range(1, 4), 8 + 4 + 8),
        ("pad", range(9), 60),
        ("pad", range(4, 4), 0),
    ],
)
def test_samples_of_updates(remainder: str, updates: range, samples: int) -> None:
    """Of 20 samples in batches of 8."""
    assert samples_of(updates, 20, Batch(2, 2, 2), remainder) == samples
