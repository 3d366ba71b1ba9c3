"""The V-IPU controller and the partition, when they are asked for."""

from __future__ import annotations

from typing import List, Optional

from ipulaunch.launcher.doctor.case import VIPU_PORT, Case, Vipu
from ipulaunch.launcher.doctor.check import MISSING, OK, POPRUN, WARNING, Check
from ipulaunch.launcher.doctor.sdk import GROUP
from ipulaunch.launcher.doctor.world import World

_TOOL = "vipu"
_CONNECT_S, _LIST_S = 5.0, 20.0


def check_vipu(case: Case, world: World) -> List[Check]:
    """Whether the controller can be reached and has the partition; nothing where neither is named."""
    vipu = case.vipu
    if vipu is None:
        return []
    checks: List[Check] = []
    host = vipu.host or world.environ.get("IPUOF_VIPU_API_HOST") or None
    if host:
        checks.append(_server(host, vipu.port, world))
    if vipu.partition and (not checks or checks[0].state == OK):
        checks.append(_partition(vipu, host, world))
    return checks


def _server(host: str, port: int, world: World) -> Check:
    why = world.reach(host, port, _CONNECT_S)
    if not why:
        return Check(GROUP, "V-IPU server", OK, f"{host}, port {port}, can be reached")
    fix = "check --vipu-server-host and --vipu-server-port, and whether this machine is on the controller's network"
    return Check(GROUP, "V-IPU server", MISSING, f"{host}, port {port}: {why}", fix, (POPRUN,))


def _partition(vipu: Vipu, host: Optional[str], world: World) -> Check:
    name = "V-IPU partition"
    tool = world.find(_TOOL)
    if tool is None:
        return Check(
            GROUP, name, WARNING, f"{vipu.partition} is not looked for: no {_TOOL} tool here",
            f"put {_TOOL} on the PATH, or look on the controller: {_TOOL} list partitions",
        )  # fmt: skip
    if vipu.port != VIPU_PORT:
        found = f"{vipu.partition} is not looked for: the controller has a port of its own, {vipu.port}"
        return Check(GROUP, name, WARNING, found, f"look on the controller: {_TOOL} list partitions")
    said = world.run([tool, "list", "partitions", *(["--api-host", host] if host else [])], _LIST_S)
    if said.code != 0:
        found = f"{_TOOL} list partitions: {said.last_line or f'exit code {said.code}'}"
        return Check(GROUP, name, WARNING, found, f"see what {_TOOL} needs: {_TOOL} list partitions")
    return _listed(vipu, said.out)


def _listed(vipu: Vipu, text: str) -> Check:
    name = "V-IPU partition"
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if "|" in line]
    row = next((row for row in rows if vipu.partition in row), None)
    if row is None:
        titles = ("Partition", "")
        known = sorted({cells[0] or cells[1] for cells in rows if (cells[0] or cells[1]) not in titles})
        found = f"there is no {vipu.partition}; there {'is' if len(known) == 1 else 'are'} {', '.join(known) or 'none'}"
        if vipu.may_create:
            return Check(GROUP, name, OK, f"{found}; poprun makes it")
        fix = "name one that there is with --vipu-partition, or let poprun make it with --update-partition"
        return Check(GROUP, name, MISSING, found, fix, (POPRUN,))
    if not any(cell == "ACTIVE" for cell in row):
        fix = f"poprun waits for it; see {_TOOL} get partition {vipu.partition}"
        return Check(GROUP, name, WARNING, f"{vipu.partition} is there, and not active", fix)
    return Check(GROUP, name, OK, f"{vipu.partition} is there and active")
