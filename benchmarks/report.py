"""How long `ipulaunch report` takes for a run of 1,000,000 logged updates on 256 instances, and how large its page is.

The processor time counts, because a busy machine adds waiting. Exit code 1: a goal is missed. It needs 500 MB of disk.

    .venv/bin/python benchmarks/report.py
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict

from ipulaunch.configs.runs.directory import RunDirectory

UPDATES, INSTANCES, RECORDED = 1_000_000, 256, 5_000
MOST_S, MOST_BYTES = 10.0, 2_000_000


def write_run(run: RunDirectory) -> None:
    """A run whose metrics have a row for every update, as have the records of its first instance."""
    program = str(Path(sys.executable).with_name("ipulaunch"))
    words = [program, "plan", "cosmoflow", "--pod", "256", "--num-instances", str(INSTANCES), "--json"]
    run.path.mkdir()
    printed = json.loads(subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)
    run.plan.write_text(json.dumps(printed.get("plan", printed)), encoding="utf-8")
    draw = random.Random(1)
    with run.metrics.open("w", encoding="utf-8") as file:
        for update in range(1, UPDATES + 1):
            row = {"update": update, "epoch": update / 1000, "loss": draw.random(), "mae": draw.random()}
            more = {"samples_per_s": 1000 + draw.random(), "train_s": 0.01 * update, "learning_rate": 0.1}
            file.write(json.dumps({**row, **more}) + "\n")
    for instance in range(INSTANCES):
        run.instance(instance).mkdir()
        with run.events(instance).open("w", encoding="utf-8") as file:
            for update in range(1, UPDATES + 1 if instance == 0 else RECORDED):
                file.write(json.dumps(log(update, instance)) + "\n")


def log(update: int, instance: int) -> Dict[str, Any]:
    values = {"epochs": 1000, "samples_per_s": 4.0 + instance, "update": update, "epoch": 1.5, "loss": 0.25, "mae": 0.5}
    return {"event": "log", "time_ns": 1_790_000_000_000_000_000 + 10_000_000 * update, **values}


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        run = RunDirectory(Path(place, "run"))
        write_run(run)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        program = str(Path(sys.executable).with_name("ipulaunch"))
        subprocess.run([program, "report", str(run.path)], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took_s = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
        size = run.report.stat().st_size
    print(f"processor time  {took_s:9.2f} s (below {MOST_S:g})")
    print(f"page            {size:9,} bytes (below {MOST_BYTES:,})")
    missed = took_s >= MOST_S or size >= MOST_BYTES
    print("missed" if missed else "ok")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
