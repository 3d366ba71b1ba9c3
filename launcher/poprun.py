"""From a plan to the poprun command."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import UsageError
from ipulaunch.launcher.command import guard_colons, words_of
from ipulaunch.launcher.poprun_options import NEWEST, Sdk, require
from ipulaunch.topology import Plan, hostlist


class PoprunOptions(NamedTuple):
    """What a site or a user adds to the plan. None is "not given"."""

    sdk: Sdk = NEWEST
    vipu_partition: Optional[str] = None
    vipu_server_host: Optional[str] = None
    vipu_server_port: Optional[int] = None
    vipu_server_timeout: Optional[int] = None
    vipu_allocation: Optional[str] = None
    vipu_cluster: Optional[str] = None
    update_partition: Optional[bool] = None
    reset_partition: Optional[bool] = None
    remove_partition: Optional[bool] = None
    executable_cache_path: Optional[str] = None
    host_subnet: Optional[str] = None
    offline_mode: bool = False
    print_topology: bool = False
    writes_ilds: bool = False  # also where there is one: unset, the V-IPU server would decide
    mpi_global_args: Tuple[str, ...] = ()
    mpi_local_args: Tuple[str, ...] = ()
    forward: Tuple[str, ...] = ()  # names of variables the instances get
    run_as_root: bool = False


def poprun_argv(plan: Plan, options: PoprunOptions, program: Sequence[str]) -> Tuple[str, ...]:
    """The poprun line of a plan; every option is one the SDK has."""
    words_of("--mpi-global-args", options.mpi_global_args)
    words_of("--mpi-local-args", options.mpi_local_args)
    if options.vipu_allocation is not None and options.vipu_cluster is not None:
        raise UsageError(
            f"--vipu-allocation {options.vipu_allocation} and --vipu-cluster {options.vipu_cluster} are both given:"
            " a partition is created in one place",
            hint="give --vipu-allocation from SDK 3.2 on, and --vipu-cluster before",
        )
    argv = ["poprun"]

    def add(name: str, value: object) -> None:
        if value is not None:
            require(name, options.sdk)
            argv.append(f"--{name}={_written(value)}")

    if plan.hosts != ("localhost",):
        add("host", hostlist.render(plan.hosts))
        add("host-subnet", options.host_subnet)
    add("num-instances", plan.instances)
    add("num-replicas", plan.replicas)
    add("ipus-per-replica", plan.ipus_per_replica)
    if plan.ilds > 1 or options.writes_ilds:
        add("num-ilds", plan.ilds)
    if options.sdk >= (3, 1):
        add("process-placement", "spreadnuma")
    else:
        add("numa-aware", True)
    add("vipu-server-host", options.vipu_server_host)
    add("vipu-server-port", options.vipu_server_port)
    add("vipu-server-timeout", options.vipu_server_timeout)
    add("vipu-partition", options.vipu_partition)
    add("vipu-allocation", options.vipu_allocation)
    add("vipu-cluster", options.vipu_cluster)
    add("update-partition", options.update_partition)
    add("reset-partition", options.reset_partition)
    add("remove-partition", options.remove_partition)
    add("executable-cache-path", options.executable_cache_path)
    add("offline-mode", True if options.offline_mode else None)
    add("print-topology", True if options.print_topology else None)
    for text in _global_args(options):
        add("mpi-global-args", text)
    if options.run_as_root and options.sdk >= (3, 3):
        add("allow-run-as-root", True)
    # One text, as in every published line: of several, poprun is not known to take all.
    local = " ".join((*options.mpi_local_args, *(f"-x {name}" for name in options.forward)))
    add("mpi-local-args", local or None)
    return (*argv, *guard_colons(tuple(program)))


def _global_args(options: PoprunOptions) -> List[str]:
    texts = list(options.mpi_global_args)
    if options.sdk < (2, 6):
        texts.append("--tag-output")  # from 2.6 on poprun tags by itself
    if options.run_as_root and options.sdk < (3, 3):
        texts.append("--allow-run-as-root")
    return texts


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
