"""Pages: one HTML file each, which loads nothing and runs nothing."""

from __future__ import annotations

import functools
import os
import unicodedata
from pathlib import Path
from typing import Any, Tuple

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.runs.secrets import masked, secret_values
from ipulaunch.configs.text import counted
from ipulaunch.launcher.launch.redaction import redacted_text
from ipulaunch.launcher.report.drawing import HEIGHT, WIDTH

_HERE = Path(__file__).parent
_LONGEST = 8000  # characters of one text
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # they would reorder what follows


def is_possible() -> bool:
    """Whether the extra is installed."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        return False
    return True


def require_templates() -> None:
    """Refuse where the extra is missing."""
    if not is_possible():
        raise NotReadyError("a report needs Jinja2, which is not installed here: pip install 'ipulaunch[report]'")


def rendered(template: str, **values: Any) -> str:
    """A page. Every value that it shows is text, without secrets and of a bounded length."""
    import jinja2
    from markupsafe import Markup

    values_of_secrets = secret_values(os.environ)

    def shown(value: object) -> object:
        return value if isinstance(value, Markup) else plain_text(str(value), values_of_secrets)

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(path=_path, counted=counted, width=WIDTH, height=HEIGHT)
    style = Markup((_HERE / "page.css").read_text(encoding="utf-8"))
    page: str = environment.get_template(template).render(style=style, **values)
    return page


def plain_text(text: str, values_of_secrets: Tuple[str, ...]) -> str:
    """A text as a page shows it: no secrets, no characters that steer, and of a longer one its beginning."""
    more = len(text) - _LONGEST
    if more > 0:
        whole = masked(text, values_of_secrets)
        text = f"{whole[:_LONGEST]} … and {more:,} more characters"
    text = redacted_text(text, values_of_secrets)
    return text if text.isascii() and text.isprintable() else "".join(map(_visible, text))


@functools.lru_cache(maxsize=4096)
def _visible(character: str) -> str:
    steers = unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn") or character in _BIDI
    return "\ufffd" if steers and character not in "\n\t" else character


def _path(numbers: str) -> Any:
    """The points of a curve, which are numbers alone: long, and nothing to hide."""
    from markupsafe import Markup

    if not set(numbers) <= set("0123456789.,e+- "):
        raise ValueError("a curve has more than numbers")
    return Markup(numbers)
