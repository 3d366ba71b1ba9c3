"""From a line of Graphcore's published applications to the line of `ipulaunch` that starts the same job."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

import click

from ipulaunch.configs.errors import SettingsError, UsageError, near_miss
from ipulaunch.configs.messages import Message, note, warning
from ipulaunch.configs.pods import read_catalogue
from ipulaunch.configs.settings.workloads import WORKLOADS, Resolved, presets
from ipulaunch.configs.text import YES_NO
from ipulaunch.launcher.cli.commands.workload import make_command
from ipulaunch.launcher.cli.settings_options import settings_from
from ipulaunch.launcher.engines.poprun_reader import Line, read_line
from ipulaunch.launcher.engines.poprun_table import OLDEST, OPTION

# What the CNN application does where a line says nothing; its presets say all of it.
_CNN_DEFAULTS = {
    "--model-name": "toy_model",
    "--micro-batch-size": "1",
    "--num-epochs": "1",
    "--logs-per-epoch": "1",
    "--precision": "16.16",
    "--pipeline-schedule": "Grouped",
    "--optimizer": "sgd",
    "--optimizer-params": '{"momentum": 0}',
    "--loss-scaling": "0",
    "--weight-decay": "0",
    "--l2-regularization": "0",
    "--lr-schedule": "const",
    "--lr-schedule-params": '{"initial_learning_rate": 0.0001}',
    "--stochastic-rounding": "ON",
    "--optimizer-state-offloading": "True",
    "--recomputation": "False",
    "--half-partials": "False",
    "--eight-bit-transfer": "False",
    "--accelerator-side-preprocess": "False",
    "--norm-layer": '{"name": "custom_batch_norm", "momentum": 0.97}',
    "--validation": "True",
}
_CNN_DATA_SET = "cifar10"
# The files of settings that CosmoFlow's application has, and the presets that do the same.
_COSMOFLOW_FILES = {"graphcore.yaml": "published_program"}
_COSMOFLOW_ONLY = ("--use-estimator", "--n-epochs", "--num-ipus", "--iterations-per-loop", "--data-benchmark", "--lr")
# Options that mean nothing here, and why.
_NEEDLESS = {
    "--distributed": "every launch with several instances is distributed",
    "-d": "every launch with several instances is distributed",
    "--print-fom": "ipulaunch status shows the best validation, and summary.json has it",
    "--data-benchmark": "ipulaunch data bench cosmoflow measures the input pipeline",
}
# The numbers of poprun that the plan writes, under the names that a workload has for them.
_PLANNED = {"num-instances": "--num-instances", "num-ilds": "--num-ilds", "host": "--hosts"}
_PLACEMENT = ("process-placement", "numa-aware")  # up to SDK 3.0 the second

Word = Tuple[str, ...]  # an option and its values


class Translation(NamedTuple):
    """The line that does the same, and what to know about it."""

    words: Tuple[str, ...]
    messages: Tuple[Message, ...]


def translate(words: Sequence[str]) -> Translation:
    """The line of ipulaunch for a line of the CNN application or of CosmoFlow; refuses lines of other programs."""
    words = list(words)
    variables: List[str] = []
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        variables.append(words.pop(0))
    is_poprun = bool(words) and words[0].rsplit("/", 1)[-1] == "poprun"
    line = read_line(words, OLDEST) if is_poprun else Line({}, tuple(words), ())  # options of all SDKs
    script, arguments = _script(line.program)
    name, positional, options = _application(script, arguments)
    messages: List[Message] = []
    if script.rsplit("/", 1)[-1] == "validation.py":
        options.append(("--training", "False"))
    trains = not any(option[0] == "--training" and YES_NO.get(option[-1].lower()) is False for option in options)
    older = {"--checkpoint-dir": _checkpoint_dir(trains)}
    options = [(older.get(option[0], option[0]), *option[1:]) for option in options]
    workload = "cosmoflow" if name == "cosmoflow" else _data_set(options)
    command = make_command(workload)
    known, unknown = _known(command, [option for option in options if option[0] != "--dataset"])
    messages += unknown
    if workload == "cosmoflow":
        known = [*_file(positional, messages), *known]
    elif not _given(known, "--config"):
        differing = _differing(workload, command, known)
        names = ", ".join(option[0] for option in differing)
        messages.append(note(f"published defaults that differ from those of {workload} are written out: {names}"))
        known += differing
    if is_poprun and _given(known, "--num-replicas"):
        known = [option for option in known if option[0] != "--num-replicas"]
        messages.append(note("--num-replicas of the program is left out: under poprun, that of poprun counts"))
    resolved = _resolved(workload, command, known)
    launch = [*_system(line, is_poprun, resolved, messages), *_poprun(line, messages)]
    environment = [("--env", variable) for variable in variables]
    found = [word for option in (*launch, *environment, *known) for word in option]
    return Translation((workload, *found), tuple(messages))


def _checkpoint_dir(trains: bool) -> str:
    """What older releases call --checkpoint-dir: a training writes there, and a validation reads."""
    return "--checkpoint-output-dir" if trains else "--checkpoint-input-dir"


def _script(program: Sequence[str]) -> Tuple[str, Sequence[str]]:
    """The Python file of a line, and the words that follow it."""
    for index, word in enumerate(program):
        if word.endswith(".py"):
            return word, program[index + 1 :]
        if index == 0 and not re.fullmatch(r"python[\d.]*", word.rsplit("/", 1)[-1]):
            break
    raise UsageError(
        f"{' '.join(program) or 'nothing'} is not a line of the CNN application or of CosmoFlow",
        hint="give it whole: ipulaunch translate -- python3 train.py --config resnet50_16ipus_8k_bn_pipeline",
    )


def _application(script: str, arguments: Sequence[str]) -> Tuple[str, List[str], List[Word]]:
    """Which of the two a line calls, the words that no option takes, and the options with their values."""
    positional: List[str] = []
    options: List[Word] = []
    for word in arguments:
        if re.match(r"--?[A-Za-z]", word):
            option, equals, value = word.partition("=")
            options.append((option, value) if equals else (option,))
        elif options:
            options[-1] = (*options[-1], word)
        else:
            positional.append(word)
    file = script.rsplit("/", 1)[-1]
    if file not in ("train.py", "validation.py"):
        raise UsageError(
            f"{script} is neither train.py nor validation.py of a published application",
            hint="ipulaunch run launches any program: ipulaunch run --pod 16 -- python3 my_train.py",
        )
    is_cosmoflow = "cosmoflow" in script or positional or any(option[0] in _COSMOFLOW_ONLY for option in options)
    return "cosmoflow" if is_cosmoflow else "cnn", positional, options


def _data_set(options: Sequence[Word]) -> str:
    """The workload for a line of the CNN application: its data set, that of its preset, or the published default."""
    given = dict(option[:2] for option in options if option[0] in ("--dataset", "--config") and len(option) == 2)
    data_set = given.get("--dataset")
    if data_set is None:
        config = given.get("--config")
        known = [name for workload in WORKLOADS for name in presets(workload)]
        if config is not None and config not in known:
            raise SettingsError(f"there is no preset {config}", hint=near_miss(config, known))
        return next((workload for workload in WORKLOADS if config in presets(workload)), _CNN_DATA_SET)
    if data_set not in WORKLOADS:
        raise UsageError(f"--dataset is {data_set}, which is none of the workloads", hint=", ".join(WORKLOADS))
    return data_set


def _known(command: click.Command, options: Sequence[Word]) -> Tuple[List[Word], List[Message]]:
    """The options that the command of the workload has, and messages about the others."""
    names = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    known: List[Word] = []
    messages: List[Message] = []
    for option in options:
        name = option[0]
        if name in _NEEDLESS:
            messages.append(note(f"{name} is left out: {_NEEDLESS[name]}"))
        elif name in names or any(each.startswith(name) for each in names if name.startswith("--")):
            known.append(option)
        else:
            messages.append(warning(f"{' '.join(option)} has no counterpart, and is left out"))
    return known, messages


def _file(positional: Sequence[str], messages: List[Message]) -> List[Word]:
    """The preset for the file of settings that a line of CosmoFlow names."""
    for path in positional:
        preset = _COSMOFLOW_FILES.get(path.rsplit("/", 1)[-1])
        if preset is not None:
            return [("--config", preset)]
        text = f"{path} has no counterpart, and is left out: --config-path takes a file with the settings of ipulaunch"
        messages.append(warning(text))
    return []


def _differing(workload: str, command: click.Command, options: Sequence[Word]) -> List[Word]:
    """The published defaults that differ from those of the workload, as options."""
    found: List[Word] = []
    base = _resolved(workload, command, options).settings
    for name, value in _CNN_DEFAULTS.items():
        if not _given(options, name):
            trial = [*options, *found, (name, value)]
            settings = _resolved(workload, command, trial).settings
            if settings != base:
                found.append((name, value))
                base = settings
    return found


def _given(options: Sequence[Word], name: str) -> bool:
    """Whether an option is among those given, also by the beginning of its name or as its other spelling."""
    spellings: Mapping[str, Sequence[str]] = {"--model-name": ("--model-name", "--model")}
    return any(each.startswith(option[0]) for option in options for each in spellings.get(name, (name,)))


def _resolved(workload: str, command: click.Command, options: Sequence[Word]) -> Resolved:
    """The settings that these options give."""
    words = [word for option in options for word in option]
    context = command.make_context(workload, words)
    values: Dict[str, object] = dict(context.params)
    return settings_from(workload, values, on_cpus=False)


def _system(line: Line, is_poprun: bool, resolved: Resolved, messages: List[Message]) -> List[Word]:
    """The system that a line needs: a POD by its size, or a number of IPUs."""
    settings = resolved.settings
    depth = settings.ipus_per_replica
    if is_poprun:
        replicas, told = line.number("num-replicas", 1), line.number("ipus-per-replica", 1)
        if told != depth:
            text = f"--ipus-per-replica is {told} on the line, and the model uses {depth}: the plan takes {depth}"
            messages.append(warning(text))
        if "num-instances" not in line.options and replicas > 1:
            text = "without --num-instances, poprun starts one instance; ipulaunch chooses their number itself"
            messages.append(note(text))
    else:
        replicas = settings.launch.num_replicas or 1
    ipus = replicas * depth
    sizes = {entry.ipus for entry in read_catalogue().pods.values()}
    if ipus > 1 or not settings.launch.single:
        words: List[Word] = [("--pod" if ipus in sizes else "--ipus", str(ipus))]
    else:
        words = []
    if settings.launch.num_replicas not in (None, replicas):  # under poprun, its number counts, not the preset's
        words.append(("--num-replicas", str(replicas)))
    if not is_poprun and replicas > 1:
        messages.append(
            note(f"without poprun, one process holds all {replicas} replicas: leave --engine out for several instances")
        )
        words.append(("--engine", "direct"))
    return words


def _poprun(line: Line, messages: List[Message]) -> List[Word]:
    """The options of poprun that the plan does not write, or that decide about it."""
    words: List[Word] = []
    for name, values in line.options.items():
        if name in _PLANNED:
            words.append((_PLANNED[name], values[-1]))
        elif name in _PLACEMENT:
            if values[-1] == "disabled" or YES_NO.get(values[-1].lower()) is False:
                words.append(("--process-placement", "disabled"))
            else:
                messages.append(note(f"--{name} is left out: the plan places instances on NUMA nodes"))
        elif name not in ("num-replicas", "ipus-per-replica"):
            words += _passed_on(name, values)
    return words


def _passed_on(name: str, values: Sequence[str]) -> List[Word]:
    """An option of poprun that ipulaunch passes on, under its name there."""
    option = OPTION[name]
    if option.kind == "flag":
        return [(f"--{option.flag}",)]
    return [(f"--{option.flag}={value}",) for value in values]
