"""Keeping secrets out of what is printed and recorded, told by their names."""

from __future__ import annotations

import re
from typing import List, Sequence

_SECRET = r"(?i)(secret|token|passw|api[-_]?key|private[-_]?key|access[-_]?key|credential|auth)"
MASK = "***"


def is_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret."""
    return bool(re.search(_SECRET, name))


def redact(words: Sequence[str]) -> List[str]:
    """The words of a command, with the values of `NAME=value`, `--name=value` and `--name value` masked."""
    shown: List[str] = []
    mask_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        if mask_next and not word.startswith("-"):
            shown.append(MASK)
        elif equals and re.fullmatch(r"-{0,2}[\w.-]+", name) and is_secret(name):
            shown.append(f"{name}={MASK}")
        else:
            shown.append(word)
        mask_next = not equals and word.startswith("--") and is_secret(word)
    return shown
