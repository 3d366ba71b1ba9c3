"""Names in scripts and manifests: all but plain ones are refused."""

from __future__ import annotations

import re
import shlex
from typing import Union

from ipulaunch.configs.errors import UsageError
from ipulaunch.launcher.launch.redaction import refuse_secret

# Kind of name, its pattern, and the pattern in words.
_PATTERNS = {
    "name": (r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "letters, digits, dots, dashes and underscores"),
    "list": (r"[A-Za-z0-9][A-Za-z0-9._,@:-]{0,255}", "names with commas between them"),
    "mail": (r"[A-Za-z0-9][A-Za-z0-9._+-]*@[A-Za-z0-9][A-Za-z0-9.-]*", "a mail address"),
    "image": (r"[A-Za-z0-9./][A-Za-z0-9._/:@+-]{0,511}", "an image such as registry/name:tag"),
    "path": (r"/[A-Za-z0-9._/+@=,~-]*", "a whole path of letters, digits and ._/+@=,~-"),
    "file": (r"[~/A-Za-z0-9][A-Za-z0-9._/+@=,~-]*", "a path of letters, digits and ._/+@=,~-"),
    "module": (r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,127}", "a module such as python/3.8"),
    "dns": (r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "small letters, digits and dashes, at most 63"),
    "variable": (r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of a variable: letters, digits and underscores"),
    "secret": (
        r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
        "SECRET/KEY, the Secret in small letters, digits, dots, dashes",
    ),
    "key": (r"[A-Za-z0-9._-]{1,253}", "SECRET/KEY, the key in letters, digits, dots, dashes and underscores"),
    "label": (
        r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        "KEY=VALUE, the key a name such as team or example.org/team",
    ),
    "label value": (
        r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?",
        "KEY=VALUE, the value of at most 63 letters, digits, dots, dashes and underscores",
    ),
    "quantity": (r"[0-9]{1,9}(\.[0-9]{1,3})?(Ki|Mi|Gi|Ti|k|M|G|T)?", "an amount such as 200Gi"),
    "directive": (r"-{1,2}[A-Za-z][A-Za-z0-9 ._/+@=,:%-]{0,255}", "an option of the scheduler such as --qos=high"),
    "vipu": (
        r"(?:[A-Za-z0-9]|\{job_id\})(?:[A-Za-z0-9._-]|\{job_id\}){0,127}",
        "a name, in which {job_id} is the job's number",
    ),
}


class Expression(str):
    """Shell code to write into a script as it is; everything else is quoted."""


Word = Union[str, Expression]


def plain(kind: str, value: str, what: str) -> str:
    """The value, if it matches the pattern of its kind; else an error."""
    pattern, meant = _PATTERNS[kind]
    if not re.fullmatch(pattern, value, re.ASCII):
        raise UsageError(f"{what} {value!r} is refused", hint=f"expected {meant}")
    refuse_secret(value, what)
    return value


def one_line(text: str, what: str) -> str:
    """The text, if it is one printable line; else an error."""
    if not text.isprintable():
        raise UsageError(f"{what} {text!r} is refused", hint="expected one line, without control characters")
    refuse_secret(text, what)
    return text


def quoted(word: Word) -> str:
    """A word as a shell reads it back."""
    if isinstance(word, Expression):
        return str(word)
    one_line(word, "the word")
    name, equals, value = word.partition("=")
    # --set 'data.x=a b' as one quoted word reads worse than --num-epochs=3, which needs none.
    return f"{name}={shlex.quote(value)}" if equals and re.fullmatch(r"--[a-z-]+", name) else shlex.quote(word)
