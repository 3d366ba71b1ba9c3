from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, Dict, Optional, Tuple

import pytest
import yaml

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.schema import Settings, build, leaves, plain, plain_value, section, setting, value_of
from ipulaunch.configs.settings.tree import Given, assign, assignment, from_environment, parse_yaml, variable


class Data(Settings):
    n_train: int = setting(100, "training samples", flag="--n-train", at_least=1)
    side: Optional[int] = setting(None, "voxels along one edge", at_least=1)


class Example(Settings):
    data: Data = section(Data)
    rate: float = setting(0.5, "learning rate", above=0)
    momentum: float = setting(0.0, "momentum", at_least=0, below=1)
    optimizer: str = setting("sgd", "the optimizer", choices=("adam", "sgd"))
    shuffle: bool = setting(True, "shuffle the samples")
    title: str = setting("", "the title")
    note: Optional[str] = setting(None, "a remark")
    limit: Optional[float] = setting(None, "a limit")
    layers: int = setting(5, "layers", at_least=1, at_most=20)
    port: int = setting(1, "a port", below=65536)


def built(text: str) -> Example:
    return build(Example, parse_yaml(text, "my.yaml"), {})


def refusal(text: str) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        built(text)
    return caught.value


def test_nothing_given_means_all_defaults() -> None:
    origins: Dict[str, str] = {}
    assert build(Example, {}, origins) == Example()
    assert set(origins.values()) == {"default"}


def test_every_key_has_an_origin() -> None:
    origins: Dict[str, str] = {}
    build(Example, parse_yaml("rate: 1\ndata:\n  side: 8\n", "my.yaml"), origins)
    assert list(origins) == [leaf.key for leaf in leaves(Example)]
    given = {key: origin for key, origin in origins.items() if origin != "default"}
    assert given == {"rate": "my.yaml:1", "data.side": "my.yaml:3"}


def test_leaves_come_in_the_order_of_the_schema() -> None:
    found = [(leaf.key, leaf.kind.item, leaf.kind.is_optional, leaf.default) for leaf in leaves(Example)]
    assert found[:3] == [
        ("data.n_train", int, False, 100),
        ("data.side", int, True, None),
        ("rate", float, False, 0.5),
    ]
    assert leaves(Example)[0].about.flag == "--n-train"


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("data.n_train", 7, 7),
        ("data.n_train", "7", 7),
        ("data.side", None, None),
        ("data.side", 8, 8),
        ("rate", 2, 2.0),
        ("rate", "1e-3", 0.001),
        ("momentum", 0, 0.0),
        ("momentum", 0.999, 0.999),
        ("optimizer", "adam", "adam"),
        ("shuffle", False, False),
        ("shuffle", "off", False),
        ("shuffle", "Yes", True),
        ("shuffle", 0, False),
        ("title", "12", "12"),
        ("note", None, None),
        ("limit", "3", 3.0),
    ],
)
def test_value_is_taken(key: str, given: object, value: object) -> None:
    settings = build(Example, assign(key, given, "--set"), {})
    found: object = settings
    for word in key.split("."):
        found = getattr(found, word)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [
        ("data.n_train", "many", "a whole number of at least 1"),
        ("data.n_train", "", "a whole number of at least 1"),
        ("data.n_train", 2.5, "a whole number of at least 1"),
        ("data.n_train", True, "a whole number of at least 1"),
        ("data.n_train", None, "a whole number of at least 1"),
        ("data.n_train", [1], "a whole number of at least 1"),
        ("data.n_train", 0, "a whole number of at least 1"),
        ("data.side", -8, "a whole number of at least 1"),
        ("rate", "fast", "a number above 0"),
        ("rate", 0, "a number above 0"),
        ("rate", float("inf"), "a number above 0"),
        ("rate", float("nan"), "a number above 0"),
        ("rate", False, "a number above 0"),
        ("momentum", 1, "a number of at least 0 and below 1"),
        ("momentum", -0.1, "a number of at least 0 and below 1"),
        ("optimizer", "adm", "one of adam, sgd"),
        ("optimizer", 3, "one of adam, sgd"),
        ("shuffle", "maybe", "true or false"),
        ("shuffle", 2, "true or false"),
        ("shuffle", None, "true or false"),
        ("title", 12, "one line of text"),
        ("title", None, "one line of text"),
        ("title", " ", "one line of text"),
        ("note", "", "one line of text"),
        ("note", ["a"], "one line of text"),
        ("limit", [], "a number"),
        ("data.n_train", 10**12 + 1, "a whole number of at least 1 and at most 1,000,000,000,000"),
        ("data.side", 10**30, "a whole number of at least 1 and at most 1,000,000,000,000"),
        ("layers", 21, "a whole number of at least 1 and at most 20"),
        ("layers", 10**30, "a whole number of at least 1 and at most 20"),
        ("layers", 0, "a whole number of at least 1 and at most 20"),
        ("port", 65536, "a whole number below 65,536"),
    ],
)
def test_wrong_value_names_key_value_and_what_is_expected(key: str, given: object, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        build(Example, assign(key, given, "my.yaml:4"), {})
    assert caught.value.message == f"my.yaml:4: {key} is {given!r}, expected {expected}"
    assert caught.value.hint


@pytest.mark.parametrize("text", ["2024", "0123", "no", "1.50", "0x1F", "1e3", "-1", "'2024'"])
@pytest.mark.parametrize("key", ["title", "note"])
def test_text_that_looks_like_another_value_stays_as_it_was_written(key: str, text: str) -> None:
    name, written = variable(key), text.strip("'")
    for tree in (
        assignment(f"{key}={text}", "--set"),
        from_environment({name: text}),
        parse_yaml(f"{key}: {text}", "f"),
    ):
        assert value_of(build(Example, tree, {}), key) == written


@pytest.mark.parametrize("text", ["null", "~"])
def test_no_value_is_no_text(text: str) -> None:
    assert build(Example, assignment(f"note={text}", "--set"), {}).note is None
    with pytest.raises(SettingsError, match="expected one line of text"):
        build(Example, assignment(f"title={text}", "--set"), {})


@pytest.mark.parametrize("key", ["title", "note", "data.n_train"])
def test_empty_value_is_answered_with_the_variable_it_may_come_from(key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        build(Example, assign(key, "", "--set"), {})
    assert caught.value.hint == "is the variable that it came from set?"


def test_number_too_large_for_a_float_is_refused() -> None:
    assert refusal(f"rate: 1{400 * '0'}").message.endswith("expected a number above 0")


def test_wrong_choice_is_answered_with_the_near_one() -> None:
    assert refusal("optimizer: adma").hint == "did you mean adam?"


def test_wrong_value_is_answered_with_its_meaning() -> None:
    hint = refusal("data: {n_train: x}").hint
    assert hint == "give another value, or none for what is shipped; it means: training samples"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        pytest.param("\nrat: 1", "my.yaml:2: rat is not a setting", "did you mean rate?", id="top"),
        pytest.param(
            "data:\n  ntrain: 1", "my.yaml:2: data.ntrain is not a setting", "did you mean data.n_train?", id="nested"
        ),
        pytest.param(
            "n_train: 1", "my.yaml:1: n_train is not a setting", "did you mean data.n_train?", id="no section"
        ),
        pytest.param("\ndat: {n_train: 1}", "my.yaml:2: dat is not a setting", "did you mean data?", id="section"),
        pytest.param(
            "dat:\n  n_train: 1", "my.yaml:1: dat is not a setting", "did you mean data?", id="section's line"
        ),
        pytest.param("\ndat: {}", "my.yaml:2: dat is not a setting", "did you mean data?", id="empty section"),
        pytest.param("\ndat: []", "my.yaml:2: dat is not a setting", "did you mean data?", id="empty list"),
    ],
)
def test_unknown_key_is_answered_with_the_near_miss(text: str, message: str, hint: str) -> None:
    error = refusal(text)
    assert (error.message, error.hint) == (message, hint)


def test_unknown_key_with_nothing_near_lists_all() -> None:
    hint = refusal("zzz: 1").hint
    assert all(leaf.key in hint for leaf in leaves(Example))


def test_unknown_key_of_a_section_lists_the_section() -> None:
    assert refusal("data: {zzzzzzzz: 1}").hint == "known: data.n_train, data.side"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("data: 5", "my.yaml:1: data is 5, expected a section with n_train, side", id="value for section"),
        pytest.param("\ndata:", "my.yaml:2: data is None, expected a section with n_train, side", id="bare section"),
        pytest.param("\nrate: {a: 1}", "my.yaml:2: rate is one value, not a section", id="section for value"),
        pytest.param("\nrate: {}", "my.yaml:2: rate is one value, not a section", id="empty section for value"),
    ],
)
def test_section_and_value_are_not_confused(text: str, message: str) -> None:
    assert refusal(text).message == message


def test_empty_section_keeps_the_defaults() -> None:
    assert built("data: {}") == Example()


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Example().rate = 1.0  # type: ignore[misc]


def test_origin_of_an_override_is_kept() -> None:
    origins: Dict[str, str] = {}
    build(Example, {"rate": Given(1, "--set")}, origins)
    assert origins["rate"] == "--set"


class Inner(Settings):
    splits: Tuple[str, ...] = setting((), "names")
    places: Tuple[int, ...] = setting((), "places", at_least=0)


class Kinds(Settings):
    inner: Inner = section(Inner)
    often: Fraction = setting(Fraction(1), "how often", at_least=0)
    rates: Tuple[float, ...] = setting((0.5,), "rates", above=0)
    bytes: Optional[bool] = setting(None, "bytes or not")
    rounding: str = setting("off", "rounding", choices=("off", "on", "ri"), ipu_only=True)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("often: 2", "often", Fraction(2)),
        ("often: 1/2", "often", Fraction(1, 2)),
        ("often: 0.1", "often", Fraction(1, 10)),
        ("often: 0", "often", Fraction(0)),
        ("rates: [1, 2.5, 1e-3]", "rates", (1.0, 2.5, 0.001)),
        ("rates: 15", "rates", (15.0,)),
        ("rates: 1, 2", "rates", (1.0, 2.0)),
        ("inner: {splits: [a, b]}", "inner.splits", ("a", "b")),
        ("inner: {splits: a}", "inner.splits", ("a",)),
        ("inner: {splits: 'a, b'}", "inner.splits", ("a", "b")),
        ("inner: {places: [0, 1]}", "inner.places", (0, 1)),
        ("inner: {places: []}", "inner.places", ()),
        ("bytes: null", "bytes", None),
        ("bytes: off", "bytes", False),
        ("rounding: ON", "rounding", "on"),
        ("rounding: OFF", "rounding", "off"),
        ("rounding: 'On'", "rounding", "on"),
        ("rounding: RI", "rounding", "ri"),
    ],
)
def test_further_kinds(text: str, key: str, value: object) -> None:
    assert value_of(build(Kinds, parse_yaml(text, "my.yaml"), {}), key) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("often: -1", "a number or a fraction (1/2) of at least 0"),
        ("often: 1/0", "a number or a fraction (1/2) of at least 0"),
        ("often: true", "a number or a fraction (1/2) of at least 0"),
        ("often: .inf", "a number or a fraction (1/2) of at least 0"),
        ("often: 1e99999999", "a number or a fraction (1/2) of at least 0"),
        ("often: 1/2/3", "a number or a fraction (1/2) of at least 0"),
        ("rates: [1, 0]", "numbers above 0"),
        ("rates: [1, x]", "numbers above 0"),
        ("inner: {places: [1, -1]}", "whole numbers of at least 0"),
        ("inner: {places: [1.5]}", "whole numbers of at least 0"),
        ("inner: {splits: [1]}", "a list of names"),
        ("bytes: maybe", "true or false"),
        ("rounding: sometimes", "one of off, on, ri"),
    ],
)
def test_wrong_values_of_further_kinds(text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        build(Kinds, parse_yaml(text, "my.yaml"), {})
    assert caught.value.message.endswith(f"expected {expected}")


@pytest.mark.parametrize(
    ("value", "as_yaml"),
    [((1, 2), [1, 2]), ((), []), (Fraction(1, 2), "1/2"), (Fraction(3), "3"), (None, None), (7, 7)],
)
def test_plain_value(value: object, as_yaml: object) -> None:
    assert plain_value(value) == as_yaml


def test_plain_settings_build_equal_ones() -> None:
    text = "inner: {splits: [a, b]}\noften: 1/3\nrates: [1, 2]\nrounding: ON\n"
    settings = build(Kinds, parse_yaml(text, "my.yaml"), {})
    assert plain(settings) == {
        "inner": {"splits": ["a", "b"], "places": []},
        "often": "1/3",
        "rates": [1.0, 2.0],
        "bytes": None,
        "rounding": "on",
    }
    assert build(Kinds, parse_yaml(yaml.safe_dump(plain(settings)), "job.yaml"), {}) == settings


def test_ipu_only_is_told_of_a_leaf() -> None:
    assert [leaf.key for leaf in leaves(Kinds) if leaf.about.ipu_only] == ["rounding"]


def test_settings_are_values() -> None:
    one, same, other = Data(5, side=3), Data(n_train=5, side=3), Data(5)
    assert one == same and hash(one) == hash(same) and repr(one) == "Data(n_train=5, side=3)"
    assert one != other and one != Inner() and dataclasses.replace(other, side=3) == one


@pytest.mark.parametrize(
    "values", [(1, 2, 3), (1, {"n_train": 2}), ({"n_trian": 2},)], ids=["many", "twice", "unknown"]
)
def test_settings_are_made_of_their_fields_alone(values: Tuple[Any, ...]) -> None:
    named = values[-1] if isinstance(values[-1], dict) else {}
    with pytest.raises(TypeError, match=r"Data\(\) takes each of n_train, side once, and nothing else"):
        Data(*(value for value in values if value is not named), **named)


def test_every_group_checks_itself_when_it_is_made() -> None:
    class Even(Settings):
        number: int = setting(2, "an even number")

        def __post_init__(self) -> None:
            if self.number % 2:
                raise SettingsError(f"{self.number} is odd")

    assert Even(4).number == 4
    with pytest.raises(SettingsError, match="3 is odd"):
        dataclasses.replace(Even(), number=3)
