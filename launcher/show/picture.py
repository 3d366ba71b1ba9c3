"""Plans as text: aligned tables, the picture of hosts, instances, replicas and IPUs, and PopRun's own table."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from ipulaunch.configs.text import counted
from ipulaunch.topology import Placement, Plan

_MOST_HOSTS = 4  # shown one by one; a plan gives all the same number of instances
_MOST_INSTANCES = 16  # of one host
_ALL = "; ipulaunch plan --all shows them"
_LABEL_WIDTH = 11  # in PopRun's table


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned to their widest cell, two blanks apart."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def draw_plan(plan: Plan, whole: bool = False) -> str:
    """Which instance sits where, with which cores, replicas and IPUs; of many hosts and instances some, or all."""
    lines: List[str] = []
    hosts = plan.hosts
    shown = hosts if whole or len(hosts) <= _MOST_HOSTS else (hosts[0], hosts[-1])
    by_host: Dict[str, List[Placement]] = {}
    for placement in plan.placements:
        by_host.setdefault(placement.host, []).append(placement)
    for host in shown:
        if host == shown[-1] and len(shown) < len(hosts):
            lines.append(
                f"... {len(hosts) - 2} more hosts with {counted(plan.instances_per_host, 'instance')} each{_ALL} ..."
            )
        members = by_host[host]
        lines += _host(plan, host, members, len(members) if whole else _MOST_INSTANCES)
    return "\n".join(lines)


def _host(plan: Plan, host: str, placements: Sequence[Placement], most: int) -> List[str]:
    groups: Dict[Tuple[int, ...], List[Placement]] = {}
    for placement in placements[:most]:
        groups.setdefault(placement.numa_nodes, []).append(placement)
    cells = [_cells(plan, placement) for members in groups.values() for placement in members]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [f"{host}"]
    numbers = list(groups)
    for nodes, members in groups.items():
        is_last = nodes == numbers[-1]
        lines.append(f"{'└' if is_last else '├'}─ NUMA {_span(nodes)}")
        for placement in members:
            row = "  ".join(cell.ljust(width) for cell, width in zip(_cells(plan, placement), widths))
            lines.append(f"{' ' if is_last else '│'}    {row}".rstrip())
    if len(placements) > most:
        lines.append(f"     ... {len(placements) - most} more instances{_ALL} ...")
    return lines


def _cells(plan: Plan, placement: Placement) -> Tuple[str, str, str, str]:
    first, last = placement.first_replica, placement.first_replica + plan.replicas_per_instance - 1
    ipus = (first * plan.ipus_per_replica, (last + 1) * plan.ipus_per_replica - 1)
    cores = f"{placement.cores} core{'s' if placement.cores > 1 else ''} (cpus {placement.cpus})"
    return f"instance {placement.instance}", cores, _named("replica", first, last), _named("IPU", *ipus)


def _named(word: str, first: int, last: int) -> str:
    return f"{word} {first}" if first == last else f"{word}s {first}-{last}"


def _span(nodes: Tuple[int, ...]) -> str:
    return str(nodes[0]) if len(nodes) == 1 else f"{nodes[0]}-{nodes[-1]}"


def poprun_table_width(plan: Plan) -> int:
    """The width of the table."""
    return _LABEL_WIDTH + plan.replicas * (_cell(plan) + 1) + 2


def draw_poprun_table(plan: Plan, engine: str = "poprun") -> str:
    """The table that `poprun --print-topology=yes` prints for this plan, with the name of the engine on top."""
    cell = _cell(plan)
    width = plan.replicas * (cell + 1) - 1
    full = _LABEL_WIDTH + 1 + width
    rows = [
        _poprun_row("hosts", _poprun_names(plan.hosts, _poprun_span(width, len(plan.hosts)))),
        _poprun_row("ILDs", _centred([str(i) for i in range(plan.ilds)], _poprun_span(width, plan.ilds))),
        _poprun_row(
            "instances", _centred([str(i) for i in range(plan.instances)], _poprun_span(width, plan.instances))
        ),
        _poprun_row("replicas", [f" {index:<{cell - 2}} " for index in range(plan.replicas)]),
    ]
    rule = f"|{'-' * _LABEL_WIDTH}|{'-' * width}|"
    lines = [" " + "=" * full, f"|{_centre(f'{engine} topology', full)}|", f"|{'=' * full}|"]
    return "\n".join([*lines, f"\n{rule}\n".join(rows), " " + "-" * full])


def _cell(plan: Plan) -> int:
    return len(str(plan.replicas - 1)) + 2


def _poprun_span(width: int, parts: int) -> int:
    return (width + 1) // parts - 1


def _poprun_row(label: str, cells: Sequence[str]) -> str:
    return f"| {label:<9} |{'|'.join(cells)}|"


def _poprun_names(hosts: Sequence[str], span: int) -> List[str]:
    names = [host if len(host) <= span else f"[{index}]" for index, host in enumerate(hosts)]
    return _centred(names, span)


def _centred(texts: Sequence[str], span: int) -> List[str]:
    return [_centre(text, span) for text in texts]


def _centre(text: str, span: int) -> str:
    """Centred; an odd blank goes to the right, unlike with str.center()."""
    left = (span - len(text)) // 2
    return " " * left + text + " " * (span - len(text) - left)
