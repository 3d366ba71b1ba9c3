"""The engine without poprun: one process with all replicas, which takes poprun's options from its environment."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ipulaunch.configs.errors import NotReadyError, PlanError, UsageError
from ipulaunch.configs.messages import Message, note
from ipulaunch.configs.text import ENABLE_SDK, counted
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.engines.engine import SDK, CommandRequest, Engine, flags
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.poprun_table import OFFERED, is_given, offline, refuse_contradictions, with_variables
from ipulaunch.topology import Plan
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.machines.hosts import is_here

MOST_IPUS = 64  # R9: one process reaches no further
_FLAGS = "TF_POPLAR_FLAGS"
_CACHE = "executable_cache_path"
_OF_MPI = ("poprun_args", "mpi_global_args", "mpi_local_args", "allow_run_as_root", "openmpi_version")


class Direct(Engine):
    """The worker itself, as the only process."""

    name = "direct"
    summary = "one process, without poprun"
    backend = "ipu"
    needs = (SDK,)
    tags_output = False

    @classmethod
    def of_this_machine(cls, reason: str = "") -> Direct:
        return cls(discovery.find_poprun() is not None or bool(os.environ.get("POPLAR_SDK_ENABLED")), reason)

    def require(self) -> None:
        if not self.is_here:
            hint = f"{ENABLE_SDK}, or rehearse with --engine openmpi"
            raise NotReadyError("the Poplar SDK is not enabled here: POPLAR_SDK_ENABLED is not set", hint=hint)

    def require_programs(self) -> None:
        raise UsageError(
            "--engine direct is for workloads: a program of your own learns its replicas from PopDist",
            hint="use --engine poprun, or start the program as it is",
        )

    def offline(self, options: LaunchOptions) -> Tuple[LaunchOptions, List[Message]]:
        options, messages = offline(options)
        poprun = {key: value for key, value in options.poprun.items() if key != "offline_mode"}
        return options._replace(poprun=poprun), messages  # the worker knows it from its settings

    def instances(self, given: Optional[int], ipus: int, hosts: Sequence[str]) -> Optional[int]:
        require_one_process(given or 1, ipus)
        if len(hosts) > 1 or not all(map(is_here, hosts)):
            raise PlanError(
                f"{counted(len(hosts), 'host')} named ({hostlist.render(hosts)}), and --engine direct starts 1 process"
                " on this machine",
                hint="leave --hosts out, or use --engine poprun",
            )
        return 1

    def plan_words(self, plan: Plan) -> List[str]:
        return ["--num-replicas", str(plan.replicas)]  # of which poprun would tell it

    def command(self, request: CommandRequest) -> Tuple[Command, List[Message]]:
        options, plan = request.options, request.plan
        require_one_process(plan.instances, plan.ipus)
        refuse_contradictions(
            options.poprun, {name: request.env.get(name, os.environ.get(name, "")) for name in request.forward}
        )
        env = direct_environment(options.poprun, request.env, os.environ if self.is_here else {})
        of_mpi = [name for name in _OF_MPI if is_given(getattr(options, name))]
        useless = [*_unused(options.poprun), *of_mpi, *(["tag_output"] if options.tag_output else [])]
        useless += ["num_ilds"] if options.ilds else []
        text = f"for poprun and MPI, without effect in one process: {flags(useless)}"
        return Command(request.program, env), [note(text)] if useless else []


ENGINE = Direct


def require_one_process(instances: int, ipus: int) -> None:
    """Refuse a plan for more than one process, or for more IPUs than one process can use."""
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


def _unused(poprun: Mapping[str, Any]) -> List[str]:
    """The keys of given options that only poprun uses."""
    return [key for key, value in poprun.items() if is_given(value) and not OFFERED[key].variable and key != _CACHE]
