"""The options that commands share, and what they become."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import click

from ipulaunch.configs.errors import SettingsError, UsageError
from ipulaunch.configs.settings.paths import relative_paths, whole_path, with_whole_paths
from ipulaunch.configs.settings.published_options import MAPPINGS, holds_several, settings_in
from ipulaunch.configs.settings.schema import leaves
from ipulaunch.configs.settings.tree import Tree, assign, assignment, flat, merge
from ipulaunch.configs.settings.workloads import WORKLOADS, Resolved, over, presets, resolve, schema_of
from ipulaunch.launcher.cli.settings_command import EMPTY, setting_option
from ipulaunch.launcher.engines.poprun_table import OFFERED, Option, parse_sdk
from ipulaunch.launcher.launch.launch_options import Asked

Decorator = Callable[[Any], Any]

_PATH = click.Path(path_type=Path, readable=False)  # whether it can be read is told with our own exit codes

_WHERE: List[Decorator] = [
    click.option(
        "--pod", metavar="SIZE|NAME", help="The POD: 4, 8, 16, 32, 64, 128, 256, or a name such as bow-pod64."
    ),
    click.option(
        "--ipus", type=click.IntRange(1), help="Number of IPUs to use: part of the POD, or a system that is not a POD."
    ),
    click.option(
        "--hosts", "--host", "-H", metavar="LIST", help="Hosts to run on: a,b or host[0-3]. Default: this machine."
    ),
    click.option("--hostfile", type=_PATH, help="A file with one host per line."),
    click.option(
        "--host-layout", metavar="NODESxCORES", help="NUMA nodes of a host, and cores of each node, e.g. 8x16."
    ),
    click.option(
        "--num-ilds", "ilds", type=click.IntRange(1), help="Number of IPU-Link domains. Default: one per 64 IPUs."
    ),
    click.option("--oversubscribe", is_flag=True, help="Allow more instances than cores."),
    click.option(
        "--engine",
        type=click.Choice(["poprun", "openmpi", "direct"]),
        help="What starts the instances. Default: poprun if the SDK is enabled. direct: one process with all replicas.",
    ),
]


def _poprun_option(option: Option) -> Decorator:
    """Our option for one of poprun's."""
    kwargs: Dict[str, Any] = {"default": None, "help": option.about}
    flag = f"--{option.flag}"
    if option.kind == "bool":
        flag = f"{flag}/--no-{option.flag}"
    elif option.kind == "flag":
        kwargs["is_flag"] = True
    elif option.kind == "int":
        kwargs["type"] = click.IntRange(option.least, option.most)
    else:
        kwargs["metavar"] = option.metavar
    if option.repeatable:
        kwargs.update(default=(), multiple=True)
    return click.option(flag, option.key, **kwargs)


_POPRUN: List[Decorator] = [
    click.option(
        "--sdk-version",
        "sdk",
        metavar="X.Y",
        help="The Poplar SDK to plan and to write the poprun line for. Default: the enabled one, else 3.4.",
    ),
    *map(_poprun_option, OFFERED.values()),
    click.option(
        "--poprun-args", multiple=True, metavar="TEXT", help="Further options for poprun, as they are; may be repeated."
    ),
]

_HOW: List[Decorator] = [
    click.option(
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Environment variable to pass to the instances; may be repeated.",
    ),
    click.option(
        "--tag-output", is_flag=True, help="Tell mpirun to tag lines, also where poprun or ipulaunch does it."
    ),
    click.option(
        "--mpi-global-args", multiple=True, metavar="TEXT", help="Options for mpirun itself; may be repeated."
    ),
    click.option(
        "--mpi-local-args", multiple=True, metavar="TEXT", help="mpirun options for every instance; may be repeated."
    ),
    click.option(
        "--allow-run-as-root/--no-allow-run-as-root",
        default=None,
        help="Let MPI run as root. Default: yes if you are root.",
    ),
    click.option(
        "--openmpi-version", type=click.IntRange(4, 5), help="Major version of Open MPI to write the mpirun line for."
    ),
    click.option("--python", metavar="PATH", help="Python interpreter that the instances use."),
]

_RUN: List[Decorator] = [
    click.option("--dry-run", is_flag=True, help="Print the command and stop."),
    click.option("--json", "as_json", is_flag=True, help="Print the plan and the command as JSON and stop."),
    click.option("--run-dir", type=_PATH, help="Directory to create for the run. Default: runs/NAME-TIME."),
]
_VERBOSE = click.option(
    "--verbose", "-v", count=True, help="Show the output of all instances; -vv: and let poprun log everything (--vv)."
)

# A program's own output is always shown.
_VERBOSITY = click.option(
    "-v", "verbose", count=True, help="Let poprun log what it does (--poprun-verbose); -vv: --vv."
)

_FROM: List[Decorator] = [
    click.option(
        "--rehearsal/--no-rehearsal",
        default=None,
        help="Use the workload's small rehearsal settings, or the full ones. Default: small on CPUs, full on IPUs.",
    ),
    click.option("--config-path", type=_PATH, help="A YAML file with your own settings."),
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change any setting, e.g. data.n_train=64; may be repeated.",
    ),
]

# The walk-through's own switches, each for settings that other workloads give one by one.
_MNIST: List[Decorator] = [
    click.option("--use-ipu/--no-use-ipu", default=None, help="The same as --engine poprun, or --engine openmpi."),
    click.option(
        "--pipelining", is_flag=True, help="Use two pipeline stages, and enough accumulation to keep them busy."
    ),
]
_PIPELINED_MNIST = {"pipeline.splits": ["flatten"], "training.gradient_accumulation_count": 8}

# What the published applications call settings of ours, or say with one value where we have several settings.
_ESTIMATOR: List[Decorator] = [
    click.option("--test-only", is_flag=True, default=None, help="The same as --no-training."),
]
_COSMOFLOW: List[Decorator] = [
    click.option("--apply-log/--no-apply-log", default=None, help="The same as --normalise log, or mean."),
]
_IMAGES: List[Decorator] = [
    click.option("--dataset", metavar="NAME", help="The data set, which is the command: only for published lines."),
    click.option(
        "--optimizer-params", metavar="{KEY: VALUE}", help="momentum, weight_decay, eeta, epsilon, base_decay_exponent."
    ),
    click.option(
        "--lr-schedule-params",
        metavar="{KEY: VALUE}",
        help="initial_learning_rate (per sample), epochs_to_total_decay, end_learning_rate_ratio, power, or"
        " boundaries and values.",
    ),
    click.option("--lr-warmup-params", metavar="{KEY: VALUE}", help="warmup_mode and warmup_epochs."),
]
_EVERYWHERE: List[Decorator] = [
    click.option(
        "--on-demand/--no-on-demand", default=None, help="The same as --device-connection on_demand, or always."
    ),
]
_WITH_ESTIMATORS = ("cifar10", "cosmoflow")
# Other names of options that all workloads have, in the applications of some.
_ALSO = {
    "cosmoflow": {
        "training.micro_batch_size": ("--batch-size",),
        "training.num_epochs": ("--n-epochs",),
        "optimizer.learning_rate": ("--lr",),
        "launch.num_replicas": ("--num-ipus",),
        "estimator.batches_per_step": ("--iterations-per-loop",),
    },
    "cifar10": {"training.micro_batch_size": ("--batch-size",)},
}
# Switches for settings that are no switches here: what each makes of its setting.
_SWITCHES: Dict[str, Tuple[str, Dict[bool, object]]] = {
    "--test-only": ("training.training", {True: False}),
    "--on-demand": ("device.connection", {True: "on_demand", False: "always"}),
    "--apply-log": ("data.normalise", {True: "log", False: "mean"}),
}

_SEEN_FROM_HERE = "relative to the directory here, which a Pod does not see"
_WHOLE = "give the path as the Pod sees it, from the root, such as /data/set; see --volume"


def where_options(command: Any) -> Any:
    """Options that say which system, hosts and engine."""
    return _decorate(command, _WHERE)


def launch_options(command: Any) -> Any:
    """Options that say how the engine is called and where the run goes."""
    return _decorate(command, [*_WHERE, *_RUN, _VERBOSE, *_HOW, *_POPRUN])


def run_options(command: Any) -> Any:
    """The same for a program of the user's own, whose output is always shown."""
    return _decorate(command, [*_WHERE, *_RUN, _VERBOSITY, *_HOW, *_POPRUN])


def resume_options(command: Any) -> Any:
    """Options for a run that has its settings already: where it continues, and how the engine is called."""
    instances = click.option(
        "--num-instances", type=click.IntRange(1), help="Number of host processes, over all hosts."
    )
    return _decorate(command, [*_WHERE, instances, _VERBOSE, *_HOW, *_POPRUN])


def engine_options(command: Any) -> Any:
    """Options that say how the engine is called."""
    return _decorate(command, _HOW + _POPRUN)


def with_help(command: click.Command, texts: Mapping[str, str]) -> None:
    """Give options that mean something else in this command a text of their own."""
    for param in command.params:
        if isinstance(param, click.Option):
            param.help = texts.get(str(param.name), param.help)


def settings_options(workload: str) -> Decorator:
    """An option for every setting of a workload that has one, --set for all of them, and where they start from."""

    def decorate(command: Any) -> Any:
        also = _ALSO.get(workload, {})
        options = [
            setting_option(leaf, *also.get(leaf.key, ())) for leaf in leaves(schema_of(workload)) if leaf.about.flag
        ]
        own = [*_EVERYWHERE, *(_COSMOFLOW if workload == "cosmoflow" else _IMAGES)]
        own += _MNIST if workload == "mnist" else _ESTIMATOR if workload in _WITH_ESTIMATORS else []
        return _decorate(command, [_config_option(workload), *_FROM, *options, *own])

    return decorate


def _config_option(workload: str) -> Decorator:
    known = ", ".join(presets(workload))
    which = f": {known}" if known else f"; there are none for {workload}"
    return click.option("--config", metavar="NAME", help=f"Start from a published configuration{which}.")


def _decorate(command: Any, options: List[Decorator]) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def verbosity_from(values: Dict[str, Any]) -> int:
    """How often -v was given; the second time is for poprun."""
    count: int = values.pop("verbose")
    if count > 1:
        values["vv"] = True
    return count


def engine_from(values: Dict[str, Any]) -> Optional[str]:
    """The engine that was asked for, if any."""
    asked: Optional[str] = values["engine"]
    use_ipu = values.pop("use_ipu", None)
    if use_ipu is not None:
        meant = ("direct" if asked == "direct" else "poprun") if use_ipu else "openmpi"
        if asked not in (None, meant):
            switch = "--use-ipu" if use_ipu else "--no-use-ipu"
            raise UsageError(f"--engine {asked} and {switch} are both given", hint="give one of them")
        asked = values["engine"] = meant
    return asked


def settings_from(workload: str, values: Dict[str, Any], *, on_cpus: bool, elsewhere: bool = False) -> Resolved:
    """The settings in force for a command line, with whole paths; takes its options out of `values`.

    What runs `elsewhere` does not see the directories that are here: there, only whole paths mean something.
    """
    schema = schema_of(workload)
    shorthand = _PIPELINED_MNIST if values.pop("pipelining", False) else {}
    below = merge(*(assign(key, value, "--pipelining") for key, value in shorthand.items()))
    layers = [assignment(text, "--set") for text in values.pop("assignments")]
    _require_data_set(workload, values.pop("dataset", None))
    layers += _published(values)
    for leaf in leaves(schema):
        value, flag = values.pop(leaf.key.replace(".", "__"), None), leaf.about.flag.split("/")[0]
        if isinstance(value, tuple):  # given several times, or with commas
            value = _joined(value)
        if value is not None:
            layers += settings_in(flag, value) if holds_several(flag, value) else [assign(leaf.key, value, flag)]
    rehearsal = values.pop("rehearsal")
    resolved = resolve(
        workload,
        rehearsal=on_cpus if rehearsal is None else rehearsal,
        config=values.pop("config"),
        config_path=values.pop("config_path"),
        environ=os.environ,
        overrides=[over(below, merge(*layers))],
    )
    for key, path in relative_paths(resolved.settings).items() if elsewhere else ():
        raise SettingsError(f"{resolved.origins[key]}: {key} is {path}, {_SEEN_FROM_HERE}", hint=_WHOLE)
    return resolved._replace(settings=with_whole_paths(resolved.settings))


def _joined(words: Tuple[str, ...]) -> Any:
    """The values of a list as one, or nothing where none are given."""
    if words == (EMPTY,):
        return ()
    return ",".join(words) if words else None


def _require_data_set(workload: str, dataset: Optional[str]) -> None:
    """Refuse a published line that names another data set than the command."""
    if dataset not in (None, workload):
        other = f"use `ipulaunch {dataset}`" if dataset in WORKLOADS else "leave --dataset out"
        raise UsageError(f"--dataset is {dataset}, and the command is {workload}", hint=other)


def _published(values: Dict[str, Any]) -> List[Tree]:
    """What published options set that are not options of ours; one setting under two names is refused."""
    found: List[Tuple[str, Tree]] = []
    for flag, (key, meanings) in _SWITCHES.items():
        value = values.pop(flag[2:].replace("-", "_"), None)
        if value is not None:
            found.append((flag, assign(key, meanings[value], flag)))
    for flag in MAPPINGS:
        text = values.pop(flag[2:].replace("-", "_"), None)
        found += [(flag, tree) for tree in settings_in(flag, text)] if text is not None else []
    for flag, tree in found:
        for key, given in flat(tree).items():
            other = values.get(key.replace(".", "__"))
            if other not in (None, (), given.value):
                raise UsageError(f"{flag} and another option both set {key}", hint="give one of them")
    return [tree for _, tree in found]


def asked_from(values: Dict[str, Any], *, elsewhere: bool = False) -> Asked:
    """What the shared options ask for, with whole paths; takes them out of `values`. See settings_from()."""
    poprun = {name: values.pop(name) for name in OFFERED if name in values}
    poprun.update({name: poprun[name] or None for name in poprun if OFFERED[name].kind == "flag"})
    sdk = values.pop("sdk", None)
    names: Tuple[str, ...] = Asked._fields
    given = {name: values.pop(name) for name in names if name in values}
    for name, value in (*given.items(), *poprun.items()):
        if value == "":
            raise UsageError(f"--{name.replace('_', '-')} is empty", hint="is the variable that it came from set?")
    paths = [(poprun, key) for key, option in OFFERED.items() if option.is_path]
    for found, name in ((given, "python"), *paths):
        path = found.get(name)
        if path is None or (name == "python" and "/" not in path):  # a command, to be found where the instances are
            continue
        if elsewhere and not Path(path).is_absolute():
            raise UsageError(f"--{name.replace('_', '-')} is {path}, {_SEEN_FROM_HERE}", hint=_WHOLE)
        found[name] = whole_path(path)
    return Asked(**given, sdk=None if sdk is None else parse_sdk(sdk), poprun=poprun)
