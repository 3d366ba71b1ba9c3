"""Paths that settings name: a run keeps them whole, for whoever continues it may be in another directory."""

from __future__ import annotations

from pathlib import Path
from typing import Dict

from ipulaunch.configs.settings.schema import S, leaves, value_of, with_value


def whole_path(path: str) -> str:
    """The path from the root; one that is whole stays as it is written."""
    return path if Path(path).is_absolute() else str(Path(path).absolute())


def with_whole_paths(settings: S) -> S:
    """The settings with every path that they name from the root."""
    for key, path in relative_paths(settings).items():
        settings = with_value(settings, key, whole_path(path))
    return settings


def relative_paths(settings: object) -> Dict[str, str]:
    """The paths that depend on the directory that one is in, by their keys."""
    paths = {leaf.key: value_of(settings, leaf.key) for leaf in leaves(type(settings)) if leaf.about.is_path}
    return {key: path for key, path in paths.items() if path is not None and not Path(path).is_absolute()}
