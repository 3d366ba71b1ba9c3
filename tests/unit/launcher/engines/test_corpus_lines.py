"""The published commands of corpus.csv, printed again with their notable flags.

`options` is what `ipulaunch run` is given besides the numbers, `--hosts` alone standing for as many hosts as there are,
`flags` what poprun is then given, and `sdk` the SDK of the time.
"""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from ipulaunch.configs.pods import read_catalogue
from ipulaunch.launcher.engines.poprun_reader import read_line
from ipulaunch.launcher.engines.poprun_table import parse_sdk
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.machines.pods import find

Run = Callable[..., Any]
Row = Dict[str, str]

with (Path(__file__).parents[2] / "topology" / "planning" / "corpus.csv").open(encoding="utf-8", newline="") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file)}

BREAKS_R8 = "o38"  # 8 IPU-Link domains for 64 IPUs and 4 instances
PROGRAM = ("python3", "train.py", "--num-replicas", "x")


def hosts_of(row: Row) -> int:
    if row["hosts"]:
        return int(row["hosts"])
    return find(row["system"], read_catalogue()).hosts  # not visible in the source


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_command_is_printed_with_its_notable_flags(row: Row, ipulaunch: Run) -> None:
    names = [f"node{number}" for number in range(hosts_of(row))] if "--hosts" in row["options"].split() else []
    given = [f"--hosts={','.join(names)}" if word == "--hosts" else word for word in shlex.split(row["options"])]
    system = ["--ipus", row["system"]] if row["system"].isdigit() else ["--pod", row["system"]]
    numbers = {name: int(row[name]) for name in ("instances", "replicas", "ipus_per_replica")}
    words = [*system, f"--num-instances={numbers['instances']}", f"--num-replicas={numbers['replicas']}"]
    words += [f"--ipus-per-replica={numbers['ipus_per_replica']}", f"--sdk-version={row['sdk']}", "--dry-run"]
    words += ["--host-layout=8x16"]
    if row["ilds"] and row["id"] != BREAKS_R8:
        words.append(f"--num-ilds={row['ilds']}")
    code, out, err = ipulaunch("run", *words, *given, "--", *PROGRAM)
    assert code == 0, err

    argv = shlex.split(out)
    line = read_line(argv, parse_sdk(row["sdk"]))
    assert line.program == PROGRAM
    assert [line.number(name, 1) for name in ("num-instances", "num-replicas", "ipus-per-replica")] == list(
        numbers.values()
    )
    assert hostlist.parse(line.text("host") or "localhost") == (tuple(names) or ("localhost",))
    flags = shlex.split(row["flags"])
    assert [word for word in argv if word in flags] == sorted(flags, key=argv.index)  # each of them once
