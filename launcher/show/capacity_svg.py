"""The chain as a picture: a bar for each link, in SVG that any browser shows, light and dark."""

from __future__ import annotations

import html
import math
import textwrap
from typing import Iterator, List, NamedTuple, Sequence

from ipulaunch.launcher.launch.capacity import Capacity, plan_text
from ipulaunch.launcher.launch.capacity_check import span, verdict_text
from ipulaunch.launcher.show.capacity_table import compact, sentence
from ipulaunch.topology.capacity.chain import Chain, Link

_WIDTH, _LEFT, _RIGHT = 900, 118, 40
_ROW, _BAR = 38, 20
_LINE, _SMALL_LINE = 20, 15  # of text
_CHARACTERS, _SMALL_CHARACTERS = 115, 112  # of a line
_STYLE = """
    .page { fill: #ffffff; }
    text { fill: #1b1f24; font: 14px system-ui, sans-serif; }
    text.title { font-size: 17px; font-weight: 600; }
    text.faint { fill: #57606a; font-size: 12px; }
    .bar { fill: #4f6d9c; } .slowest .bar { fill: #b54708; } .perhaps { fill-opacity: 0.35; }
    .grid { stroke: #d0d7de; } .needed { fill: #1b1f24; fill-opacity: 0.08; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; } text { fill: #e6edf3; } text.faint { fill: #9ea7b3; }
      .bar { fill: #7ea2dc; } .slowest .bar { fill: #f0883e; }
      .grid { stroke: #30363d; } .needed { fill: #e6edf3; fill-opacity: 0.12; }
    }
"""


class _Scale(NamedTuple):
    """A logarithmic axis of samples/s between two powers of ten."""

    first: int
    last: int

    def x(self, rate: float) -> float:
        part = (math.log10(rate) - self.first) / (self.last - self.first)
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    @property
    def ticks(self) -> List[float]:
        return [10.0**power for power in range(self.first, self.last + 1)]


class _Row(NamedTuple):
    """A link, and what is said below its bar."""

    link: Link
    lines: List[str]

    @property
    def height(self) -> int:
        return _ROW + _SMALL_LINE * len(self.lines)


def capacity_svg(capacity: Capacity) -> str:
    """The picture: one file without anything to fetch."""
    chain = capacity.chain
    told = _wrapped(sentence(verdict_text(chain)), _CHARACTERS)
    top = 64 + _LINE * len(told)
    rows = [_Row(link, _wrapped(_about(chain, link), _SMALL_CHARACTERS)) for link in chain.links]
    height = top + sum(row.height for row in rows) + 56
    title = html.escape(plan_text(capacity))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        ' role="img" aria-labelledby="title verdict">',
        f'<title id="title">{title}</title>',
        f'<desc id="verdict">{html.escape(" ".join(told))}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="20" y="34">{title}</text>',
        *(f'<text x="20" y="{60 + _LINE * n}">{html.escape(line)}</text>' for n, line in enumerate(told)),
        *_chart(chain, rows, top),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, characters: int) -> List[str]:
    return textwrap.wrap(text, characters, break_on_hyphens=False)


def _about(chain: Chain, link: Link) -> str:
    """The rate of a link, and where it comes from."""
    rate = "rate" if link.pod is None else f"{span(link.pod)} samples/s"
    slowest = ", the slowest" if link is chain.bottleneck else ""
    return f"{rate}{slowest}; {link.origin}: {link.source}"


def _chart(chain: Chain, rows: Sequence[_Row], top: int) -> Iterator[str]:
    known = [link.pod for link in chain.links if link.pod is not None]
    if not known:
        return
    first = math.floor(math.log10(min(rate.low for rate in known)) - 1e-9)
    scale = _Scale(first, max(first + 1, math.ceil(math.log10(max(rate.high for rate in known)))))
    bottom = top + sum(row.height for row in rows)
    axis = "samples/s of the POD, on a logarithmic scale"
    needed = chain.device.pod
    if needed is not None and not chain.inputs.is_rehearsal:
        x, width = scale.x(needed.low), max(2.0, scale.x(needed.high) - scale.x(needed.low))
        yield f'<rect class="needed" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{bottom - top}"/>'
        axis += "; shaded: what the IPUs take"
    for tick in scale.ticks:
        x = scale.x(tick)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'
        yield f'<text class="faint" text-anchor="middle" x="{x:.1f}" y="{bottom + 18}">{compact(tick)}</text>'
    yield f'<text class="faint" x="{_LEFT}" y="{bottom + 38}">{axis}</text>'
    y = top
    for row in rows:
        yield from _bar(row, scale, y, "slowest" if row.link is chain.bottleneck else "link")
        y += row.height


def _bar(row: _Row, scale: _Scale, y: int, kind: str) -> Iterator[str]:
    link = row.link
    yield f'<g class="{kind}"><text x="20" y="{y + 22}">{html.escape(link.name)}</text>'
    if link.pod is not None:
        low, high = scale.x(link.pod.low), scale.x(link.pod.high)
        yield f'<rect class="bar" x="{_LEFT}" y="{y + 8}" width="{low - _LEFT:.1f}" height="{_BAR}"/>'
        if high > low:
            yield f'<rect class="bar perhaps" x="{low:.1f}" y="{y + 8}" width="{high - low:.1f}" height="{_BAR}"/>'
    for number, line in enumerate(row.lines):
        yield f'<text class="faint" x="{_LEFT}" y="{y + 42 + _SMALL_LINE * number}">{html.escape(line)}</text>'
    yield "</g>"
