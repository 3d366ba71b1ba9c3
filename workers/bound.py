"""Start a program bound to this instance's share of the host: python -m ipulaunch.workers.bound PROGRAM ..."""

from __future__ import annotations

import os
import sys

from ipulaunch.configs.errors import IpulaunchError, UsageError
from ipulaunch.topology.planning import popdist
from ipulaunch.workers.lifecycle.binding import bind_share
from ipulaunch.workers.lifecycle.lifetime import end_with_parent


def main() -> None:
    program = sys.argv[1:]
    end_with_parent()
    try:
        if not program:
            raise UsageError("no program is named", hint="python -m ipulaunch.workers.bound PROGRAM ...")
        place = popdist.read_place(os.environ)
        binding = bind_share(place.local_index, place.local_instances)
    except IpulaunchError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        sys.exit(error.exit_code)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # mpirun would keep instance 0 waiting for input that never comes
    os.environ.setdefault("OMP_NUM_THREADS", str(binding.cores))
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"error: {program[0]} does not start: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
