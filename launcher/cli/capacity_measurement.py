"""The measurement of a capacity: processes that read, prepare and compute for a few seconds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.messages import Message, warning
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.launcher.cli.data_tasks import TaskError, follow, make_progress, run_task
from ipulaunch.topology import Plan
from ipulaunch.topology.capacity.forms import forms_of
from ipulaunch.topology.planning.plan import to_json

_SECONDS = 3.0  # of each measurement, beside what it takes to start
_DEVICE = "ipulaunch.workers.device_rate"


def measure(job: Job, plan: Plan, form: str, *, is_here: bool) -> Tuple[Dict[str, Any], List[Message]]:
    """What this machine measures for a job; a warning, and nothing, where it lacks what measures.

    If the hosts of the plan are others, the disk is as well.
    """
    forms, data = forms_of(job.settings, job.workload), job.settings.data
    is_made = bool(forms) and (data.directory is None or not Path(data.directory).is_dir())
    options = {"job": to_yaml(job), "plan": to_json(plan), "seconds": _SECONDS}
    about = {**options, "form": form or (forms[0] if forms else ""), "is_made": is_made}
    about["reads_disk"] = is_here and not is_made
    try:
        found = run_task("capacity", about).result
        if job.is_rehearsal:
            argv = [sys.executable, "-m", _DEVICE]
            found.update(follow(argv, options, make_progress(sys.stderr), task="the measurement").result)
    except TaskError as error:
        if error.exit_code != NotReadyError.exit_code:
            raise
        return {}, [warning(f"nothing is measured, as {error.message}; published and assumed rates are used")]
    if form and not is_made and found.get("form", form) != form:
        raise UsageError(
            f"--form is {form}, and {data.directory} has {found['form']}", hint="leave --form out: the set is here"
        )
    return found, []
