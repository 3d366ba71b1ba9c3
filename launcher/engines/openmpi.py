"""The engine for rehearsals on CPUs: mpirun of Open MPI 4 and 5, with one application context per instance."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.messages import Message, note
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.command import Command, guard_colons, words_of
from ipulaunch.launcher.engines.engine import MPI, CommandRequest, Engine, allows_root, flags
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.poprun_table import is_given
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
    lost_after_s: float = LOST_AFTER_S  # a host that is silent for so long is given up


class OpenMpi(Engine):
    """A rehearsal on CPUs over Open MPI."""

    name = "openmpi"
    summary = "rehearsal on CPUs over Open MPI"
    backend = "cpu"
    needs = (MPI,)
    wraps_programs = True
    asks_hosts = True

    @classmethod
    def of_this_machine(cls, reason: str = "") -> OpenMpi:
        return cls(discovery.find_mpirun() is not None, reason)

    def require(self) -> None:
        if not self.is_here:
            discovery.open_mpi()  # raises, and says what is missing

    def offline(self, options: LaunchOptions) -> Tuple[LaunchOptions, List[Message]]:
        raise SettingsError(
            "--compile-only is for IPUs: a rehearsal on CPUs has nothing to compile ahead, and would train",
            hint="compile with --engine poprun, or leave --compile-only out to rehearse",
        )

    def program(
        self, words: Sequence[str], options: LaunchOptions, run_dir: Optional[Path]
    ) -> Tuple[List[str], List[Message]]:
        # poprun binds its instances to cores. Our mpirun line does not, so a small module of ours does it. It also
        # waits for the program: mpirun does not name an instance that fails after another one has left.
        record = ["--run-dir", str(run_dir)] if run_dir is not None else []
        return [self.python(options), "-m", "ipulaunch.workers.bound", *record, *words], []

    def command(self, request: CommandRequest) -> Tuple[Command, List[Message]]:
        options = request.options
        as_root, messages = allows_root(self, options)
        major, mpirun = options.openmpi_version or 5, "mpirun"
        if self.is_here:
            here = discovery.open_mpi()
            major, mpirun = options.openmpi_version or here.major, here.path
        about = OpenMpiOptions(
            major=major,
            mpirun=mpirun,
            run_as_root=as_root,
            mpi_global_args=options.mpi_global_args,
            mpi_local_args=options.mpi_local_args,
            forward=request.forward,
            lost_after_s=min(LOST_AFTER_S, request.stall_timeout_s),
        )
        argv = openmpi_argv(request.plan, about, request.program)
        threads = os.environ.get("OMP_NUM_THREADS")
        if threads:
            messages.append(note(f"OMP_NUM_THREADS={threads} is set: kept, instead of a thread per core"))
        useless = sorted(key for key, value in options.poprun.items() if is_given(value))
        useless += ["poprun_args"] if options.poprun_args else []
        useless += ["sdk_version"] if options.sdk else []
        if useless:
            messages.append(note(f"for poprun only, without effect in a rehearsal: {flags(useless)}"))
        return Command(argv, request.env), messages


ENGINE = OpenMpi


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
