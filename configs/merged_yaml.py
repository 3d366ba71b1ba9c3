"""YAML with anchors and merge keys, for files that anybody may have written: it cannot grow beyond a limit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Set, Tuple

import yaml

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.runs.untrusted import read_text
from ipulaunch.configs.settings.kinds import LONGEST_NUMBER
from ipulaunch.configs.settings.tree import composed

_LARGEST_FILE = 1 << 20
_MOST_PAIRS = 100_000  # keys with their values, after merging; the longest published file has some hundred


class Entries(NamedTuple):
    """The entries of a file, and the line that each begins in."""

    values: Dict[str, Any]
    lines: Dict[str, int]
    repeated: Tuple[str, ...]  # names that are given twice; the last one counts


def read_entries(path: Path) -> Entries:
    """The entries of a YAML file that is a mapping of names."""
    try:
        text = read_text(path, _LARGEST_FILE)
    except FileNotFoundError:
        raise SettingsError(f"there is no file {path}", hint="check the path") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_entries(text, str(path))


def parse_entries(text: str, name: str) -> Entries:
    """The entries of a YAML text; merge keys count as YAML has them: own keys first, then earlier anchors."""
    try:
        root = composed(text, name)
        if root is None:
            return Entries({}, {}, ())
        if not isinstance(root, yaml.MappingNode):
            raise SettingsError(f"{name}: expected a mapping of names to entries", hint="is it a specification?")
        _check_numbers(root, name)
        keys = [(str(key.value), key.start_mark.line + 1) for key, _ in root.value]
        values = _Constructor().construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise SettingsError(f"{name}{line}: not valid YAML: {error.problem}") from error
    # `!!int ""` has no first digit, 1:59:59:... counts in sixties beyond every float, and anchors can nest without end.
    except (yaml.YAMLError, ValueError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise SettingsError(f"{name}: not valid YAML: {error}") from error
    repeated = tuple(key for key, count in Counter(key for key, _ in keys).items() if count > 1)
    return Entries({str(key): value for key, value in values.items()}, dict(keys), repeated)


class _Constructor(yaml.constructor.SafeConstructor):
    """Plain values only. A few lines of merge keys can stand for billions of keys, so that these are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        self.pairs += len(node.value)
        if self.pairs > _MOST_PAIRS:
            raise yaml.YAMLError(f"merge keys give more than {_MOST_PAIRS} keys")


def _check_numbers(root: yaml.Node, name: str) -> None:
    seen: Set[int] = set()
    waiting: List[yaml.Node] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif node.tag.endswith((":int", ":float")) and len(node.value) > LONGEST_NUMBER:
            line = node.start_mark.line + 1
            raise SettingsError(f"{name}:{line}: a number of {len(node.value)} characters")
