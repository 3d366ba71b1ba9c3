"""Values as they were given, each with the place it came from, before any schema has looked at them."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Mapping, NamedTuple, Set, Union

import yaml

from ipulaunch.configs.errors import SettingsError

# libyaml's loader is ten times as fast and reports the same line numbers.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LARGEST_FILE = 1 << 20  # settings are pages, not data; a larger file was named by mistake
_DEEPEST = 20
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map")}


class Given(NamedTuple):
    """One value and where it was given: `my.yaml:12`, `--set`, an environment variable."""

    value: object
    origin: str


Tree = Dict[str, Union[Given, "Tree"]]


def read_yaml(path: Path, *, shown_as: str = "") -> Tree:
    """The settings in a YAML file; every value remembers its line."""
    name = shown_as or str(path)
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise SettingsError(f"{name} has {path.stat().st_size} bytes; settings have at most {_LARGEST_FILE}")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(f"there is no file {name}", hint="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name} cannot be read: {error}") from error
    return parse_yaml(text, name)


def parse_yaml(text: str, name: str) -> Tree:
    """The settings in a YAML text, with plain values only: no Python objects, aliases or repeated keys."""
    if "\x00" in text:
        raise SettingsError(f"{name} is not text")
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            return {}
        tree = _Reader(name).tree(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise SettingsError(f"{name}{line}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"{name}: not valid YAML: {error}") from error
    if isinstance(tree, Given):
        raise SettingsError(f"{tree.origin}: expected `key: value` lines, found {tree.value!r}")
    return tree


class _Reader:
    """Turns composed YAML nodes into a tree; refuses what plain settings never need."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: Set[int] = set()
        self.constructor = yaml.constructor.SafeConstructor()

    def tree(self, node: yaml.Node, depth: int = 0) -> Union[Given, Tree]:
        origin = self.origin(node)
        if depth > _DEEPEST:
            raise SettingsError(f"{origin}: nested more than {_DEEPEST} deep")
        if not isinstance(node, yaml.MappingNode):
            return Given(self.plain(node), origin)
        self.once(node)
        tree: Tree = {}
        for key_node, value_node in node.value:
            key = self.plain(key_node)
            if not isinstance(key, str):
                raise SettingsError(f"{self.origin(key_node)}: the key {key!r} is not a word")
            # Graphcore's own files write micro-batch-size; both spellings are the same key.
            key = key.replace("-", "_")
            if key in tree:
                raise SettingsError(f"{self.origin(key_node)}: {key} is given twice")
            tree[key] = self.tree(value_node, depth + 1)
        return tree

    def plain(self, node: yaml.Node) -> object:
        origin = self.origin(node)
        self.once(node)
        if node.tag not in _PLAIN_TAGS:
            raise SettingsError(f"{origin}: {node.tag} is refused", hint="settings are plain values, no objects")
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            raise SettingsError(f"{origin}: a mapping is not expected inside a list")
        try:
            return self.constructor.construct_object(node)
        except (ValueError, yaml.YAMLError) as error:
            raise SettingsError(f"{origin}: {node.value!r} is not a value: {error}") from error

    def origin(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}"

    def once(self, node: yaml.Node) -> None:
        # An alias shows as the same node in two places; a few lines of them can stand for billions of values.
        if id(node) in self.seen:
            raise SettingsError(f"{self.origin(node)}: YAML aliases are refused", hint="write the value out")
        self.seen.add(id(node))


def assignment(text: str, origin: str) -> Tree:
    """The tree of one `section.key=value`, as given with --set."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"{origin} {text!r} is not of the form section.key=value", hint="e.g. data.n_train=64")
    return assign(key.strip().replace("-", "_"), scalar(value, origin), origin)


def scalar(text: str, origin: str) -> object:
    """A value written on a command line, read as YAML would read it."""
    if not text.strip():
        return text
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError:
        return text  # a path such as `a: b` or `{x` is text
    if node is None or isinstance(node, yaml.MappingNode):
        return text
    return _Reader(origin).plain(node)


def assign(key: str, value: object, origin: str) -> Tree:
    """The tree that holds one value under a dotted key."""
    tree: Union[Given, Tree] = Given(value, origin)
    for word in reversed(key.split(".")):
        tree = {word: tree}
    assert isinstance(tree, dict)
    return tree


def from_environment(environ: Mapping[str, str]) -> Tree:
    """Settings from variables such as IPULAUNCH_DATA__N_TRAIN=64 (two underscores stand for the dot)."""
    tree: Tree = {}
    for name in sorted(environ):
        if name.startswith("IPULAUNCH_") and "__" in name:
            key = name[len("IPULAUNCH_") :].lower().replace("__", ".")
            tree = merge(tree, assign(key, scalar(environ[name], name), name))
    return tree


def merge(*layers: Tree) -> Tree:
    """One tree; a later layer wins, value by value."""
    merged: Tree = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
