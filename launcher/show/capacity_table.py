"""The capacity of a plan as text of 80 columns: rates of the chain, bars, the verdict, and what would help."""

from __future__ import annotations

import textwrap
from typing import List, Optional, Sequence, Tuple

from ipulaunch.configs.text import duration
from ipulaunch.launcher.launch.capacity import Capacity, plan_text
from ipulaunch.launcher.launch.capacity_check import span, verdict_text
from ipulaunch.launcher.show.picture import table
from ipulaunch.topology.capacity.chain import BUSY, OPEN, STARVE, UNCERTAIN, Chain, Link
from ipulaunch.topology.capacity.ranges import Range

COLUMNS = 80
_NAME_COLUMNS = 13
_BEYOND = 3.0  # times the rate of the bottleneck: longer bars are cut
_SURE, _PERHAPS, _CUT = "█", "░", ">"
_VERDICTS = {BUSY: "IPUs busy", STARVE: "IPUs wait", UNCERTAIN: "ranges overlap", OPEN: ""}


def capacity_text(capacity: Capacity) -> str:
    """Everything, in the order in which one asks."""
    chain = capacity.chain
    parts = [
        _wrapped(plan_text(capacity)),
        table(_rates(chain)),
        bars(chain),
        "\n".join(_sources(chain)),
        _wrapped(sentence(verdict_text(chain))),
        "\n".join(_facts(capacity)),
    ]
    if capacity.improvements:
        parts.append("\n".join(_improvements(capacity)))
    return "\n\n".join(part for part in parts if part)


def _rates(chain: Chain) -> List[Sequence[str]]:
    head = ("samples/s", "instance", "host", "POD", "headroom", "")
    return [head, *(_rate_row(chain, link) for link in chain.links)]


def _rate_row(chain: Chain, link: Link) -> Tuple[str, ...]:
    headroom = chain.headroom(link)
    room = f"{_short(headroom)} x" if headroom is not None else "slowest" if link is chain.bottleneck else ""
    return (link.name, _short(link.instance), _short(link.host), _short(link.pod), room, link.origin)


def bars(chain: Chain) -> str:
    """A bar for each link: solid for what it surely does, light for what it may do."""
    slowest = chain.bottleneck
    if slowest is None or slowest.pod is None:
        return ""
    room = COLUMNS - _NAME_COLUMNS - 1
    scale = room / (_BEYOND * slowest.pod.high)
    lines = []
    for link in chain.links:
        bar = "not known"
        if link.pod is not None:
            low, high = (round(each * scale) for each in (link.pod.low, link.pod.high))
            bar = (_SURE * max(1, low) + _PERHAPS * (high - low))[:room]
            bar += _CUT if high > room else ""
        lines.append(f"{link.name:<{_NAME_COLUMNS}}{bar}")
    return "\n".join(lines)


def _sources(chain: Chain) -> List[str]:
    return [_wrapped(f"{link.origin}: {link.source}", f"{link.name:<{_NAME_COLUMNS}}") for link in chain.links]


def _facts(capacity: Capacity) -> List[str]:
    chain = capacity.chain
    facts = []
    slowest = chain.bottleneck
    if slowest is not None:
        rivals = ", ".join(link.name for link in chain.rivals)
        facts.append(("slowest", slowest.name + (f"; perhaps slower, as ranges overlap: {rivals}" if rivals else "")))
    per_hour, training, epochs = chain.epochs_per_hour, capacity.training_s, chain.inputs.epochs
    most, least = ("at most ", "at least ") if chain.is_upper_limit else ("", "")
    if per_hour is not None and training is not None:
        took = " to ".join(dict.fromkeys(duration(each) for each in (training.low, training.high)))
        facts.append(("epochs", f"{most}{span(per_hour)} an hour; {epochs} of them take {least}{took}"))
    if capacity.energy is not None:
        facts.append(("energy", least + capacity.energy.text))
    if capacity.memory is not None:
        facts.append(("memory", capacity.memory.fact.text))
    return [_wrapped(text, f"{name:<{_NAME_COLUMNS}}") for name, text in facts]


def _improvements(capacity: Capacity) -> List[str]:
    lines = ["what would help, in samples/s:"]
    for each in capacity.improvements:
        flow = each.chain.flow
        verdict = _VERDICTS[each.chain.verdict]
        start = f"  {_short(flow)}"
        lines.append(_wrapped(each.change + (f" ({verdict})" if verdict else ""), f"{start:<{_NAME_COLUMNS + 2}}"))
    return lines


def _wrapped(text: str, label: str = "") -> str:
    indent = " " * len(label)
    return textwrap.fill(
        text, COLUMNS, initial_indent=label, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _short(value: Optional[Range]) -> str:
    """A range in few columns: 9.1k-114k."""
    if value is None:
        return "?"
    low, high = compact(value.low), compact(value.high)
    return low if low == high else f"{low}-{high}"


def compact(value: float) -> str:
    """Three digits that count, and a letter for thousands and millions."""
    for letter, size in (("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
