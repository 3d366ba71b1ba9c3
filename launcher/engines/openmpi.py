"""From a plan to the mpirun command of Open MPI 4 and 5: one application context per instance."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

from ipulaunch.launcher.launch.command import guard_colons, words_of
from ipulaunch.topology import Plan
from ipulaunch.topology.planning.popdist import environment

LOST_AFTER_S = 60.0
_PROBES = 5


class OpenMpiOptions(NamedTuple):
    """What this machine and the user add to the plan."""

    major: int = 5
    mpirun: str = "mpirun"
    run_as_root: bool = False
    mpi_global_args: Tuple[str, ...] = ()
    mpi_local_args: Tuple[str, ...] = ()
    forward: Tuple[str, ...] = ()  # names of variables the instances get
    lost_after_s: float = LOST_AFTER_S  # a host that was not heard of for so long is given up


def openmpi_argv(plan: Plan, options: OpenMpiOptions, program: Sequence[str]) -> Tuple[str, ...]:
    """The mpirun line of a plan. The instances bind themselves; slots are what the plan says."""
    argv: List[str] = [options.mpirun]
    if options.run_as_root:
        argv.append("--allow-run-as-root")
    argv += ["--bind-to", "none"]
    argv += ["--tag-output"] if options.major < 5 else ["--output", "tag"]
    if plan.oversubscribed:
        # Waiting instances would otherwise spin on the cores that the others need.
        argv += ["--mca", "mpi_yield_when_idle", "1"]
    if not plan.is_on_this_host:
        argv += _keepalive(options)
    argv += words_of("--mpi-global-args", options.mpi_global_args)
    local = words_of("--mpi-local-args", options.mpi_local_args)
    forwarded = [word for name in options.forward for word in ("-x", name)]
    tail = [*forwarded, *local, *guard_colons(tuple(program))]
    slots = plan.instances_per_host  # counted once: a plan may have thousands of instances
    for placement in plan.placements:
        if placement.instance:
            argv.append(":")
        argv += ["-np", "1", "--host", f"{placement.host}:{slots}"]
        for name, value in environment(plan, placement).items():
            argv += ["-x", f"{name}={value}"]
        argv += tail
    return tuple(argv)


def _keepalive(options: OpenMpiOptions) -> List[str]:
    """How mpirun and its daemons notice that a host is gone: by themselves only after eight minutes.

    Both ends notice, so that the instances of a host that was cut off end there as well.
    """
    interval = max(1, int(options.lost_after_s / (2 * _PROBES)))
    idle = max(1, int(options.lost_after_s) - interval * _PROBES)  # 0 would mean never
    values = {"time": idle, "intvl": interval, "probes": _PROBES}
    flag = "--mca" if options.major < 5 else "--prtemca"
    return [word for name, value in values.items() for word in (flag, f"oob_tcp_keepalive_{name}", str(value))]
