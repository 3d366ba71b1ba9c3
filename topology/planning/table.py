"""PopRun's own topology table, drawn as PopRun draws it."""

from __future__ import annotations

from typing import List, Sequence

from ipulaunch.topology.planning.plan import Plan

_LABEL_WIDTH = 11


def columns(plan: Plan) -> int:
    """The width of the table."""
    return _LABEL_WIDTH + plan.replicas * (_cell(plan) + 1) + 2


def draw(plan: Plan) -> str:
    """The table `poprun --print-topology=yes` prints for this plan."""
    cell = _cell(plan)
    width = plan.replicas * (cell + 1) - 1
    full = _LABEL_WIDTH + 1 + width
    rows = [
        _row("hosts", _names(plan.hosts, _span(width, len(plan.hosts)))),
        _row("ILDs", _centred([str(i) for i in range(plan.ilds)], _span(width, plan.ilds))),
        _row("instances", _centred([str(i) for i in range(plan.instances)], _span(width, plan.instances))),
        _row("replicas", [f" {index:<{cell - 2}} " for index in range(plan.replicas)]),
    ]
    rule = f"|{'-' * _LABEL_WIDTH}|{'-' * width}|"
    lines = [" " + "=" * full, f"|{_centre('poprun topology', full)}|", f"|{'=' * full}|"]
    return "\n".join([*lines, f"\n{rule}\n".join(rows), " " + "-" * full])


def _cell(plan: Plan) -> int:
    return len(str(plan.replicas - 1)) + 2


def _span(width: int, parts: int) -> int:
    return (width + 1) // parts - 1


def _row(label: str, cells: Sequence[str]) -> str:
    return f"| {label:<9} |{'|'.join(cells)}|"


def _names(hosts: Sequence[str], span: int) -> List[str]:
    names = [host if len(host) <= span else f"[{index}]" for index, host in enumerate(hosts)]
    return _centred(names, span)


def _centred(texts: Sequence[str], span: int) -> List[str]:
    return [_centre(text, span) for text in texts]


def _centre(text: str, span: int) -> str:
    """Centred; an odd blank goes to the right, unlike with str.center()."""
    left = (span - len(text)) // 2
    return " " * left + text + " " * (span - len(text) - left)
