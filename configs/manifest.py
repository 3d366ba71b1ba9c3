"""Kubernetes manifests as text."""

from __future__ import annotations

from typing import Any, Mapping

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that a script in a manifest can be read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def manifest_text(data: Mapping[str, Any]) -> str:
    """A manifest as YAML, its keys in the order they are given."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=1000)
