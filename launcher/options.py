"""The options that commands share, and what they become."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.schema import Leaf, leaves
from ipulaunch.configs.tree import Tree, assign, assignment, merge
from ipulaunch.configs.workloads import Resolved, over, resolve, schema_of
from ipulaunch.launcher.launch import Asked
from ipulaunch.launcher.poprun_options import parse_sdk

Decorator = Callable[[Any], Any]

_CLICK_TYPES = {"int": int, "float": float, "str": str, "bool": bool, "Fraction": str}
_YES_NO = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

_PATH = click.Path(path_type=Path, readable=False)  # whether it can be read is told with our own exit codes

_WHERE: List[Decorator] = [
    click.option(
        "--pod", metavar="SIZE|NAME", help="The POD: 4, 8, 16, 32, 64, 128, 256, or a name such as bow-pod64."
    ),
    click.option("--ipus", type=click.IntRange(1), help="IPUs to use: a part of the POD, or a system without a name."),
    click.option("--hosts", metavar="LIST", help="Hosts: a,b or host[0-3]. Default: this machine."),
    click.option("--hostfile", type=_PATH, help="A file with one host per line."),
    click.option("--host-layout", metavar="NODESxCORES", help="NUMA nodes and cores of a host, e.g. 8x16."),
    click.option("--num-ilds", "ilds", type=click.IntRange(1), help="IPU-Link domains. Default: one per 64 IPUs."),
    click.option("--oversubscribe", is_flag=True, help="Allow more instances than cores."),
    click.option("--engine", type=click.Choice(["poprun", "openmpi"]), help="What starts the instances."),
]

_POPRUN: List[Decorator] = [
    click.option(
        "--sdk-version",
        "sdk",
        metavar="X.Y",
        help="The Poplar SDK to write the poprun line for. Default: the enabled one, else 3.4.",
    ),
    click.option("--vipu-partition", metavar="NAME", help="V-IPU partition."),
    click.option("--vipu-server-host", metavar="HOST", help="V-IPU controller."),
    click.option("--vipu-server-port", type=click.IntRange(1, 65535), help="Its port."),
    click.option("--vipu-server-timeout", type=click.IntRange(1), help="Seconds to wait for it."),
    click.option("--vipu-allocation", metavar="NAME", help="Allocation to make the partition in (SDK 3.2 and later)."),
    click.option("--vipu-cluster", metavar="NAME", help="Cluster to make the partition in (before SDK 3.2)."),
    click.option(
        "--update-partition/--no-update-partition", default=None, help="Change a partition that does not fit."
    ),
    click.option("--reset-partition/--no-reset-partition", default=None, help="Reset the partition first."),
    click.option("--remove-partition/--no-remove-partition", default=None, help="Remove a partition poprun made."),
    click.option("--executable-cache-path", metavar="DIR", help="Where compiled programs are kept."),
    click.option("--host-subnet", metavar="CIDR", help="Network between the hosts."),
    click.option("--offline-mode", is_flag=True, help="Run without IPUs, to compile only."),
    click.option("--print-topology", is_flag=True, help="Let poprun print its own table."),
]

_HOW: List[Decorator] = [
    click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="A variable for the instances."),
    click.option("--mpi-global-args", multiple=True, metavar="TEXT", help="Options for mpirun as a whole."),
    click.option("--mpi-local-args", multiple=True, metavar="TEXT", help="mpirun options of every instance."),
    click.option(
        "--allow-run-as-root/--no-allow-run-as-root", default=None, help="Default: allowed when you are root."
    ),
    click.option("--openmpi-version", type=click.IntRange(4, 5), help="The Open MPI to write the mpirun line for."),
    click.option("--python", metavar="PATH", help="The Python of the instances."),
]

_RUN: List[Decorator] = [
    click.option("--dry-run", is_flag=True, help="Print the command and stop."),
    click.option("--json", "as_json", is_flag=True, help="Print plan and command as JSON and stop."),
    click.option("--run-dir", type=_PATH, help="Where the run lies. Default: runs/NAME-TIME."),
    click.option("--verbose", "-v", is_flag=True, help="Show the output of all instances."),
]

_FROM: List[Decorator] = [
    click.option(
        "--rehearsal/--no-rehearsal", default=None, help="The small job or the full one. Default: small on CPUs."
    ),
    click.option("--config", metavar="NAME", help="A published configuration; a wrong name lists them."),
    click.option("--config-path", type=_PATH, help="A YAML file with settings of your own."),
    click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting: data.n_train=64."),
]

# The walk-through's own switches, each for settings that other workloads give one by one.
_MNIST: List[Decorator] = [
    click.option("--use-ipu/--no-use-ipu", default=None, help="The same as --engine poprun, or openmpi."),
    click.option("--pipelining", is_flag=True, help="Two pipeline stages, and accumulation to keep them busy."),
]
_PIPELINED_MNIST = {"pipeline.splits": ["pool2"], "training.gradient_accumulation_count": 8}

# What the Estimator examples call settings that all workloads have.
_ESTIMATOR: List[Decorator] = [
    click.option("--batch-size", type=int, help="The same as --micro-batch-size."),
    click.option("--test-only", is_flag=True, help="The same as --no-training."),
]
_WITH_ESTIMATORS = ("cifar10", "cosmoflow")

POPRUN_FIELDS = (
    "vipu_partition",
    "vipu_server_host",
    "vipu_server_port",
    "vipu_server_timeout",
    "vipu_allocation",
    "vipu_cluster",
    "update_partition",
    "reset_partition",
    "remove_partition",
    "executable_cache_path",
    "host_subnet",
    "offline_mode",
    "print_topology",
)


def where_options(command: Any) -> Any:
    """Options that say which system, hosts and engine."""
    return _decorate(command, _WHERE)


def launch_options(command: Any) -> Any:
    """Options that say how the engine is called and what becomes of the run."""
    return _decorate(command, _WHERE + _RUN + _HOW + _POPRUN)


def resume_options(command: Any) -> Any:
    """Options for a run that has its settings already: where it continues, and how the engine is called."""
    instances = click.option("--num-instances", type=click.IntRange(1), help="Host processes, over all hosts.")
    verbose = click.option("--verbose", "-v", is_flag=True, help="Show the output of all instances.")
    return _decorate(command, [*_WHERE, instances, verbose, *_HOW, *_POPRUN])


def engine_options(command: Any) -> Any:
    """Options that say how the engine is called."""
    return _decorate(command, _HOW + _POPRUN)


def settings_options(workload: str) -> Decorator:
    """An option for every setting of a workload that has one, --set for all of them, and where they start from."""

    def decorate(command: Any) -> Any:
        options = [_setting_option(leaf) for leaf in leaves(schema_of(workload)) if leaf.about["flag"]]
        own = _MNIST if workload == "mnist" else _ESTIMATOR if workload in _WITH_ESTIMATORS else []
        return _decorate(command, [*_FROM, *options, *own])

    return decorate


def _decorate(command: Any, options: List[Decorator]) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def _setting_option(leaf: Leaf) -> Decorator:
    kind: Any = leaf.kind[9:-1] if leaf.kind.startswith("Optional[") else leaf.kind
    kwargs: Dict[str, Any] = {"default": None, "help": leaf.about["help"][:1].upper() + leaf.about["help"][1:] + "."}
    if kind.startswith("Tuple["):
        kwargs.update(multiple=True, metavar="NAME" if kind == "Tuple[str, ...]" else "NUMBER")
    elif leaf.about["choices"]:
        kwargs["type"] = click.Choice(leaf.about["choices"], case_sensitive=False)
        kwargs["metavar"] = f"[{'|'.join(leaf.about['choices'])}]"  # click would write them in small letters
    elif kind != "bool":
        kwargs["type"] = _CLICK_TYPES[kind]
        if kind == "Fraction":
            kwargs["metavar"] = "NUMBER"
        elif leaf.about["flag"].endswith(("-dir", "-path")):
            kwargs["metavar"] = "DIR"
    return click.option(leaf.about["flag"], leaf.key.replace(".", "__"), **kwargs)


class SettingsCommand(click.Command):
    """A command whose switches also take a word, as in Graphcore's applications: --validation False."""

    def parse_args(self, ctx: click.Context, args: List[str]) -> List[str]:
        switches = {
            name: option
            for option in self.params
            if isinstance(option, click.Option) and option.is_flag and option.secondary_opts
            for name in option.opts
        }
        words: List[str] = []
        for word in args:
            name, equals, value = word.partition("=")
            if words and words[-1] in switches and word.lower() in _YES_NO:
                name, value = words.pop(), word
            elif not (equals and name in switches and value.lower() in _YES_NO):
                words.append(word)
                continue
            words.append(name if _YES_NO[value.lower()] else switches[name].secondary_opts[0])
        return super().parse_args(ctx, words)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, with those of each group of settings under a heading of their own."""
        sections: Dict[str, List[Tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                group, dot, _ = str(param.name).partition("__")
                sections.setdefault(f"{group.capitalize()} settings" if dot else "Options", []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def engine_from(values: Dict[str, Any]) -> Optional[str]:
    """The engine that was asked for, if any."""
    asked: Optional[str] = values["engine"]
    use_ipu = values.pop("use_ipu", None)
    if use_ipu is not None:
        meant = "poprun" if use_ipu else "openmpi"
        if asked not in (None, meant):
            switch = "--use-ipu" if use_ipu else "--no-use-ipu"
            raise UsageError(f"--engine {asked} and {switch} are both given", hint="give one of them")
        asked = values["engine"] = meant
    return asked


def settings_from(workload: str, values: Dict[str, Any], *, on_cpus: bool) -> Resolved:
    """The settings in force for a command line; takes its options out of `values`."""
    schema = schema_of(workload)
    shorthand = _PIPELINED_MNIST if values.pop("pipelining", False) else {}
    below = merge(*(assign(key, value, "--pipelining") for key, value in shorthand.items()))
    layers = [assignment(text, "--set") for text in values.pop("assignments")]
    layers += _by_other_names(values)
    for leaf in leaves(schema):
        value = values.pop(leaf.key.replace(".", "__"), None)
        if isinstance(value, tuple):  # given several times, or with commas
            value = ",".join(value) if value else None
        if value is not None:
            layers.append(assign(leaf.key, value, leaf.about["flag"].split("/")[0]))
    rehearsal = values.pop("rehearsal")
    return resolve(
        workload,
        rehearsal=on_cpus if rehearsal is None else rehearsal,
        config=values.pop("config"),
        config_path=values.pop("config_path"),
        environ=os.environ,
        overrides=[over(below, merge(*layers))],
    )


def _by_other_names(values: Dict[str, Any]) -> List[Tree]:
    """What the options of the Estimator examples set; one setting under two names is refused."""
    found = []
    pairs = (
        ("--batch-size", values.pop("batch_size", None), "training.micro_batch_size", "--micro-batch-size"),
        ("--test-only", False if values.pop("test_only", False) else None, "training.training", "--training"),
    )
    for flag, value, key, other in pairs:
        if value is not None:
            if values.get(key.replace(".", "__")) not in (None, value):
                raise UsageError(f"{flag} and {other} are both given", hint="give one of them")
            found.append(assign(key, value, flag))
    return found


def asked_from(values: Dict[str, Any]) -> Asked:
    """What the shared options ask for; takes them out of `values`."""
    poprun = {name: values.pop(name) for name in POPRUN_FIELDS if name in values}
    sdk = values.pop("sdk", None)
    names: Tuple[str, ...] = Asked._fields
    given = {name: values.pop(name) for name in names if name in values}
    return Asked(**given, sdk=None if sdk is None else parse_sdk(sdk), poprun=poprun)
