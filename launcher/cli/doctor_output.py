"""The report of the doctor on stdout, and its verdict as an exit code."""

from __future__ import annotations

import json
import os
import sys

import click

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.text import some
from ipulaunch.launcher.doctor.diagnosis import Diagnosis
from ipulaunch.launcher.doctor.environment import this_machine
from ipulaunch.launcher.doctor.examinations import diagnose
from ipulaunch.launcher.doctor.report import MOST, as_data, as_text, can_run, lacks
from ipulaunch.launcher.engines.registry import engine_class


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
        is_rehearsal = engine_class(str(diagnosis.engine)).backend == "cpu"
        instead = "" if is_rehearsal else "; --engine openmpi rehearses on CPUs"
        message = f"this cannot run here with {diagnosis.name_of(str(diagnosis.engine))}; missing: {missing}"
        raise NotReadyError(message, hint=f"the report has the fixes{instead}")
