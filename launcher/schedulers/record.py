"""job.json: what a run directory knows of the job that was submitted for it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.run_directory import write_whole
from ipulaunch.configs.sites import SCHEDULERS

_FORMAT = 1
FILE = "job.json"


class Submitted(NamedTuple):
    """A job that was handed over to a scheduler."""

    scheduler: str
    id: str
    script: str  # its name in the run directory
    submitted: str  # UTC, ISO 8601
    workload: str
    cluster: str = ""  # Slurm with several clusters
    kind: str = ""  # Kubernetes
    namespace: str = ""
    uid: str = ""
    cancelled: str = ""  # UTC, where we cancelled it: some schedulers forget such jobs


def now() -> str:
    """The time, as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write(run: Path, job: Submitted) -> None:
    """Leave the record in the run directory."""
    write_whole(run / FILE, json.dumps({"format": _FORMAT, **job._asdict()}, indent=1) + "\n")


def read(run: Path) -> Optional[Submitted]:
    """The record of a run; None for one that was started here."""
    path = run / FILE
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        fields: Dict[str, Any] = {name: data[name] for name in Submitted._fields}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not the record of a job: {error}") from error
    # Ids become arguments of the scheduler's commands: an option among them would do something else.
    words = [str(value) for name, value in fields.items() if name not in ("submitted", "cancelled")]
    is_plain = all(re.fullmatch(r"([\w.][\w.\[\]-]*)?", word, re.ASCII) for word in words)
    if fields["scheduler"] not in SCHEDULERS or not fields["id"] or not is_plain:
        raise DataError(f"{path} is not the record of a job: {' '.join(words)!r}")
    return Submitted(**{name: str(value) for name, value in fields.items()})
