"""The Poplar SDK: whether it is enabled, its poprun, and the V-IPU controller and partition, when they are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Optional, Tuple

from ipulaunch.configs.text import ENABLE_SDK
from ipulaunch.launcher.doctor.diagnosis import MISSING, OK, VIPU_PORT, WARNING, Check, Diagnosis, Vipu
from ipulaunch.launcher.doctor.environment import Environment
from ipulaunch.launcher.engines.engine import POPRUN, SDK
from ipulaunch.launcher.engines.poprun_table import NEWEST
from ipulaunch.launcher.engines.registry import engines_that_need

GROUP = "poprun, on IPUs"
_FIRST = (2, 6)  # that our workers support
_TIMEOUT_S = 20.0
_POPRUN = "poprun"
_TOOL, _CONNECT_S = "vipu", 5.0


def check_sdk(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Whether the SDK is enabled, which one it is, and whether poprun answers, unless the run does without it."""
    poprun = [_poprun(environment)] if diagnosis.examines(POPRUN) else []
    return [_enabled(environment), *poprun, *_fabric(environment)]


def _enabled(environment: Environment) -> Check:
    place = environment.environ.get("POPLAR_SDK_ENABLED", "")
    if not place:
        if environment.find(_POPRUN):  # poprun works from its own directory; Python may not find popdist
            found = "there is a poprun, but POPLAR_SDK_ENABLED is not set"
            return Check(GROUP, "SDK", WARNING, found, ENABLE_SDK)
        found = "not enabled: POPLAR_SDK_ENABLED is not set"
        return Check(GROUP, "SDK", MISSING, found, ENABLE_SDK, engines_that_need(SDK))
    if place.startswith("/") and not (environment.root / place.lstrip("/")).exists():
        found = f"POPLAR_SDK_ENABLED names {place}, which is not there"
        return Check(GROUP, "SDK", MISSING, found, f"{ENABLE_SDK} in a new shell", engines_that_need(SDK))
    match = re.search(r"poplar_sdk[^/]*?-(\d+\.\d+\.\d+)", place)
    if not match:
        return Check(GROUP, "SDK", OK, f"enabled: {place}")
    return _known("SDK", match.group(1), f"{match.group(1)}: {place}")


def _poprun(environment: Environment) -> Check:
    path = environment.find(_POPRUN)
    if path is None:
        return Check(GROUP, "poprun", MISSING, "not on the PATH", ENABLE_SDK, engines_that_need(POPRUN))
    said = environment.run([path, "--version"], _TIMEOUT_S)
    if said.code != 0:
        found = f"{path} --version: {said.last_line or f'exit code {said.code}'}"
        fix = f"{ENABLE_SDK} again; it sets the library paths too"
        return Check(GROUP, "poprun", MISSING, found, fix, engines_that_need(POPRUN))
    match = re.search(r"\d+\.\d+\.\d+", said.out + said.err)
    if not match:
        return Check(GROUP, "poprun", OK, f"{path}, which does not report its version")
    return _known("poprun", match.group(), f"{match.group()}: {path}")


def _known(name: str, version: str, found: str) -> Check:
    if not _FIRST <= _number(version) <= NEWEST:
        first, last = (".".join(map(str, each)) for each in (_FIRST, NEWEST))
        fix = f"enable an SDK from {first} to {last}: ipulaunch supports these"
        return Check(GROUP, name, WARNING, found, fix)
    return Check(GROUP, name, OK, found)


def _number(version: str) -> Tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _fabric(environment: Environment) -> List[Check]:
    """A file that replaces the V-IPU controller, if one is named."""
    path = environment.environ.get("IPUOF_CONFIG_PATH", "")
    if not path:
        return []
    there = "" if (environment.root / str(Path(path)).lstrip("/")).exists() else ", and it is not there"
    found = f"IPUOF_CONFIG_PATH names {path}{there}: it replaces the V-IPU partition"
    return [Check(GROUP, "IPU fabric", WARNING, found, "unset IPUOF_CONFIG_PATH, so that poprun asks the V-IPU server")]


def check_vipu(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Whether the controller can be reached and has the partition; nothing where neither is named."""
    vipu = diagnosis.vipu
    if vipu is None:
        return []
    checks: List[Check] = []
    host = vipu.host or environment.environ.get("IPUOF_VIPU_API_HOST") or None
    if host:
        checks.append(_server(host, vipu.port, environment))
    if vipu.partition and (not checks or checks[0].state == OK):
        checks.append(_partition(vipu, host, environment))
    return checks


def _server(host: str, port: int, environment: Environment) -> Check:
    why = environment.reach(host, port, _CONNECT_S)
    if not why:
        return Check(GROUP, "V-IPU server", OK, f"{host}, port {port}, can be reached")
    fix = "check --vipu-server-host and --vipu-server-port, and whether this machine is on the controller's network"
    return Check(GROUP, "V-IPU server", MISSING, f"{host}, port {port}: {why}", fix, engines_that_need(SDK))


def _partition(vipu: Vipu, host: Optional[str], environment: Environment) -> Check:
    name = "V-IPU partition"
    tool = environment.find(_TOOL)
    if tool is None:
        return Check(
            GROUP, name, WARNING, f"{vipu.partition} was not checked: no {_TOOL} tool here",
            f"put {_TOOL} on the PATH, or look on the controller: {_TOOL} list partitions",
        )  # fmt: skip
    if vipu.port != VIPU_PORT:
        found = f"{vipu.partition} was not checked: the controller uses another port, {vipu.port}"
        return Check(GROUP, name, WARNING, found, f"look on the controller: {_TOOL} list partitions")
    said = environment.run([tool, "list", "partitions", *(["--api-host", host] if host else [])], _TIMEOUT_S)
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
        fix = "name an existing one with --vipu-partition, or let poprun make it with --update-partition"
        return Check(GROUP, name, MISSING, found, fix, engines_that_need(SDK))
    if not any(cell == "ACTIVE" for cell in row):
        fix = f"poprun waits for it; see {_TOOL} get partition {vipu.partition}"
        return Check(GROUP, name, WARNING, f"{vipu.partition} exists, but is not active", fix)
    return Check(GROUP, name, OK, f"{vipu.partition} exists and is active")
