"""The ipulaunch command of a job, with every number of the plan written out."""

from __future__ import annotations

import dataclasses
from typing import Any, List, Optional, Sequence

from ipulaunch.configs.runs.job import set_options
from ipulaunch.configs.settings.schema import leaves, plain_value, value_of
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.configs.sites import Site
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.poprun_table import OFFERED, poprun_below
from ipulaunch.launcher.schedulers.names import plain
from ipulaunch.topology import Plan

# Written out from the plan.
_ELSEWHERE = (
    "launch.num_instances",
    "launch.num_replicas",
    "launch.ipus_per_replica",
    "training.micro_batch_size",
    "training.gradient_accumulation_count",
    "training.global_batch_size",
)
# Names that may contain {job_id}.
_NAMES = {
    "vipu_partition": "the V-IPU partition",
    "vipu_allocation": "the V-IPU allocation",
    "vipu_cluster": "the V-IPU cluster",
}


def at_site(options: LaunchOptions, site: Site, hosts: int, engine: Engine) -> LaunchOptions:
    """The options of a launch, with those of the site where the command line gives none."""
    poprun = dict(options.poprun)
    if not engine.is_rehearsal:
        vipu = {f"vipu_{field.name}": getattr(site.vipu, field.name) for field in dataclasses.fields(site.vipu)}
        subnet = site.network.subnet if hosts > 1 else None
        for name, value in {**poprun_below(poprun, vipu), "host_subnet": subnet}.items():
            if poprun.get(name) is None:
                poprun[name] = value
    mpi = options.mpi_global_args
    if hosts > 1 and site.network.interface and not any("_if_include" in text for text in mpi):
        interface = plain("name", site.network.interface, "the network interface")
        network = f"--mca btl_tcp_if_include {interface}"
        if not engine.is_rehearsal:  # Open MPI 5, which a rehearsal may have, has another name for the second one
            network += f" --mca oob_tcp_if_include {interface}"
        mpi = (*mpi, network)
    return options._replace(poprun=poprun, mpi_global_args=mpi)


def first_words(task_words: Sequence[str], options: LaunchOptions, engine: Engine, plan: Plan) -> List[str]:
    """The options that lead to the same plan on the cluster, whatever its hosts and defaults are."""
    return [
        *_plan_options(options, engine, plan),
        f"--num-replicas={plan.replicas}",
        f"--ipus-per-replica={plan.ipus_per_replica}",
        *task_words,
        *_launch_options(options),
    ]


def batch_words(plan: Plan) -> List[str]:
    """The options for the batches of a plan."""
    return [
        f"--micro-batch-size={plan.batch.micro_size}",
        f"--gradient-accumulation-count={plan.batch.accumulation}",
    ]


def again_words(options: LaunchOptions, engine: Engine, plan: Plan) -> List[str]:
    """The options of `ipulaunch resume`: settings and batches are in the run; the cores of the new hosts are not."""
    return [*_plan_options(options, engine, plan), *_launch_options(options)]


def _plan_options(options: LaunchOptions, engine: Engine, plan: Plan) -> List[str]:
    words = [f"--engine={engine.name}"]
    words += [f"--pod={options.pod}"] if options.pod is not None else []
    if options.ipus is not None or options.pod is None:
        words.append(f"--ipus={options.ipus or plan.ipus}")
    words.append(f"--num-instances={plan.instances}")
    if options.ilds is not None or plan.ilds > 1:
        words.append(f"--num-ilds={plan.ilds}")
    return words


def setting_words(resolved: Resolved) -> List[str]:
    """The given settings: under their own options where a value is one word, else through --set."""
    options: List[str] = []
    rest = set()
    for leaf in leaves(type(resolved.settings)):
        if leaf.key not in resolved.given or leaf.key in _ELSEWHERE:
            continue
        value = plain_value(value_of(resolved.settings, leaf.key))
        is_word = not leaf.kind.is_list and leaf.kind.item is not bool and value is not None
        if leaf.about.flag and is_word:
            options.append(f"{leaf.about.flag}={value}")
        else:
            rest.add(leaf.key)
    more = set_options(resolved._replace(given=frozenset(rest)))  # --config NAME and --set KEY=VALUE, in pairs
    is_small = "--rehearsal" if resolved.rehearsal else "--no-rehearsal"
    return [is_small, *(f"{name}={value}" for name, value in zip(more[::2], more[1::2])), *options]


def _launch_options(options: LaunchOptions) -> List[str]:
    words: List[str] = []

    def add(flag: str, value: Any) -> None:
        if value is True:
            words.append(f"--{flag}")
        elif value is False:
            words.append(f"--no-{flag}")
        elif value is not None:
            words.append(f"--{flag}={value}")

    add("sdk-version", None if options.sdk is None else ".".join(map(str, options.sdk)))
    for key, value in options.poprun.items():
        option = OFFERED[key]
        for each in (value or ()) if option.repeatable else (value,):
            add(option.flag, _plain(key, each) if key in _NAMES else each)
    for text in options.poprun_args:
        add("poprun-args", text)
    add("tag-output", options.tag_output or None)
    for text in options.mpi_global_args:
        add("mpi-global-args", text)
    for text in options.mpi_local_args:
        add("mpi-local-args", text)
    for text in options.env:
        add("env", text)
    add("oversubscribe", options.oversubscribe or None)
    add("allow-run-as-root", options.allow_run_as_root)
    add("openmpi-version", options.openmpi_version)
    add("python", options.python)
    return words


def _plain(name: str, value: Optional[str]) -> Optional[str]:
    return None if value is None else plain("vipu", value, _NAMES[name])
