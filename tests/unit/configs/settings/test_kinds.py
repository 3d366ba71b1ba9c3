from __future__ import annotations

from fractions import Fraction
from typing import Any, Optional, Tuple

import pytest

from ipulaunch.configs.settings.kinds import Lines, Words, kind_of


@pytest.mark.parametrize(
    ("annotation", "item", "is_list", "is_optional"),
    [
        (int, int, False, False),
        (Optional[int], int, False, True),
        (Optional[Fraction], Fraction, False, True),
        (Optional[bool], bool, False, True),
        (Tuple[float, ...], float, True, False),
        (Lines, str, True, False),
    ],
)
def test_an_annotation_has_one_kind(annotation: Any, item: type, is_list: bool, is_optional: bool) -> None:
    kind = kind_of(annotation)
    assert (kind.item, kind.is_list, kind.is_optional) == (item, is_list, is_optional)


def test_only_an_optional_setting_can_be_nothing() -> None:
    assert kind_of(Optional[str]).read(None) is None
    with pytest.raises(ValueError):
        kind_of(str).read(None)


def test_a_text_alone_is_names_a_line_or_words() -> None:
    text = "a, b 'c d'"
    assert kind_of(Tuple[str, ...]).read(text) == ("a", "b 'c d'")
    assert kind_of(Lines).read(text) == (text,)
    assert kind_of(Words).read(text) == ("a,", "b", "c d")


def test_an_annotation_without_a_kind_is_refused() -> None:
    with pytest.raises(KeyError):
        kind_of(dict)
