"""Secrets: which variables hold one, by their names, and how their values stay out of files and instances."""

from __future__ import annotations

import functools
import re
from typing import Collection, Dict, List, Mapping, Tuple

# Tokens of a language model, tokenizers and authors are not secrets.
_SECRET = (
    r"(?i)(secret|token(?!s|i[sz])|passw|passphrase|api[-_]?key|private[-_]?key|access[-_]?key|credential"
    r"|cookie|webhook|(?<![a-z])creds?(?![a-z])"
    r"|auth(?!ors?(?![a-z])))"
)
# Names that end so hold a secret, unless the words before say otherwise.
_SECRET_AT_THE_END = r"(?i)[a-z0-9]([-_](pwd|pat|key)|[-_]?tokens)$"
_COUNTS_AND_LOOKUPS = (
    r"(?i)(?<![a-z])((max|min|num|n|new|total)[-_]?tokens|(public|primary|foreign|sort|cache)[-_]key"
    r"|distribute-ssh-key)$"  # the last is an option of poprun, which says whether
)
# Each name of a secret has one of these in it, or at its end. Most names have none, and need no regular expression.
_IN_SECRETS = ("secret", "token", "passw", "passphrase", "key", "cred", "cookie", "webhook", "auth")
_ENDS_OF_SECRETS = ("_pwd", "-pwd", "_pat", "-pat")
_NO_SECRETS = ("SSH_AUTH_SOCK", "XAUTHORITY")  # paths, which MPI's ssh and a display need
_FOR_MPIRUN = ("PBS_JOBCOOKIE",)  # PBS knows jobs by it: an mpirun built for its task manager needs it to start
_SHORTEST = 6  # characters: masking what is shorter would hide words that only look the same
MASK = "***"


@functools.lru_cache(maxsize=1024)  # the same few names stand in a command once for each instance
def is_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret."""
    return name not in _NO_SECRETS and _may_be_secret(name) and _is_said_to_be_secret(name)


def _may_be_secret(name: str) -> bool:
    lower = name.lower().rstrip("\n")
    parts = any(part in lower for part in _IN_SECRETS)
    return parts or lower.endswith(_ENDS_OF_SECRETS) or not name.isascii()  # \u017f is another small s, and so on


def _is_said_to_be_secret(name: str) -> bool:
    ends_so = re.search(_SECRET_AT_THE_END, name) and not re.search(_COUNTS_AND_LOOKUPS, name)
    return bool(re.search(_SECRET, name) or ends_so)


def withheld(environ: Mapping[str, str], named: Collection[str]) -> List[str]:
    """The variables that instances do not get: secrets that the user has not named and mpirun does not need."""
    return sorted(name for name in environ if is_secret(name) and name not in (*named, *_FOR_MPIRUN))


def without_secrets(environ: Mapping[str, str], named: Collection[str]) -> Dict[str, str]:
    """The environment of the instances, the same on this host as on others."""
    away = set(withheld(environ, named))
    return {name: value for name, value in environ.items() if name not in away}


def secret_values(environ: Mapping[str, str]) -> Tuple[str, ...]:
    """The values that must not get into a file, the longest first: one may be a part of another.

    Of a value of several lines also each line: logs are written line by line.
    """
    values = [value for name, value in environ.items() if is_secret(name)]
    lines = [line.strip() for value in values for line in value.splitlines()]
    found = {text for text in (*values, *lines) if len(text) >= _SHORTEST}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def masked(text: str, values: Collection[str]) -> str:
    """The text without these values."""
    for value in values:
        text = text.replace(value, MASK)
    return text
