"""The list of rules that the stand-in for the SDK follows: each has a place in the SDK's sources and a test."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "standin" / "rules").glob("*.yaml"))
RULES = [
    (f"{path.stem} {number}", rule)
    for path in FILES
    for number, rule in enumerate(yaml.safe_load(path.read_text(encoding="utf-8")), start=1)
]
FIELDS, MORE = {"what", "since", "test"}, {"place", "place_in_2.6", "guess", "until"}
SDKS = ("2.6", "3.0", "3.1", "3.4")
REPOSITORIES = {"tensorflow:": "tensorflow/", "keras:": "keras/", "examples:": ""}  # and how paths in them begin
GUESSES = 8  # a rule without a place is a guess, and there are few


@functools.lru_cache(maxsize=None)
def functions_of(path: Path) -> Set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])
def test_a_rule_says_what_since_when_where_and_which_test_shows_it(name: str, rule: Dict[str, Any]) -> None:
    assert FIELDS <= rule.keys() <= FIELDS | MORE
    assert rule["since"] in SDKS and rule.get("until", SDKS[-1]) in SDKS
    assert ("place" in rule) != (rule.get("guess") is True)
    for place in (rule[field] for field in ("place", "place_in_2.6") if field in rule):
        repository, path, symbol = place.split(" ")
        assert path.startswith(REPOSITORIES[repository]) and Path(path).suffix in (".py", ".cc", ".h")
        assert symbol
    path, _, test = rule["test"].partition("::")
    assert test in functions_of(ROOT / path)


@pytest.mark.parametrize(("name", "rule"), RULES, ids=[name for name, _ in RULES])
def test_a_rule_holds_for_the_sdks_that_its_text_names(name: str, rule: Dict[str, Any]) -> None:
    assert re.findall(r"^up to SDK ([\d.]+)", rule["what"]) in ([], [rule.get("until")])
    assert re.findall(r"^from SDK ([\d.]+)", rule["what"]) in ([], [rule["since"]])


def test_no_rule_is_told_twice() -> None:
    told = [rule["what"] for _, rule in RULES]
    assert len(set(told)) == len(told)


def test_guesses_are_few() -> None:
    guesses: List[str] = [name for name, rule in RULES if rule.get("guess")]
    assert len(guesses) <= GUESSES
