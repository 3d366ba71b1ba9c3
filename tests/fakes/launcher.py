"""ipulaunch with a given mpirun in place of the machine's own, and little patience: launcher.py MPIRUN ARGUMENT ..."""

from __future__ import annotations

import sys

from ipulaunch.launcher.cli.entry import main
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.supervise import supervision

if __name__ == "__main__":
    mpirun = sys.argv.pop(1)
    discovery.find_mpirun = lambda: mpirun
    supervision.GRACE_S = 0.2
    supervision.LOOK_INTERVAL_S = 0.02
    main()
