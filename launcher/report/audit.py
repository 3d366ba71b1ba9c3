"""The audit of a run that traced its samples, done by the process that `ipulaunch data audit` starts."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.untrusted import parse_json
from ipulaunch.configs.text import counted
from ipulaunch.launcher.show.audit import audit_lines
from ipulaunch.launcher.supervise.processes import die_with_parent

LONGEST_S = 60.0  # a trace may have thousands of millions of rows
_MOST_LINES = 40


class Audit(NamedTuple):
    """What an audit has found."""

    is_good: bool
    headline: str
    lines: Tuple[str, ...]


def audited(run: RunDirectory, longest_s: float = LONGEST_S) -> Optional[Audit]:
    """The audit of a run that has ended; None for one that has traced nothing."""
    if not run.samples(0).exists():
        return None
    argv = [sys.executable, "-m", "ipulaunch.data_pipeline", "audit"]
    try:
        done = subprocess.run(
            argv,
            input=json.dumps({"run": str(run.path)}).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=longest_s,
            check=False,
            preexec_fn=die_with_parent,
        )
    except subprocess.TimeoutExpired:
        longer = f"The audit takes longer than {longest_s:g} s"
        return Audit(False, f"{longer}: ipulaunch data audit {run.path}", ())
    return _read(done.stdout)


def _read(output: bytes) -> Audit:
    events: List[Dict[str, Any]] = []
    for line in output.splitlines():
        with contextlib.suppress(ValueError):
            event = parse_json(line)
            events += [event] if isinstance(event, dict) else []
    defects = [str(event.get("message")) for event in events if event.get("event") == "defect"]
    for event in events:
        if event.get("event") == "result":
            count = event["discrepancies"]
            lines = (*defects, *audit_lines(event))[:_MOST_LINES]
            headline = counted(count, "discrepancy", "discrepancies") if count else "No discrepancy"
            return Audit(not count, headline, lines)
    said = next((str(event.get("message")) for event in events if event.get("event") == "error"), "it left no result")
    return Audit(False, f"The audit was not possible: {said}", tuple(defects[:_MOST_LINES]))
