from __future__ import annotations

from typing import Any, Callable

import pytest

from ipulaunch.launcher.doctor.diagnosis import Diagnosis
from ipulaunch.launcher.doctor.mpi import check_mpirun


@pytest.mark.parametrize(
    ("mpi", "state", "found"),
    [
        pytest.param("5.0.8", "ok", "Open MPI 5.0.8: /opt/bin/mpirun", id="present"),
        pytest.param("", "missing", "no mpirun", id="missing"),
    ],
)
def test_mpirun(mpi: str, state: str, found: str, make_environment: Callable[..., Any]) -> None:
    (check,) = check_mpirun(Diagnosis(), make_environment(mpi=mpi))
    assert (check.state, found in check.found, check.stops) == (state, True, () if mpi else ("openmpi",))
