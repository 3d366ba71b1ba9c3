"""How a run ended: good only if the engine and every instance say so."""

from __future__ import annotations

import json
import re
import shlex
import signal
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from ipulaunch.configs.errors import INTERRUPTED, JobError, StoppedError
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.topology import Plan

_LOG_LINES = 12
_LOG_BYTES = 8192


@dataclass(frozen=True)
class Verdict:
    """The end of a run in words and as an exit code."""

    exit_code: int
    headline: str
    details: Tuple[str, ...] = ()


def judge(
    run: RunDirectory,
    plan: Plan,
    code: int,
    stopped_by: Optional[int],
    engine_lines: List[str],
    ours: bool,
    hung: Optional[str] = None,
) -> Verdict:
    """The verdict from the engine's exit code and the records; `ours` are workers that must leave done.json."""
    if ours and all(run.stopped(placement.instance).exists() for placement in plan.placements):
        return _stopped(run, stopped_by)
    if stopped_by is not None:
        name = signal.Signals(stopped_by).name
        return Verdict(INTERRUPTED, f"interrupted by {name}: every instance was ended", _how_to_resume(run))
    if hung is not None:
        return Verdict(JobError.exit_code, hung, (*_log_tail(run, 0), *_how_to_resume(run)))
    first = _first_error(run, plan)
    if first is not None:
        instance, record = first
        headline = f"{_who(plan, instance)} failed first: {record.get('type')}: {record.get('message')}"
        said = {f"  | error: {record.get('message')}", f"  | hint: {record.get('hint')}"}
        hint = [f"hint: {record['hint']}"] if record.get("hint") else []
        details = [*hint, *(line for line in _log_tail(run, instance) if line not in said), *_how_to_resume(run)]
        return Verdict(_exit_code(record), headline, tuple(details))
    missing = [p.instance for p in plan.placements if not run.done(p.instance).exists()] if ours else []
    if code == 0 and not missing:
        return Verdict(0, "done")
    engine = [f"engine: {line}" for line in engine_lines if line.strip()]
    if code == 0:
        headline = (
            f"{_who(plan, missing[0])} ended without its done.json ({len(missing)} of {plan.instances} have none)"
        )
        return Verdict(JobError.exit_code, headline, (*engine, *_log_tail(run, missing[0])))
    blamed = _blamed("\n".join(engine_lines), plan)
    if blamed is not None:
        instance, how = blamed
        headline = f"{_who(plan, instance)} failed first: it {how}"
        return Verdict(JobError.exit_code, headline, (*_log_tail(run, instance), *_how_to_resume(run)))
    headline = f"the engine ended with exit code {code}" if code > 0 else f"the engine was ended by {_signal(code)}"
    silent = f"; {_who(plan, missing[0])} has left no record" if missing else ""
    return Verdict(JobError.exit_code, headline + silent, (*engine, *_how_to_resume(run)))


def _stopped(run: RunDirectory, stopped_by: Optional[int]) -> Verdict:
    """All instances have left together, on request. Ctrl-C is still an interruption to whoever waits for the code."""
    try:
        message = json.loads(run.stopped(0).read_text(encoding="utf-8"))["message"]
    except (OSError, ValueError, KeyError, TypeError):
        message = "stopped on request"
    code = INTERRUPTED if stopped_by == signal.SIGINT else StoppedError.exit_code
    return Verdict(code, str(message), _how_to_resume(run))


def _how_to_resume(run: RunDirectory) -> Tuple[str, ...]:
    if not run.has_checkpoint:
        return ()
    return (f"resume: ipulaunch resume {shlex.quote(str(run.path))}",)


def _blamed(text: str, plan: Plan) -> Optional[Tuple[int, str]]:
    """The instance that Open MPI says ended first, and how; its number is that of the application context."""
    killed = re.search(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)", text)
    exited = re.search(r"Process name: \[.*,(\d+)\]\s+Exit code: +(\d+)", text)
    match, how = (killed, "was ended by signal {}") if killed else (exited, "ended with exit code {}")
    if match is None or int(match.group(1)) >= plan.instances:
        return None
    return int(match.group(1)), how.format(match.group(2))


def _exit_code(record: Dict[str, Any]) -> int:
    code = record.get("exit_code")
    return code if isinstance(code, int) and code else JobError.exit_code


def _signal(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _who(plan: Plan, instance: int) -> str:
    return f"{plan.placements[instance].host}:{instance}"


def _first_error(run: RunDirectory, plan: Plan) -> Optional[Tuple[int, Dict[str, Any]]]:
    """The earliest error record, by its nanoseconds."""
    found = []
    for placement in plan.placements:
        try:
            record = json.loads(run.error(placement.instance).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(record, dict):
            time_ns = record.get("time_ns")
            found.append((time_ns if isinstance(time_ns, int) else 0, placement.instance, record))
    if not found:
        return None
    _, instance, record = min(found, key=lambda item: item[:2])
    return instance, record


def _log_tail(run: RunDirectory, instance: int) -> List[str]:
    try:
        with run.log(instance).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
    except OSError:
        lines = []
    return [f"  | {line}" for line in lines] + [f"log: {run.log(instance)}"]
