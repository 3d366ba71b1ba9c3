"""ipulaunch with a given mpirun in place of the machine's own, and little patience: launcher.py MPIRUN ARGUMENT ..."""

from __future__ import annotations

import sys

from ipulaunch.launcher import engines, supervision
from ipulaunch.launcher.entry import main

if __name__ == "__main__":
    mpirun = sys.argv.pop(1)
    engines.find_mpirun = lambda: mpirun
    supervision.GRACE_S = 0.2
    supervision.LOOK_INTERVAL_S = 0.02
    main()
