"""How long `ipulaunch cosmoflow --pod 16 --dry-run` takes, next to `python -c "import click, yaml"`.

The two are run in turn, so that a noisy machine is noisy for both; the ratio of the medians is what counts (at most 2).
Then a plan for 65,536 IPUs on 1,024 hosts, printed for each engine: its time beyond that of the small dry run is what
the size costs (less than a second).

    .venv/bin/python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import List

ROUNDS = 30
LARGE_ROUNDS = 5


def seconds(command: List[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    floor = [sys.executable, "-c", "import click, yaml"]
    program = str(Path(sys.executable).with_name("ipulaunch"))
    dry_run = [program, "cosmoflow", "--pod", "16", "--dry-run"]
    times = [(seconds(floor), seconds(dry_run)) for _ in range(ROUNDS)]
    floor_s, dry_run_s = (statistics.median(column) for column in zip(*times))
    print(f"import click, yaml  {1000 * floor_s:6.1f} ms")
    print(f"dry run             {1000 * dry_run_s:6.1f} ms")
    print(f"ratio               {dry_run_s / floor_s:6.2f}")
    large = [program, "run", "--ipus=65536", "--hosts=h[0-1023]", "--host-layout=8x16", "--dry-run"]
    for engine in ("poprun", "openmpi"):
        large_s = statistics.median(seconds([*large, "--engine", engine, "prog"]) for _ in range(LARGE_ROUNDS))
        print(f"65,536 IPUs, {engine:7}{1000 * (large_s - dry_run_s):6.1f} ms more")


if __name__ == "__main__":
    main()
