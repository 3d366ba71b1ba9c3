from __future__ import annotations

from typing import List, Tuple

import pytest

from ipulaunch.launcher.engines.command import Command, guard_colons, shell_words, words_of

pytestmark = pytest.mark.core


def test_plain_words_are_not_quoted() -> None:
    assert (
        Command(("mpirun", "-x", "A=b", "--host", "h1:2"), {"C": "d e"}).shell() == "C='d e' mpirun -x A=b --host h1:2"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a \\\n  b\\\nc", ["a", "bc"], id="lines"),
        pytest.param("a \\\r\n  b", ["a", "b"], id="lines-of-windows"),
        pytest.param('a "b\\\nc"', ["a", "bc"], id="in-quotes"),
        pytest.param("a\\\\\nb", ["a\\", "b"], id="backslash-that-is-meant"),
        pytest.param("a\n  b\n", ["a", "b"], id="lines-without-backslash"),
        pytest.param("a\\ b '\\n'", ["a b", "\\n"], id="other-backslashes"),
    ],
)
def test_words_over_several_lines(text: str, words: List[str]) -> None:
    assert shell_words(text) == words
    assert words_of("--mpi-local-args", [text]) == words


@pytest.mark.parametrize(
    "program", [("prog",), ("prog", "a:b", "::", ""), ()], ids=["plain", "colons-in-words", "none"]
)
def test_program_without_a_lone_colon_is_left_alone(program: Tuple[str, ...]) -> None:
    assert guard_colons(program) == program
