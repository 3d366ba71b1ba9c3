"""How long `ipulaunch cosmoflow --pod 16 --dry-run` takes, next to `python -c "import click, yaml"`.

The two are run in turn, so that a noisy machine is noisy for both; the ratio of the medians of their processor times is
what counts. Python keeps the compiled modules of both, as after `pip install .`: with PYTHONDONTWRITEBYTECODE, it would
compile those of an editable installation at every start, and no others. Then a plan for 65,536 IPUs on 1,024 hosts,
printed for each engine: its time beyond that of the small dry run is what the size costs. Exit
code 1: a goal is missed.

    .venv/bin/python benchmarks/startup.py
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import List

ROUNDS = 30
LARGE_ROUNDS = 5
MOST_RATIO = 1.8
MOST_MORE_S = 1.0


def seconds(command: List[str]) -> float:
    """The processor time of a command."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def main() -> int:
    missed: List[str] = []
    floor = [sys.executable, "-c", "import click, yaml"]
    program = str(Path(sys.executable).with_name("ipulaunch"))
    dry_run = [program, "cosmoflow", "--pod", "16", "--dry-run"]
    seconds(dry_run)  # compiles what is not compiled yet
    times = [(seconds(floor), seconds(dry_run)) for _ in range(ROUNDS)]
    floor_s, dry_run_s = (statistics.median(column) for column in zip(*times))
    ratio = dry_run_s / floor_s
    print(f"import click, yaml  {1000 * floor_s:6.1f} ms")
    print(f"dry run             {1000 * dry_run_s:6.1f} ms")
    print(f"ratio               {ratio:6.2f} (at most {MOST_RATIO})")
    if ratio > MOST_RATIO:
        missed.append(f"dry run / imports is {ratio:.2f}, the goal is at most {MOST_RATIO}")
    large = [program, "run", "--ipus=65536", "--hosts=h[0-1023]", "--host-layout=8x16", "--dry-run"]
    for engine in ("poprun", "openmpi"):
        words = [*large, "--engine", engine, "prog"]
        more_s = statistics.median(seconds(words) for _ in range(LARGE_ROUNDS)) - dry_run_s
        print(f"65,536 IPUs, {engine:7}{1000 * more_s:6.1f} ms more (below {1000 * MOST_MORE_S:.0f})")
        if more_s >= MOST_MORE_S:
            missed.append(f"65,536 IPUs with {engine} take {more_s:.2f} s more, the goal is below {MOST_MORE_S:.0f} s")
    for miss in missed:
        print(f"missed: {miss}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
