from __future__ import annotations

import pytest

from ipulaunch.launcher.engines import discovery


@pytest.fixture(autouse=True)
def _without_engines(clean_place: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place of its own for every test of the launcher, with an Open MPI that answers without being started."""
    monkeypatch.setattr(discovery, "find_mpirun", lambda: "/opt/openmpi/bin/mpirun")
    monkeypatch.setattr(discovery, "_output", lambda argv: "mpirun (Open MPI) 4.1.8")
