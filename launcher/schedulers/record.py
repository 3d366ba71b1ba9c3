"""job.json: the record of the job that was submitted for a run."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Optional

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.directory import RunDirectory, write_whole
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.configs.sites import SCHEDULERS
from ipulaunch.configs.text import utc

_FORMAT = 1
_IDS = {"slurm": "SLURM_JOB_ID", "pbs": "PBS_JOBID"}
_INTERACTIVE = {("SLURM_JOB_NAME", "interactive"), ("PBS_ENVIRONMENT", "PBS_INTERACTIVE")}
_WORD = r"([\w.][\w.:\[\]-]{0,255})?"  # also a time


class Submitted(NamedTuple):
    """A submitted job."""

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


def write(run: Path, job: Submitted) -> None:
    """Write the record to the run directory."""
    write_whole(RunDirectory(run).submitted, json.dumps({"format": _FORMAT, **job._asdict()}, indent=1) + "\n")


def renew(run: Path, environ: Mapping[str, str]) -> None:
    """Record the id of the job that we are in, if the user submitted its run again by hand."""
    with contextlib.suppress(DataError, OSError):
        job = read(run)
        if job is None or _INTERACTIVE & set(environ.items()):
            return
        number = environ.get(_IDS.get(job.scheduler, ""), job.id)
        if number != job.id and re.fullmatch(_WORD, number, re.ASCII):
            write(run, job._replace(id=number, submitted=utc(), cancelled=""))


def is_this(job: Submitted, environ: Mapping[str, str]) -> bool:
    """Whether we are in this job."""
    return environ.get(_IDS.get(job.scheduler, "")) == job.id


def read(run: Path) -> Optional[Submitted]:
    """The record of a run; None for one that was started here."""
    path = RunDirectory(run).submitted
    try:
        data: Any = parse_json(read_text(path))
        fields: Dict[str, Any] = {name: data[name] for name in Submitted._fields}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not the record of a job: {error}") from error
    # Ids become arguments of the scheduler's commands: a word that looks like an option would change the command.
    words = [str(value) for value in fields.values()]
    is_plain = all(isinstance(value, str) and re.fullmatch(_WORD, value, re.ASCII) for value in fields.values())
    if not is_plain or fields["scheduler"] not in SCHEDULERS or not fields["id"]:
        raise DataError(f"{path} is not the record of a job: {' '.join(words)!r}")
    return Submitted(**fields)
