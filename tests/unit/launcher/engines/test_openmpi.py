from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, List

import pytest

from ipulaunch.configs.errors import UsageError
from ipulaunch.launcher.engines.openmpi import OpenMpiOptions, openmpi_argv
from ipulaunch.topology.planning.plan import Plan

MakePlan = Callable[..., Plan]

GOLDEN = Path(__file__).parents[3] / "golden"
PROGRAM = ("python3", "train.py", "--flag", "two words")


def _context(host: str, total: int, depth: int, local: int, first: int, index: int) -> List[str]:
    variables = {
        "POPDIST_NUM_TOTAL_REPLICAS": total,
        "POPDIST_NUM_IPUS_PER_REPLICA": depth,
        "POPDIST_NUM_LOCAL_REPLICAS": local,
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
        "POPDIST_REPLICA_INDEX_OFFSET": first,
        "POPDIST_LOCAL_INSTANCE_INDEX": index,
    }
    return ["-np", "1", "--host", host, *(w for name, value in variables.items() for w in ("-x", f"{name}={value}"))]


@pytest.mark.parametrize(("major", "tags"), [(4, ["--tag-output"]), (5, ["--output", "tag"])], ids=["4", "5"])
def test_one_context_per_instance(major: int, tags: List[str], make_plan: MakePlan) -> None:
    argv = openmpi_argv(make_plan(4, 2, 2, layout=(1, 2)), OpenMpiOptions(major=major), PROGRAM)
    assert list(argv) == [
        "mpirun",
        "--bind-to",
        "none",
        *tags,
        *_context("localhost:2", total=4, depth=2, local=2, first=0, index=0),
        *PROGRAM,
        ":",
        *_context("localhost:2", total=4, depth=2, local=2, first=2, index=1),
        *PROGRAM,
    ]


def test_hosts_have_the_slots_the_plan_gives_them(make_plan: MakePlan) -> None:
    argv = openmpi_argv(make_plan(4, 4, hosts=("a", "b")), OpenMpiOptions(), ("prog",))
    assert list(argv) == [
        *("mpirun", "--bind-to", "none", "--output", "tag"),
        *("--prtemca", "oob_tcp_keepalive_time", "30"),
        *("--prtemca", "oob_tcp_keepalive_intvl", "6"),
        *("--prtemca", "oob_tcp_keepalive_probes", "5"),
        *_context("a:2", total=4, depth=1, local=1, first=0, index=0),
        "prog",
        ":",
        *_context("a:2", total=4, depth=1, local=1, first=1, index=1),
        "prog",
        ":",
        *_context("b:2", total=4, depth=1, local=1, first=2, index=0),
        "prog",
        ":",
        *_context("b:2", total=4, depth=1, local=1, first=3, index=1),
        "prog",
    ]


@pytest.mark.parametrize("seconds", [0.5, 2, 7, 10, 60])
def test_a_lost_host_is_noticed_in_time(seconds: float, make_plan: MakePlan) -> None:
    argv = openmpi_argv(make_plan(4, 2, hosts=("a", "b")), OpenMpiOptions(lost_after_s=seconds), ("prog",))
    idle, interval, probes = (
        int(argv[argv.index(f"oob_tcp_keepalive_{name}") + 1]) for name in ("time", "intvl", "probes")
    )
    assert idle > 0 and interval > 0
    assert idle + interval * probes <= max(6, seconds)  # whole seconds is all there is


@pytest.mark.parametrize(("major", "tags"), [(4, ["--tag-output"]), (5, ["--output", "tag"])], ids=["4", "5"])
def test_everything_a_user_adds(major: int, tags: List[str], make_plan: MakePlan) -> None:
    options = OpenMpiOptions(
        major=major,
        mpirun="/opt/my mpi/mpirun",
        run_as_root=True,
        mpi_global_args=("--mca btl 'self, tcp'", "--timeout 60"),
        mpi_local_args=("-x  A", "--wdir '/my dir'"),
        forward=("B", "C"),
    )
    plan = make_plan(2, 2, layout=(1, 1), oversubscribe=True)
    added = ["-x", "B", "-x", "C", "-x", "A", "--wdir", "/my dir"]
    assert list(openmpi_argv(plan, options, PROGRAM)) == [
        "/opt/my mpi/mpirun",
        "--allow-run-as-root",
        *("--bind-to", "none"),
        *tags,
        *("--mca", "mpi_yield_when_idle", "1"),
        *("--mca", "btl", "self, tcp", "--timeout", "60"),
        *_context("localhost:2", total=2, depth=1, local=1, first=0, index=0),
        *added,
        *PROGRAM,
        ":",
        *_context("localhost:2", total=2, depth=1, local=1, first=1, index=1),
        *added,
        *PROGRAM,
    ]


def test_colon_in_the_program_starts_no_context(make_plan: MakePlan) -> None:
    argv = openmpi_argv(make_plan(1, 1), OpenMpiOptions(), ("prog", ":", "-np", "9"))
    assert ":" not in argv
    assert argv[-3:] == ("/bin/sh", "-c", "exec prog : -np 9")


def test_quote_that_is_not_closed_is_refused(make_plan: MakePlan) -> None:
    with pytest.raises(UsageError, match="quot"):
        openmpi_argv(make_plan(1, 1), OpenMpiOptions(mpi_global_args=("--mca btl 'self",)), PROGRAM)


@pytest.mark.parametrize("major", [4, 5])
def test_golden(major: int, make_plan: MakePlan) -> None:
    worker = ("python3", "-m", "ipulaunch.workers", "cosmoflow", "--backend", "cpu", "--rehearsal")
    plan = make_plan(16, 4, hosts=("node1", "node2"), layout=(1, 2))
    text = "\n".join(openmpi_argv(plan, OpenMpiOptions(major=major, forward=("TMPDIR",)), worker)) + "\n"
    path = GOLDEN / f"openmpi{major}.txt"
    if os.environ.get("REFRESH_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"if this change is meant: REFRESH_GOLDEN=1 pytest {__file__}"
