"""Keeping secrets out of what is printed and recorded, told by their names."""

from __future__ import annotations

import re
import shlex
from typing import List, Sequence

# Tokens of a language model, tokenizers and authors are no secrets.
_SECRET = (
    r"(?i)(secret|token(?!s|i[sz])|passw|api[-_]?key|private[-_]?key|access[-_]?key|credential|auth(?!ors?(?![a-z])))"
)
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
            shown.append(_redact_inside(word))
        mask_next = not equals and word.startswith("--") and is_secret(word)
    return shown


def _redact_inside(word: str) -> str:
    """A word that holds words itself: options for mpirun, or a program for a shell."""
    try:
        words = shlex.split(word) if re.search(r"\s", word) else [word]
    except ValueError:
        return MASK if is_secret(word) else word
    if len(words) < 2:
        return word
    shown = redact(words)
    return word if shown == words else " ".join(map(shlex.quote, shown))
