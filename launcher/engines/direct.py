"""One process with all the replicas, without poprun: what it needs in its environment."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ipulaunch.configs.errors import PlanError
from ipulaunch.launcher.engines.poprun_table import OFFERED, is_given, with_variables

MOST_IPUS = 64  # R9: one process reaches no further
_FLAGS = "TF_POPLAR_FLAGS"
_CACHE = "executable_cache_path"


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
    found = {option.variable: str(poprun[option.key]) for option in with_variables(poprun)}
    cache = poprun.get(_CACHE)
    if cache is not None:
        flags = given.get(_FLAGS, environ.get(_FLAGS, "")).split()
        if not any(flag.startswith("--executable_cache_path") for flag in flags):  # which wins, as it does under poprun
            found[_FLAGS] = " ".join([*flags, f"--executable_cache_path={cache}"])
    return {**given, **found}


def unused(poprun: Mapping[str, Any]) -> List[str]:
    """The keys of given options that only poprun has a use for."""
    return [key for key, value in poprun.items() if is_given(value) and not OFFERED[key].variable and key != _CACHE]
