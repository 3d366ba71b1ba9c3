"""One finding of the doctor, and its text."""

from __future__ import annotations

import re
from typing import NamedTuple, Tuple

from ipulaunch.configs.runs.secrets import MASK, is_secret
from ipulaunch.launcher.launch.redaction import redact

OK, WARNING, MISSING = "ok", "warning", "missing"

POPRUN, OPENMPI, DIRECT = "poprun", "openmpi", "direct"
BOTH = (POPRUN, OPENMPI)

_LONGEST = 300  # characters of a finding; the output of other programs can be pages long
_STYLE = r"\x1b\[[0-9;?]*[A-Za-z]"  # colours of a terminal
_VALUE = r"([\w.-]+)=([^\s,;'\")]+)"
_USER = r"://[^\s/@]+@"


class Check(NamedTuple):
    """One check: what the doctor found, and what to do if that is not enough."""

    group: str
    name: str
    state: str  # OK, WARNING or MISSING
    found: str
    fix: str = ""
    stops: Tuple[str, ...] = ()  # the engines that cannot work while this is missing


def clean(check: Check) -> Check:
    """The same finding without secrets, control characters and lines of its own."""
    return check._replace(found=_plain(check.found)[:_LONGEST], fix=_plain(check.fix))


def amount(size: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.0f} GiB" if size >= 100 else f"{size:.3g} GiB"


def _plain(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in re.sub(_STYLE, "", text))
    words = " ".join(redact(printable.split()))
    # Output of other programs also has secrets in brackets and in addresses.
    words = re.sub(_VALUE, lambda match: f"{match[1]}={MASK}" if is_secret(match[1]) else match[0], words)
    return re.sub(_USER, f"://{MASK}@", words)
