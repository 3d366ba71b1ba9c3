from __future__ import annotations

from typing import List, Optional

import pytest

from ipulaunch.launcher.bench.compile_time import compile_seconds

DAY = "2026-11-18 10:00:"
TENSORFLOW = [
    f"{DAY}01.000000: I tensorflow/x.cc] Poplar version: 3.4.0",
    f"{DAY}02.000000: I Begin Poplar graph construction",
    f"{DAY}05.500000: I End Poplar graph construction",
    f"{DAY}06.000000: I Begin compiling Poplar engine",
    f"{DAY}31.250000: I End compiling Poplar engine",
]


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (TENSORFLOW, 30.25),
        ([*TENSORFLOW, "noise", f"{DAY}59.000000: I done"], 30.25),
        (TENSORFLOW[3:], 25.25),
        (TENSORFLOW[:1], None),
        ([], None),
        # An instance that did not end its phase counts for nothing; those of two instances are put together.
        ([f"[1,0]<stderr>:{line}" for line in TENSORFLOW[3:]] + [f"[1,1]<stderr>:{TENSORFLOW[3]}"], 25.25),
        ([f"[1,{index}]<stderr>:{line}" for index in (0, 1) for line in TENSORFLOW], 30.25),
        (["2026-11-18T10:00:01.000000Z Starting compilation", "2026-11-18T10:01:01.500000Z Graph compiled"], 60.5),
        ([f"{DAY}01.000000 Starting compilation", "2026-13-45 10:00:01.000000 Graph compiled"], None),
    ],
)
def test_from_the_first_beginning_to_the_last_end(lines: List[str], seconds: Optional[float]) -> None:
    assert compile_seconds(lines) == seconds
