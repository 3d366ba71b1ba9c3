from __future__ import annotations

from typing import Tuple

import pytest

from ipulaunch.topology.machines import cpulist


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", ()),
        ("\n", ()),
        ("0\n", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("8,0-1", (0, 1, 8)),
        ("0-2,1-3", (0, 1, 2, 3)),
        ("5-5", (5,)),
        ("0-1,128-129", (0, 1, 128, 129)),
        ("65535", (65535,)),
    ],
)
def test_parse(text: str, cpus: Tuple[int, ...]) -> None:
    assert cpulist.parse(text) == cpus


@pytest.mark.parametrize("text", ["x", "3-1", "-1", "1-", "0-70000", "0-99999999999", "1.5", "0 1", "0-1-2"])
def test_text_that_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        cpulist.parse(text)


@pytest.mark.parametrize(
    ("cpus", "text"),
    [((), ""), ((7,), "7"), ((0, 1, 2, 8), "0-2,8"), ((8, 0, 2, 1), "0-2,8"), ((0, 2, 4), "0,2,4"), ((0, 1), "0-1")],
)
def test_render(cpus: Tuple[int, ...], text: str) -> None:
    assert cpulist.render(cpus) == text


def test_parse_undoes_render_for_every_set_of_eight_cpus() -> None:
    for bits in range(256):
        cpus = tuple(cpu for cpu in range(8) if bits >> cpu & 1)
        assert cpulist.parse(cpulist.render(cpus)) == cpus
