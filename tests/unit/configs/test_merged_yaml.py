from __future__ import annotations

import os
from pathlib import Path

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.merged_yaml import parse_entries, read_entries

ANCHORS = """
first: &first {a: 1, b: 1, deep: {x: 1, y: 1}}
second: &second {b: 2, c: 2}
"""


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("{<<: *first}", {"a": 1, "b": 1, "deep": {"x": 1, "y": 1}}),
        ("{<<: *first, a: own}", {"a": "own", "b": 1, "deep": {"x": 1, "y": 1}}),
        ("{a: own, <<: *first}", {"a": "own", "b": 1, "deep": {"x": 1, "y": 1}}),  # wherever the merge key stands
        ("{<<: [*first, *second], deep: 0}", {"a": 1, "b": 1, "c": 2, "deep": 0}),  # the earlier of a list wins
        ("{<<: [*second, *first], deep: 0}", {"a": 1, "b": 2, "c": 2, "deep": 0}),
        ("{<<: *first, deep: {x: 9}}", {"a": 1, "b": 1, "deep": {"x": 9}}),  # merged as a whole, never inside
        ("{d: *second}", {"d": {"b": 2, "c": 2}}),
    ],
)
def test_merge_keys_count_as_yaml_has_them(entry: str, value: object) -> None:
    assert parse_entries(f"{ANCHORS}it: {entry}\n", "a.yml").values["it"] == value


def test_each_entry_has_its_line_and_repeated_names_are_told() -> None:
    entries = parse_entries("a: 1\nb: 2\na: 3\n", "a.yml")
    assert entries.values == {"a": 3, "b": 2}
    assert entries.lines == {"a": 3, "b": 2}
    assert entries.repeated == ("a",)


def test_an_empty_file_has_no_entries() -> None:
    assert parse_entries("# nothing\n", "a.yml").values == {}


def _doubling(levels: int) -> str:
    """Merge keys that double the number of keys at each level."""
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{level}: &a{level} {{<<: [*a{level - 1}, *a{level - 1}]}}" for level in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML"),
        ("a: *nobody", "not valid YAML"),
        ("- a\n- b\n", "expected a mapping of names"),
        ("just text", "expected a mapping of names"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("a: {<<: 3}", "not valid YAML"),
        ("a: 2026-13-45", "not valid YAML"),
        ("{[1, 2]: 3}", "not valid YAML"),
        ("a: " + "[" * 50_000, "nested more than"),
        ("a: " + "9" * 100_000, "a number of 100000 characters"),
        (_doubling(60), "merge keys give more than"),
    ],
    ids=["open", "anchor", "list", "text", "object", "merge", "date", "key", "deep", "long", "doubling"],
)
def test_what_is_wrong_with_a_file_is_one_error(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_entries(text, "a.yml")


def test_files_that_are_missing_too_large_or_no_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no file"):
        read_entries(tmp_path / "a.yml")
    large = tmp_path / "large.yml"
    large.write_bytes(b"#" * (2 << 20))
    with pytest.raises(SettingsError, match="larger than"):
        read_entries(large)
    os.mkfifo(tmp_path / "pipe.yml")
    with pytest.raises(SettingsError, match="not a regular file"):
        read_entries(tmp_path / "pipe.yml")
