"""From a plan to the mpirun command of Open MPI 4 and 5: one application context per instance."""

from __future__ import annotations

import shlex
from typing import List, NamedTuple, Sequence, Tuple

from ipulaunch.configs.errors import UsageError
from ipulaunch.launcher.command import guard_colons
from ipulaunch.topology import Plan
from ipulaunch.topology.popdist import environment


class OpenMpiOptions(NamedTuple):
    """What this machine and the user add to the plan."""

    major: int = 5
    mpirun: str = "mpirun"
    run_as_root: bool = False
    mpi_global_args: Tuple[str, ...] = ()
    mpi_local_args: Tuple[str, ...] = ()
    forward: Tuple[str, ...] = ()  # names of variables the instances get


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
    argv += _words("--mpi-global-args", options.mpi_global_args)
    local = _words("--mpi-local-args", options.mpi_local_args)
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


def _words(name: str, texts: Sequence[str]) -> List[str]:
    try:
        return [word for text in texts for word in shlex.split(text)]
    except ValueError as error:
        raise UsageError(f"{name} has a quote that is not closed: {' '.join(texts)}") from error
