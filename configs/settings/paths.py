"""Paths in settings: a run keeps them absolute, because it may be resumed from another directory."""

from __future__ import annotations

from pathlib import Path
from typing import Dict

from ipulaunch.configs.settings.schema import S, leaves, value_of, with_value


def whole_path(path: str) -> str:
    """The absolute path; a path that is absolute already stays as it is written."""
    return path if Path(path).is_absolute() else str(Path(path).absolute())


def with_whole_paths(settings: S) -> S:
    """The settings, with all of their paths absolute."""
    for key, path in relative_paths(settings).items():
        settings = with_value(settings, key, whole_path(path))
    return settings


def relative_paths(settings: object) -> Dict[str, str]:
    """The paths that depend on the current directory, by their keys."""
    paths = {leaf.key: value_of(settings, leaf.key) for leaf in leaves(type(settings)) if leaf.about.is_path}
    return {key: path for key, path in paths.items() if path is not None and not Path(path).is_absolute()}
