"""Values as they were given, each with the place it came from, before any schema has looked at them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Mapping, Optional, Set, Union

import yaml

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.kinds import LONGEST_NUMBER

# Keys that version 0.1.0 had. Files, variables, worker lines and runs of then are still read.
_RENAMED = {"data.data_dir": "data.directory", "data.dataset_path": "data.directory"}
_VARIABLE = "IPULAUNCH_"  # what the variables of settings begin with
ATTEMPT = "IPULAUNCH_ATTEMPT"  # no setting: tells a program of the user's own which of its attempts this is
# libyaml's loader is ten times as fast and reports the same line numbers.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LARGEST_FILE = 1 << 20  # settings are pages, not data; a larger file was named by mistake
_DEEPEST = 20
_PLAIN = {
    yaml.ScalarNode: ("str", "int", "float", "bool", "null"),
    yaml.SequenceNode: ("seq",),
    yaml.MappingNode: ("map",),
}


@dataclass(frozen=True)
class Given:
    """One value and where it was given: `my.yaml:12`, `--set`, an environment variable."""

    value: object
    origin: str
    text: Optional[str] = field(default=None, compare=False)  # as it was written, for settings that are text


Tree = Dict[str, Union[Given, "Tree"]]


class Section(Dict[str, Union[Given, Tree]]):
    """A tree that remembers the line of its own key, so that an empty or unknown section can be found."""

    origin = "settings"


def read_yaml(path: Path, *, shown_as: str = "") -> Tree:
    """The settings in a YAML file; every value remembers its line."""
    name = shown_as or str(path)
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise SettingsError(f"{name} is larger than {_LARGEST_FILE} bytes", hint="is it a file of settings?")
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise SettingsError(f"there is no file {name}", hint="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name} cannot be read: {error}") from error
    return parse_yaml(text, name)


def parse_yaml(text: str, name: str) -> Tree:
    """The settings in a YAML text, with plain values only: no Python objects, aliases or repeated keys."""
    if "\0" in text or (not text.isascii() and re.search("[\ud800-\udfff]", text)):
        raise SettingsError(f"{name} is not text")
    try:
        node = composed(text, name)
        if node is None:
            return {}
        tree = _Reader(name).tree(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise SettingsError(f"{name}{line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{name}: not valid YAML: {error}") from error
    if isinstance(tree, Given):
        raise SettingsError(f"{tree.origin}: expected `key: value` lines, found {tree.value!r}")
    return tree


def composed(text: str, name: str) -> Optional[yaml.Node]:
    """The nodes of a YAML text that is not nested too deep."""
    # libyaml composes by recursion in C: some ten thousand brackets overflow the stack, which nothing can catch.
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise SettingsError(f"{name}: nested more than {_DEEPEST} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    node: Optional[yaml.Node] = yaml.compose(text, Loader=_Loader)
    return node


def _current(key: str) -> str:
    """The name that a key has today."""
    return _RENAMED.get(key, key)


def _kind(node: yaml.Node) -> str:
    return node.tag.replace("tag:yaml.org,2002:", "")


class _Reader:
    """Turns composed YAML nodes into a tree; refuses what plain settings never need."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: Set[int] = set()
        self.constructor = yaml.constructor.SafeConstructor()

    def tree(self, node: yaml.Node, section: str = "") -> Union[Given, Section]:
        if not isinstance(node, yaml.MappingNode):
            return Given(self.plain(node), self.origin(node), node.value if isinstance(node, yaml.ScalarNode) else None)
        self.admit(node)
        tree = Section()
        for key_node, value_node in node.value:
            key = self.plain(key_node)
            if not isinstance(key, str):
                raise SettingsError(f"{self.origin(key_node)}: the key {key!r} is not a word")
            # Graphcore's own files write micro-batch-size; both spellings are the same key.
            written = key.replace("-", "_")
            key = _current(f"{section}.{written}")[len(section) + 1 :]
            if key in tree:
                other = "" if written == key else f", the former name of {key},"
                raise SettingsError(f"{self.origin(key_node)}: {written}{other} is given twice")
            value = tree[key] = self.tree(value_node, key)
            if isinstance(value, Section):
                value.origin = self.origin(key_node)
        return tree

    def plain(self, node: yaml.Node) -> object:
        origin = self.origin(node)
        self.admit(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            raise SettingsError(f"{origin}: a mapping is not expected inside a list")
        if _kind(node) in ("int", "float") and len(node.value) > LONGEST_NUMBER:
            raise SettingsError(f"{origin}: a number of {len(node.value)} characters")
        try:
            return self.constructor.construct_object(node)
        # `!!int ""` has no first digit, and 1:59:59:... counts in sixties beyond every float.
        except (ValueError, KeyError, IndexError, OverflowError, yaml.YAMLError) as error:
            raise SettingsError(f"{origin}: {node.value!r} is not a value: {error}") from error

    def origin(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}"

    def admit(self, node: yaml.Node) -> None:
        if _kind(node) not in _PLAIN[type(node)]:
            message = f"{self.origin(node)}: {node.tag} is refused"
            raise SettingsError(message, hint="settings are plain values, no objects")
        # An alias shows as the same node in two places; a few lines of them can stand for billions of values.
        if id(node) in self.seen:
            raise SettingsError(f"{self.origin(node)}: YAML aliases are refused", hint="write the value out")
        self.seen.add(id(node))


def assignment(text: str, origin: str) -> Tree:
    """The tree of one `section.key=value`, as given with --set."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"{origin} {text!r} is not of the form section.key=value", hint="e.g. data.n_train=64")
    return assign(key.strip().replace("-", "_"), scalar(value, origin), origin, value.strip())


def scalar(text: str, origin: str) -> object:
    """A value written on a command line, read as YAML would read it."""
    if not text.strip():
        return text
    try:
        node = composed(text, origin)
    except (yaml.YAMLError, UnicodeEncodeError):
        return text  # a path such as `a: b` or `{x` is text; the schema refuses bytes that are not
    if not isinstance(node, (yaml.ScalarNode, yaml.SequenceNode)) or _kind(node) not in _PLAIN[type(node)]:
        return text  # so are dates and tags: no setting has a use for them
    return _Reader(origin).plain(node)


def assign(key: str, value: object, origin: str, text: Optional[str] = None) -> Tree:
    """The tree that holds one value under a dotted key."""
    tree: Union[Given, Tree] = Given(value, origin, text)
    for word in reversed(_current(key).split(".")):
        tree = {word: tree}
    assert isinstance(tree, dict)
    return tree


def from_environment(environ: Mapping[str, str]) -> Tree:
    """Settings from variables such as IPULAUNCH_DATA__N_TRAIN=64 (two underscores stand for the dot).

    Every other variable with this prefix is a setting: the schema refuses a misspelt one.
    """
    tree: Tree = {}
    names: Dict[str, str] = {}  # of the variables, by the settings that they give
    for name in sorted(environ):
        if name.startswith(_VARIABLE) and name != ATTEMPT:
            key = name[len(_VARIABLE) :].lower().replace("__", ".")
            other = names.setdefault(_current(key), name)
            if other != name:
                raise SettingsError(f"{other} and {name} both set {_current(key)}", hint="set one of them")
            tree = merge(tree, assign(key, scalar(environ[name], name), name, environ[name].strip()))
    return tree


def variable(key: str) -> str:
    """The variable of a setting."""
    return _VARIABLE + key.upper().replace(".", "__")


def merge(*layers: Tree) -> Tree:
    """One tree; a later layer wins, value by value."""
    merged = Section()
    for layer in layers:
        merged.origin = getattr(layer, "origin", merged.origin)
        for key, value in layer.items():
            below = merged.get(key)
            if isinstance(below, Given) and isinstance(value, dict):
                raise SettingsError(
                    f"{below.origin}: {key} is {below.value!r}, and {first_origin(value)} takes it for a section",
                    hint="give one of them",
                )
            merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def first_origin(value: Union[Given, Tree, None]) -> str:
    """Where a value was given, or the first one of a section."""
    while isinstance(value, dict) and value and not isinstance(value, Section):
        value = next(iter(value.values()))
    return value.origin if isinstance(value, (Given, Section)) else "settings"


def flat(tree: Tree, prefix: str = "") -> Dict[str, Given]:
    """Every value of a tree under its dotted key."""
    found: Dict[str, Given] = {}
    for key, value in tree.items():
        found.update({prefix + key: value} if isinstance(value, Given) else flat(value, f"{prefix}{key}."))
    return found


def without(tree: Tree, key: str) -> Tree:
    """The tree without one value."""
    first, _, rest = key.partition(".")
    below = tree.get(first)
    kept: Tree = {name: value for name, value in tree.items() if name != first}
    if rest and isinstance(below, dict):
        kept[first] = without(below, rest)
    elif rest and below is not None:
        kept[first] = below
    return kept
