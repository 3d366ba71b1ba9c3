"""The report of the doctor, as text, as JSON and on stdout, and its verdict as an exit code."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, Iterable, List, Optional

import click

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.text import counted, some
from ipulaunch.launcher.doctor.diagnosis import MISSING, OK, WARNING, Check, Diagnosis
from ipulaunch.launcher.doctor.environment import this_machine
from ipulaunch.launcher.doctor.examinations import diagnose
from ipulaunch.launcher.doctor.remote_hosts import GROUP as HOST
from ipulaunch.launcher.engines.registry import engine_class

MOST = 8  # things that are missing, named in one line
_MARKS = ("✓", "!", "✗")
_PLAIN_MARKS = ("+", "!", "x")  # where the terminal has no others
_COLOURS = ("green", "yellow", "red")


def is_needed(check: Check, diagnosis: Diagnosis) -> bool:
    """Whether the plan cannot run without this."""
    return diagnosis.plan is not None and diagnosis.engine in check.stops


def lacks(engine: str, checks: Iterable[Check]) -> List[str]:
    """What an engine needs and lacks."""
    return [_full_name(check) for check in checks if check.state == MISSING and engine in check.stops]


def can_run(diagnosis: Diagnosis, checks: Iterable[Check]) -> Optional[bool]:
    """Whether the plan can run here; None without a plan."""
    return None if diagnosis.plan is None else not any(c.state == MISSING and is_needed(c, diagnosis) for c in checks)


def as_data(diagnosis: Diagnosis, checks: List[Check]) -> Dict[str, Any]:
    """The report as plain data."""
    plan = diagnosis.plan
    engines = {engine: lacks(engine, checks) for engine in diagnosis.engines}
    return {
        "plan": None
        if plan is None
        else {
            "workload": plan.workload,
            "system": plan.system,
            "engine": diagnosis.engine,
            "instances": plan.instances,
            "hosts": list(plan.hosts),
        },
        "can_run": can_run(diagnosis, checks),
        "engines": {engine: {"ready": not missing, "missing": missing} for engine, missing in engines.items()},
        "checks": [
            {
                "group": check.group,
                "name": check.name,
                "state": check.state,
                "stops_the_plan": check.state == MISSING and is_needed(check, diagnosis),
                "found": check.found,
                "fix": check.fix,
            }
            for check in checks
        ],
    }


def as_text(diagnosis: Diagnosis, checks: List[Check], encoding: str, verbose: bool = False) -> str:
    """The report as text, with colours that click removes where they do not belong."""
    marks = _MARKS if _can_write("".join(_MARKS), encoding) else _PLAIN_MARKS
    lines: List[str] = []
    width = max((len(check.name) for check in checks), default=0)
    for group in dict.fromkeys(check.group for check in checks):
        members = [check for check in checks if check.group == group]
        if group.startswith(HOST) and not verbose and all(check.state == OK for check in members):
            members = [_in_short(group, members)]
        lines.append(click.style(group, bold=True))
        for check in members:
            weight = _weight(check, diagnosis)
            mark = click.style(f"{marks[weight]} {check.state:<7}", fg=_COLOURS[weight])
            lines.append(f"  {mark}  {check.name:<{width}}  {check.found}".rstrip())
            if check.fix and check.state != OK:
                lines.append(f"{'':{width + 15}}fix: {check.fix}")
        lines.append("")
    return "\n".join([*lines, *_verdicts(diagnosis, checks)])


def _weight(check: Check, diagnosis: Diagnosis) -> int:
    if check.state == OK:
        return 0
    return 2 if check.state == MISSING and is_needed(check, diagnosis) else 1


def _in_short(group: str, members: List[Check]) -> Check:
    names = [check.name for check in members[1:]]
    return Check(group, members[0].name, OK, f"{members[0].found}{'; good: ' if names else ''}{', '.join(names)}")


def _verdicts(diagnosis: Diagnosis, checks: List[Check]) -> List[str]:
    lines = []
    for engine in diagnosis.engines:
        missing = lacks(engine, checks)
        lines.append(f"{engine}: not ready, missing: {some(missing, MOST)}" if missing else f"{engine}: ready")
    warnings = sum(check.state == WARNING for check in checks)
    lines += [counted(warnings, "warning")] if warnings else []
    if diagnosis.plan is not None:
        verdict = "can run here" if can_run(diagnosis, checks) else "cannot run here"
        instances = counted(diagnosis.plan.instances, "instance")
        job = f"{diagnosis.plan.workload} on {diagnosis.plan.system} with {diagnosis.engine}"
        lines.append(f"{job}, {instances}: {verdict}")
    return lines


def _full_name(check: Check) -> str:
    return f"{check.name} of {check.group}" if check.group.startswith(HOST) else check.name


def _can_write(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def print_diagnosis(diagnosis: Diagnosis, as_json: bool, verbose: bool) -> None:
    """Check this machine and print what was found; refuses a plan that cannot run here."""
    checks = diagnose(diagnosis, this_machine())
    if as_json:
        click.echo(json.dumps(as_data(diagnosis, checks), indent=1))
    else:
        encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        text = as_text(diagnosis, checks, encoding, verbose).encode(encoding, "backslashreplace").decode(encoding)
        click.echo(text, color=False if os.environ.get("NO_COLOR") else None)
    if can_run(diagnosis, checks) is False:
        missing = some(lacks(str(diagnosis.engine), checks), MOST)
        is_rehearsal = engine_class(str(diagnosis.engine))().is_rehearsal
        instead = "" if is_rehearsal else "; --engine openmpi rehearses on CPUs"
        message = f"this cannot run here with {diagnosis.engine}; missing: {missing}"
        raise NotReadyError(message, hint=f"the report has the fixes{instead}")
