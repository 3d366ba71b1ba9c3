from __future__ import annotations

import re
from collections import Counter
from typing import List, Type

import pytest

from ipulaunch.configs import errors
from ipulaunch.configs.errors import EXIT_CODES, INTERRUPTED, IpulaunchError, near_miss

KINDS: List[Type[IpulaunchError]] = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, IpulaunchError) and kind is not IpulaunchError
]
NOT_ERRORS = {0, 130}


def test_each_exit_code_of_an_error_has_one_class() -> None:
    assert Counter(kind.exit_code for kind in KINDS) == Counter(set(EXIT_CODES) - NOT_ERRORS)


def test_exit_codes_are_the_documented_ones() -> None:
    assert set(EXIT_CODES) == {0, 2, 3, 4, 5, 6, 7, 75, 130}
    assert INTERRUPTED == 130


def test_tree_at_the_top_of_the_module_is_true() -> None:
    drawn = {name: int(code) for name, code in re.findall(r"(\w+Error)\s+(\d+)", errors.__doc__ or "")}
    assert drawn == {kind.__name__: kind.exit_code for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_keeps_message_and_hint_apart(kind: Type[IpulaunchError]) -> None:
    error = kind("what is wrong", hint="what to do")
    assert (str(error), error.message, error.hint) == ("what is wrong", "what is wrong", "what to do")
    assert kind("no hint").hint == ""


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        pytest.param("n_trian", ["n_train", "n_valid"], "did you mean n_train?", id="swapped letters"),
        pytest.param("data.ntrain", ["data.n_train", "data.n_valid"], "did you mean data.n_train?", id="dotted"),
        pytest.param("N_TRAIN", ["n_train", "n_valid"], "did you mean n_train?", id="other case"),
        pytest.param("maxpool", ["MaxPool3D", "tanh"], "did you mean MaxPool3D?", id="case of what is known"),
        pytest.param("zebra", ["b", "a"], "known: a, b", id="nothing near"),
        pytest.param("", ["b", "a"], "known: a, b", id="empty"),
        pytest.param("", ["B", "a", "A"], "known: A, B, a", id="names that differ in case"),
    ],
)
def test_near_miss(word: str, known: List[str], hint: str) -> None:
    assert near_miss(word, known) == hint
