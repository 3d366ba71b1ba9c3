"""An instance ends with the engine's process that started it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the kernel end us when the mpirun that started us dies.

    An mpirun that is ended together with the launcher does not always get to end its instances: seen with Open MPI 5,
    one time in five. The setting outlives exec.
    """
    if "OMPI_COMM_WORLD_RANK" not in os.environ:  # started by hand: we may outlive the shell
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)
