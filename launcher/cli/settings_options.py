"""The options that become settings of a workload, under our names and under those of the published applications."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Tuple

import click

from ipulaunch.configs.errors import SettingsError, UsageError
from ipulaunch.configs.settings.published_options import MAPPINGS, holds_several, settings_in
from ipulaunch.configs.settings.schema import leaves, relative_paths, with_whole_paths
from ipulaunch.configs.settings.tree import Tree, assign, assignment, flat, merge
from ipulaunch.configs.settings.workloads import WORKLOADS, Resolved, over, presets, resolve, schema_of
from ipulaunch.launcher.cli.options import PATH, SEEN_FROM_HERE, WHOLE_PATH, Decorator, decorate, offers
from ipulaunch.launcher.cli.settings_command import EMPTY, SettingsCommand, setting_option

_FROM: List[Decorator] = [
    click.option(
        "--rehearsal/--no-rehearsal",
        default=None,
        help="Use the workload's small rehearsal settings, or the full ones. Default: small on CPUs, full on IPUs.",
    ),
    click.option("--config-path", type=PATH, help="A YAML file with your own settings."),
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change any setting, e.g. data.n_train=64; may be repeated.",
        shell_complete=offers("setting_keys"),
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
    click.option(
        "--staged-files/--no-staged-files",
        default=None,
        help="Whether each host reads files of its own: needs --stage-dir, which copies them there.",
    ),
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
# Other names of options: what many programs call them, and what the published application of a workload does.
_ALSO_EVERYWHERE = {"training.micro_batch_size": ("--batch-size",)}
_ALSO = {
    "cosmoflow": {
        "training.num_epochs": ("--n-epochs",),
        "optimizer.learning_rate": ("--lr",),
        "launch.num_replicas": ("--num-ipus",),
        "estimator.batches_per_step": ("--iterations-per-loop",),
        "run_dir": ("--output-dir",),
    },
}
# Switches for settings that are not switches here: the value that each gives to its setting.
_SWITCHES: Dict[str, Tuple[str, Dict[bool, object]]] = {
    "--test-only": ("training.training", {True: False}),
    "--on-demand": ("device.connection", {True: "on_demand", False: "always"}),
    "--apply-log": ("data.normalise", {True: "log", False: "mean"}),
}


def workload_command(workload: str, help: str) -> Callable[[Callable[..., Any]], click.Command]:
    """The decorator of a command that takes the settings of a workload, and knows options by their published names."""
    also = _ALSO.get(workload, {})

    def make(function: Callable[..., Any]) -> click.Command:
        command = click.command(workload, cls=SettingsCommand, help=help)(function)
        for param in command.params:
            param.opts += also.get(str(param.name), ())
        return command

    return make


def settings_options(workload: str) -> Decorator:
    """An option for every setting of a workload that has one, --set for all of them, and where they start from."""

    def with_settings(command: Any) -> Any:
        also = {**_ALSO_EVERYWHERE, **_ALSO.get(workload, {})}
        options = [
            setting_option(leaf, *also.get(leaf.key, ())) for leaf in leaves(schema_of(workload)) if leaf.about.flag
        ]
        own = [*_EVERYWHERE, *(_COSMOFLOW if workload == "cosmoflow" else _IMAGES)]
        own += _MNIST if workload == "mnist" else _ESTIMATOR if workload in _WITH_ESTIMATORS else []
        return decorate(command, [_config_option(workload), *_FROM, *options, *own])

    return with_settings


def _config_option(workload: str) -> Decorator:
    known = ", ".join(presets(workload))
    which = f": {known}" if known else f"; there are none for {workload}"
    return click.option(
        "--config",
        metavar="NAME",
        help=f"Start from a published configuration{which}.",
        shell_complete=offers("presets_of_workload"),
    )


def settings_from(workload: str, values: Dict[str, Any], *, on_cpus: bool, elsewhere: bool = False) -> Resolved:
    """The settings in force for a command line, with whole paths; takes its options out of `values`.

    What runs `elsewhere` does not see the directories that are here: there, only whole paths mean something.
    """
    schema = schema_of(workload)
    shorthand = _PIPELINED_MNIST if values.pop("pipelining", False) else {}
    below = merge(*(assign(key, value, "--pipelining") for key, value in shorthand.items()))
    layers = [assignment(text, "--set") for text in values.pop("assignments")]
    _require_data_set(workload, values.pop("dataset", None))
    stages_files = values.pop("staged_files", None)
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
    if stages_files and resolved.settings.data.stage_dir is None:
        raise UsageError(
            "--staged-files is given, and no directory for the files of a host is named",
            hint="--stage-dir DIR names it, and copies the files there",
        )
    for key, path in relative_paths(resolved.settings).items() if elsewhere else ():
        raise SettingsError(f"{resolved.origins[key]}: {key} is {path}, {SEEN_FROM_HERE}", hint=WHOLE_PATH)
    resolved = resolved._replace(settings=with_whole_paths(resolved.settings))
    if elsewhere or resolved.settings.data.directory is None:
        return resolved
    from ipulaunch.launcher.launch.larger_sets import with_long_runs  # other launches do without

    return with_long_runs(resolved)


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
