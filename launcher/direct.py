"""One process with all the replicas, without poprun: what it needs in its environment."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ipulaunch.configs.errors import PlanError

MOST_IPUS = 64  # R9: one process reaches no further
_FLAGS = "TF_POPLAR_FLAGS"
# What poprun tells the instances in these variables.
_VARIABLES = {
    "vipu_partition": "IPUOF_VIPU_API_PARTITION_ID",
    "vipu_server_host": "IPUOF_VIPU_API_HOST",
    "vipu_server_port": "IPUOF_VIPU_API_PORT",
    "vipu_server_timeout": "IPUOF_VIPU_API_TIMEOUT",
}
_USED = (*_VARIABLES, "executable_cache_path")


def require_one_process(instances: int, ipus: int) -> None:
    """Refuse what one process cannot carry out."""
    if instances > 1:
        raise PlanError(
            f"{instances} instances, and --engine direct starts 1 process",
            hint="use --num-instances 1, or --engine poprun",
        )
    if ipus > MOST_IPUS:
        raise PlanError(
            f"{ipus} IPUs, and one process without poprun has at most {MOST_IPUS} (R9)",
            hint=f"use --ipus {MOST_IPUS} or fewer, or --engine poprun",
        )


def direct_environment(
    poprun: Mapping[str, Any], given: Mapping[str, str], environ: Mapping[str, str]
) -> Dict[str, str]:
    """The variables that stand for options of poprun, beside those that are `given`; `environ` is where it starts."""
    found = {name: str(poprun[option]) for option, name in _VARIABLES.items() if poprun.get(option) is not None}
    cache = poprun.get("executable_cache_path")
    if cache is not None:
        flags = given.get(_FLAGS, environ.get(_FLAGS, "")).split()
        if not any(flag.startswith("--executable_cache_path") for flag in flags):  # which wins, as it does under poprun
            found[_FLAGS] = " ".join([*flags, f"--executable_cache_path={cache}"])
    return {**found, **{name: value for name, value in given.items() if name not in found}}


def unused(poprun: Mapping[str, Any]) -> List[str]:
    """The names of given options that only poprun has a use for."""
    return [name for name, value in poprun.items() if name not in _USED and value not in (None, False, ())]
