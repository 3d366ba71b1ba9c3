from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.tree import (
    Given,
    Tree,
    assignment,
    flat,
    from_environment,
    merge,
    parse_yaml,
    read_yaml,
    without,
)


def refusal(text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        parse_yaml(text, "my.yaml")
    return caught.value.message


def test_every_value_remembers_its_line() -> None:
    text = "# mine\ndata:\n  side: 32\n\n  name: synthetic\nlist: [1, 2]\n"
    assert parse_yaml(text, "my.yaml") == {
        "data": {"side": Given(32, "my.yaml:3"), "name": Given("synthetic", "my.yaml:5")},
        "list": Given([1, 2], "my.yaml:6"),
    }


@pytest.mark.parametrize("text", ["", "# only a comment\n"], ids=["empty", "comment"])
def test_file_without_settings_is_an_empty_tree(text: str) -> None:
    assert parse_yaml(text, "my.yaml") == {}


def test_dashes_and_underscores_are_the_same_key() -> None:
    assert parse_yaml("a-b: {c-d: 1}", "f") == parse_yaml("a_b: {c_d: 1}", "f")


def test_dashes_inside_values_stay() -> None:
    assert parse_yaml("a: x-y", "f") == {"a": Given("x-y", "f:1")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: 1\nb: 2\na: 3", "my.yaml:3: a is given twice", id="repeated key"),
        pytest.param("s:\n  a_b: 1\n  a-b: 3", "my.yaml:3: a_b is given twice", id="repeated with a dash"),
        pytest.param("1: 2", "my.yaml:1: the key 1 is not a word", id="number as key"),
        pytest.param("yes: 2", "my.yaml:1: the key True is not a word", id="yes as key"),
        pytest.param("~: 2", "my.yaml:1: the key None is not a word", id="null as key"),
        pytest.param("? [a]\n: 1", "my.yaml:1: the key ['a'] is not a word", id="list as key"),
        pytest.param("5", "my.yaml:1: expected `key: value` lines, found 5", id="a number"),
        pytest.param("\n- a\n", "my.yaml:2: expected `key: value` lines, found ['a']", id="a list"),
        pytest.param("a:\n  - b: 1", "my.yaml:2: a mapping is not expected inside a list", id="mapping in a list"),
        pytest.param("a: \x00", "my.yaml is not text", id="NUL"),
    ],
)
def test_refused_with_the_line(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("text", "start"),
    [
        pytest.param("a:\n\tb: 1", "my.yaml:2: not valid YAML: ", id="tab"),
        pytest.param("a: 1\nb: [1", "my.yaml:3: not valid YAML: ", id="open bracket"),
        pytest.param("a: 1\n---\nb: 2", "my.yaml:2: not valid YAML: ", id="two documents"),
        pytest.param("a: \x01", "my.yaml: not valid YAML: ", id="control character"),
        pytest.param('a: "\\ud800"', "my.yaml:1: not valid YAML: ", id="half a surrogate pair"),
        pytest.param("\na: !!int x", "my.yaml:2: 'x' is not a value", id="text tagged as int"),
        pytest.param("\na: !!float x", "my.yaml:2: 'x' is not a value", id="text tagged as float"),
        pytest.param("\na: !!bool x", "my.yaml:2: 'x' is not a value", id="text tagged as bool"),
    ],
)
def test_damaged_yaml_is_refused_with_the_line(text: str, start: str) -> None:
    assert refusal(text).startswith(start)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: &x 1\nb: *x", id="value"),
        pytest.param("a: &x [1]\nb: *x", id="list"),
        pytest.param("a: &x {c: 1}\nb: *x", id="section"),
        pytest.param("a: &x\n  b: *x", id="itself"),
        pytest.param("a: &x b\n*x : 1", id="key"),
    ],
)
def test_aliases_are_refused(text: str) -> None:
    message = refusal(text)
    assert message.startswith("my.yaml:")
    assert message.endswith("YAML aliases are refused")


def test_billion_laughs_are_refused() -> None:
    lines = ["l0: &l0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 10)]
    assert refusal("\n".join(lines)).endswith("YAML aliases are refused")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param('a: !!python/object/apply:os.system ["{}"]', id="value"),
        pytest.param('a: [1, !!python/object/apply:os.system ["{}"]]', id="in a list"),
        pytest.param('? !!python/object/apply:os.system ["{}"]\n: 1', id="key"),
        pytest.param('!!python/object/apply:os.system ["{}"]', id="whole file"),
        pytest.param('a: !!python/object/new:os.system {{args: ["{}"]}}', id="mapping"),
        pytest.param('!!python/object/new:os.system {{args: ["{}"]}}', id="whole file as a mapping"),
    ],
)
def test_python_objects_are_refused_and_nothing_runs(line: str, tmp_path: Path) -> None:
    assert "python/object" in refusal(line.format(f"touch {tmp_path}/ran"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "value",
    ["!!set {a, b}", "!!omap [a: 1]", "!!binary aGVsbG8=", "2024-01-01", "!mine 1", "!mine {b: 1}", "{<<: {b: 1}}"],
)
def test_only_plain_values_are_read(value: str) -> None:
    assert refusal(f"a: {value}").endswith("is refused")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("".join("  " * depth + "k:\n" for depth in range(30)), id="sections"),
        pytest.param("a: " + "[" * 30 + "]" * 30, id="lists"),
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert refusal(text).endswith("nested more than 20 deep")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read_yaml(tmp_path / "none.yaml")
    assert caught.value.message == f"there is no file {tmp_path}/none.yaml"
    assert caught.value.hint


def test_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        read_yaml(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param("n: Größe".encode("latin-1"), "cannot be read", id="not UTF-8"),
        pytest.param(b"a: 1\x00", "is not text", id="NUL"),
        pytest.param(b"#" * (1 << 20) + b"\n", "is larger than 1048576 bytes", id="too large"),
    ],
)
def test_file_that_is_no_settings_is_refused_by_name(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=why) as caught:
        read_yaml(path)
    assert caught.value.message.startswith(str(path))


def test_largest_file_allowed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_bytes(b"a: 1\n" + b"#" * ((1 << 20) - 5))
    assert read_yaml(path, shown_as="mine") == {"a": Given(1, "mine:1")}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("data.n_train=64", {"data": {"n_train": Given(64, "--set")}}),
        ("data.n-train=64", {"data": {"n_train": Given(64, "--set")}}),
        (" a =1", {"a": Given(1, "--set")}),
        ("a.b.c=x", {"a": {"b": {"c": Given("x", "--set")}}}),
        ("a=yes", {"a": Given(True, "--set")}),
        ("a=null", {"a": Given(None, "--set")}),
        ("a=0.5", {"a": Given(0.5, "--set")}),
        ("a=[1, 2]", {"a": Given([1, 2], "--set")}),
        ("a=", {"a": Given("", "--set")}),
        ("a=x=y", {"a": Given("x=y", "--set")}),
        ("a=x-y", {"a": Given("x-y", "--set")}),
        ("a=b: c", {"a": Given("b: c", "--set")}),
        ("a={x", {"a": Given("{x", "--set")}),
        ("a=#x", {"a": Given("#x", "--set")}),
        ("a=*x", {"a": Given("*x", "--set")}),
    ],
)
def test_assignment(text: str, tree: Tree) -> None:
    assert assignment(text, "--set") == tree


@pytest.mark.parametrize("text", ["data.n_train", "=1", " =1", ""])
def test_assignment_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        assignment(text, "--set")
    assert caught.value.message == f"--set {text!r} is not of the form section.key=value"
    assert caught.value.hint


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system [touch ran]", "!mine x", "2024-01-01", "="])
def test_assignment_of_what_is_no_plain_value_is_text(text: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert assignment(f"a={text}", "--set") == {"a": Given(text, "--set")}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("environ", "tree"),
    [
        pytest.param({"IPULAUNCH_ATTEMPT": "2"}, {}, id="what programs are told"),
        pytest.param(
            {"IPULAUNCH_DATA__N_TRAIN": "64"},
            {"data": {"n_train": Given(64, "IPULAUNCH_DATA__N_TRAIN")}},
            id="two underscores are the dot",
        ),
        pytest.param(
            {"IPULAUNCH_A__B": "x", "IPULAUNCH_A__C": "y"},
            {"a": {"b": Given("x", "IPULAUNCH_A__B"), "c": Given("y", "IPULAUNCH_A__C")}},
            id="two of one section",
        ),
        pytest.param(
            {"IPULAUNCH_DATA_N_TRAIN": "64"},
            {"data_n_train": Given(64, "IPULAUNCH_DATA_N_TRAIN")},
            id="one underscore is for the schema to refuse",
        ),
        pytest.param(
            {"_IPULAUNCH_COMPLETE": "bash_source", "HOME": "/", "DATA__N_TRAIN": "1", "XIPULAUNCH_A__B": "1"},
            {},
            id="others",
        ),
    ],
)
def test_environment(environ: Dict[str, str], tree: Tree) -> None:
    assert from_environment(environ) == tree


one, two = Given(1, "one"), Given(2, "two")


@pytest.mark.parametrize(
    ("below", "above", "merged"),
    [
        pytest.param({"a": one}, {"a": two}, {"a": two}, id="later wins"),
        pytest.param({"s": {"a": one}}, {"s": {"b": two}}, {"s": {"a": one, "b": two}}, id="value by value"),
        pytest.param({"s": {"a": one}}, {"s": two}, {"s": two}, id="value over section"),
        pytest.param({"s": {"a": one}}, {"s": {}}, {"s": {"a": one}}, id="empty section"),
    ],
)
def test_merge(below: Tree, above: Tree, merged: Tree) -> None:
    assert merge(below, above) == merged


def test_merge_leaves_its_layers_alone() -> None:
    below: Tree = {"s": {"a": one}}
    merge({}, below, {"s": {"a": two}})
    assert below == {"s": {"a": one}}


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"a": one, "s": {"b": two}}, {"a": one, "s.b": two}, id="value and section"),
        pytest.param({"s": {"t": {"a": one}}, "u": {}}, {"s.t.a": one}, id="deep, and an empty section"),
    ],
)
def test_flat(tree: Tree, found: Dict[str, Given]) -> None:
    assert flat(tree) == found


@pytest.mark.parametrize(
    ("key", "left"),
    [
        pytest.param("a", {"s": {"b": one, "c": two}}, id="value"),
        pytest.param("s.b", {"a": one, "s": {"c": two}}, id="value of a section"),
        pytest.param("s", {"a": one}, id="section"),
        pytest.param("x.y", {"a": one, "s": {"b": one, "c": two}}, id="unknown section"),
        pytest.param("s.x", {"a": one, "s": {"b": one, "c": two}}, id="unknown value"),
        pytest.param("a.b", {"a": one, "s": {"b": one, "c": two}}, id="below a value"),
    ],
)
def test_without(key: str, left: Tree) -> None:
    tree: Tree = {"a": one, "s": {"b": one, "c": two}}
    assert without(tree, key) == left
    assert tree == {"a": one, "s": {"b": one, "c": two}}


def test_a_section_over_a_value_is_refused() -> None:
    with pytest.raises(SettingsError, match="one: s is 1, and two takes it for a section"):
        merge({"s": one}, {"s": {"a": two}})


@pytest.mark.parametrize("value", ["5", "0", "x"])
def test_a_variable_is_no_value_and_a_section_at_once(value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_environment({"IPULAUNCH_DATA": value, "IPULAUNCH_DATA__N_TRAIN": "6"})
    assert caught.value.message.startswith("IPULAUNCH_DATA: data is ")
    assert caught.value.message.endswith(", and IPULAUNCH_DATA__N_TRAIN takes it for a section")
    assert caught.value.hint == "give one of them"


def test_two_variables_of_one_setting_are_refused() -> None:
    environ = {"IPULAUNCH_DATA__DATA_DIR": "/a", "IPULAUNCH_DATA__DATASET_PATH": "/b"}
    message = "IPULAUNCH_DATA__DATASET_PATH and IPULAUNCH_DATA__DATA_DIR both set data.directory"
    with pytest.raises(SettingsError, match=f"^{message}$"):
        from_environment(environ)
