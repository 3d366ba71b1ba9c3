from __future__ import annotations

import weakref
from typing import Any, List, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.sources.source import ArraySource


class Replacing(ArraySource):
    """Samples of which the odd ones are bad."""

    samples = 6
    inputs, targets = (np.int16, (1,)), (np.float32, (1,))
    replaces_bad = True

    def __init__(self) -> None:
        super().__init__()
        self.made: List[Any] = []

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        values = ids.astype(np.int16)[:, None]
        self.made.append(weakref.ref(values))
        for number in ids.tolist():
            if number % 2:
                raise DataError(f"{number} is bad", hint="copy it again")
        return values, values.astype(np.float32)


def test_what_is_kept_of_a_bad_sample_does_not_hold_what_was_read() -> None:
    source = Replacing()
    assert source._load_or_replace(np.array([2, 3, 5]))[2].tolist() == [2, 4, 0]
    assert [made() for made in source.made if made() is not None] == []
    assert {number: (error.message, error.hint) for number, error in source.bad.items()} == {
        3: ("3 is bad", "copy it again"),
        5: ("5 is bad", "copy it again"),
    }
