"""An instance ends with the engine's process that started it, and that with an instance that is cut off."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from ipulaunch.configs.errors import JobError

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_DAEMONS = ("prted", "orted")  # of Open MPI 5 and 4, on hosts other than mpirun's


def end_with_parent() -> None:
    """Have the kernel end us when the mpirun that started us dies, or the launcher if it started us itself.

    An mpirun that is ended together with the launcher does not always get to end its instances: seen with Open MPI 5,
    one time in five. The setting outlives exec.
    """
    libc, death_signal = ctypes.CDLL(None), ctypes.c_int()
    # The launcher asks for a signal that can be missed.
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(death_signal), 0, 0, 0)
    if "OMPI_COMM_WORLD_RANK" not in os.environ and not death_signal.value:  # started by hand: we may outlive the shell
        return
    parent = os.getppid()
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)


def end_here(why: str) -> NoReturn:
    """End this instance, and with it Open MPI's daemon on this host: one without contact to mpirun waits for hours."""
    with contextlib.suppress(OSError):  # nobody reads it where the daemon is gone
        os.write(sys.stderr.fileno(), f"error: {why}\n".encode())
    parent = os.getppid()
    with contextlib.suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text().strip() in _DAEMONS:
            os.kill(parent, signal.SIGTERM)
    os._exit(JobError.exit_code)
