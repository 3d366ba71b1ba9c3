"""The workloads that are shipped, and how their settings come together."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

from ipulaunch.configs.errors import SettingsError, UsageError, near_miss
from ipulaunch.configs.settings.schema import build, check
from ipulaunch.configs.settings.tree import Given, Tree, assign, flat, from_environment, merge, read_yaml, without
from ipulaunch.configs.text import yes_or_no

if TYPE_CHECKING:
    from ipulaunch.configs.settings.workload import WorkloadSettings

_SHIPPED = Path(__file__).parents[1]

# The workloads: the module and the name of their settings, loaded when they are needed, and the line in the help.
_SCHEMAS = {
    "cosmoflow": ("cosmoflow", "CosmoflowSettings"),
    "imagenet": ("images", "ImageSettings"),
    "cifar10": ("images", "Cifar10Settings"),
    "cifar100": ("images", "ImageSettings"),
    "mnist": ("images", "ImageSettings"),
}
SUMMARIES = {
    "cosmoflow": "Train CosmoFlow: cosmological parameters from 3-D matter distributions.",
    "imagenet": "Train a ResNet on ImageNet, replicated or as a pipeline.",
    "cifar10": "Train a ResNet or the Keras CNN on CIFAR-10.",
    "cifar100": "Train a ResNet or the Keras CNN on CIFAR-100.",
    "mnist": "Train the Keras walk-through network on MNIST or Fashion-MNIST.",
}
WORKLOADS = tuple(_SCHEMAS)

# Two settings for the same thing: whoever gives one of them replaces the other in the layers below.
_ONE_OF_TWO = (
    ("model.norm_groups", "model.norm_channels_per_group"),
    ("training.gradient_accumulation_count", "training.global_batch_size"),
    ("data.directory", "data.synthetic_data"),
)

# Values of a workload's own file that only these choices use: with another choice they are left out. A test compares
# the row of model.dropout with the networks, which this room cannot import.
_SHIPPED_FOR = {
    "optimizer.momentum": ("optimizer.name", ("lars", "rmsprop", "sgd")),
    "model.dropout": ("model.name", ("cifar_cnn", "cosmoflow", "cosmoflow_v1", "mnist_cnn")),
}


class Resolved(NamedTuple):
    """The settings of one run, and for every key the place its value came from."""

    workload: str
    settings: WorkloadSettings
    origins: Mapping[str, str]
    rehearsal: bool
    config: Optional[str]  # the preset
    given: FrozenSet[str]  # the keys that are neither defaults nor shipped
    notes: Tuple[str, ...] = ()  # shipped values that are left out because of a choice


def schema_of(workload: str) -> Type[WorkloadSettings]:
    """The settings dataclass of a workload."""
    if workload not in _SCHEMAS:
        raise UsageError(f"there is no workload {workload}", hint=near_miss(workload, WORKLOADS))
    module, name = _SCHEMAS[workload]
    schema: Type[WorkloadSettings] = getattr(importlib.import_module(f"ipulaunch.configs.settings.{module}"), name)
    return schema


def presets(workload: str) -> Dict[str, Path]:
    """The published configurations of a workload, by name."""
    directory = _SHIPPED / "presets" / workload
    return {path.stem: path for path in sorted(directory.glob("*.yaml"))}


def resolve(
    workload: str,
    *,
    rehearsal: bool,
    config: Optional[str] = None,
    config_path: Optional[Path] = None,
    environ: Optional[Mapping[str, str]] = None,
    overrides: Sequence[Tree] = (),
) -> Resolved:
    """The settings in force: shipped file < preset < your file < environment < command line.

    In a rehearsal, the `rehearsal:` section of each file overrides the rest of the file. A shipped value that a choice
    above it cannot use is left out, with a note: only values that somebody gives can conflict.
    """
    schema = schema_of(workload)
    base = _SHIPPED / "workloads" / f"{workload}.yaml"
    own = functools.reduce(over, _layers(read_yaml(base, shown_as=f"configs/workloads/{base.name}"), rehearsal))
    chosen: List[Tree] = []
    if config is not None:
        known = presets(workload)
        if config not in known:
            hint = f"known: {', '.join(known)}" if known else "it has none: leave --config out"
            raise SettingsError(f"{workload} has no preset {config}", hint=hint)
        shown_as = f"configs/presets/{workload}/{config}.yaml"
        chosen = _layers(read_yaml(known[config], shown_as=shown_as), rehearsal)
    yours: List[Tree] = []
    if config_path is not None:
        read = read_yaml(config_path)
        for layer in _layers(read, rehearsal=True):  # a wrong line shows at once, whatever hides it now
            check(schema, layer)
        yours = _layers(read, rehearsal)
    above = [*yours, from_environment(environ or {}), merge(*overrides)]
    chosen += _of_api(workload, functools.reduce(over, [own, *chosen, *above]), rehearsal)
    own, notes = _giving_way(own, functools.reduce(over, [own, *chosen, *above]))
    below = functools.reduce(over, [own, *chosen])
    tree = functools.reduce(over, [below, *above])
    _refuse_two_groupings(tree)
    origins: Dict[str, str] = {}
    settings = build(schema, _without_samples(tree), origins)
    shipped = flat(below)
    given = frozenset(key for key, value in flat(tree).items() if shipped.get(key) is not value)
    return Resolved(workload, settings, origins, rehearsal, config, given, notes)


def over(below: Tree, above: Tree) -> Tree:
    """One layer over others. If it gives one of two settings for the same thing, the other one below is removed."""
    given = {key for key, value in flat(above).items() if value.value is not None}
    for pair in _ONE_OF_TWO:
        for one, other in (pair, pair[::-1]):
            if one in given and other not in given:
                below = without(below, other)
    return merge(below, above)


def _validates(tree: Tree) -> Optional[bool]:
    """Whether somebody asks for validation, by name or by leaving out the training; None if nobody says so."""
    values = flat(tree)
    validation, training = values.get("training.validation"), values.get("training.training")
    if validation is not None:
        return not _is_no(validation.value)
    return True if training is not None and _is_no(training.value) else None


def _is_no(value: object) -> bool:
    """Whether a value turns a switch off, in any of the words that settings take for it."""
    try:
        return not yes_or_no(value)
    except ValueError:
        return False


def _without_samples(tree: Tree) -> Tree:
    """The tree, with validation turned off if there are no samples for it and nobody asks for it."""
    samples = flat(tree).get("data.n_valid")
    if samples is None or samples.value not in (0, "0") or _validates(tree) is False:
        return tree
    if _validates(tree):
        raise SettingsError(
            f"{samples.origin}: data.n_valid is 0, and validation is asked for",
            hint="give --n-valid, the number of samples to validate with, or --no-validation",
        )
    return merge(tree, assign("training.validation", False, samples.origin))


def _refuse_two_groupings(tree: Tree) -> None:
    """Refuse group norms that get both a number and a size of their groups from one place."""
    values = flat(tree)
    groups, size = (values.get(key) for key in ("model.norm_groups", "model.norm_channels_per_group"))
    if groups is None or size is None or None in (groups.value, size.value):
        return
    raise SettingsError(
        f"{size.origin}: model.norm_groups is {groups.value} and model.norm_channels_per_group is {size.value}:"
        " for each layer, one follows from the other",
        hint="give the number of groups (num_groups) or the channels of a group (channels_per_group)",
    )


def _giving_way(own: Tree, tree: Tree) -> Tuple[Tree, Tuple[str, ...]]:
    """The workload's own values, without those that the current choices cannot use, and a note on each of these."""
    values, notes = flat(tree), []
    for key, (choice, uses) in _SHIPPED_FOR.items():
        value, chosen = values.get(key), values.get(choice)
        if value is None or chosen is None or str(chosen.value).lower() in uses:
            continue
        if flat(own).get(key) is value:
            own = without(own, key)
            notes.append(f"{key} {value.value} of {value.origin} is left out: {chosen.value} has no use for it")
    samples = values.get("data.n_valid")
    if samples is not None and samples.value == 0 and flat(own).get("data.n_valid") is samples and _validates(tree):
        own = without(own, "data.n_valid")
        notes.append(f"data.n_valid 0 of {samples.origin} is left out, because validation is asked for: see --n-valid")
    return own, tuple(notes)


def _of_api(workload: str, tree: Tree, rehearsal: bool) -> List[Tree]:
    """The shipped settings of an API other than Keras. An unknown API is refused later, with its line."""
    api = flat(tree).get("estimator.api")
    shipped = {path.stem: path for path in (_SHIPPED / "apis" / workload).glob("*.yaml")}
    path = shipped.get(str(api.value).lower()) if api else None  # the settings take it in any case of letters
    if path is None:
        return []
    return _layers(read_yaml(path, shown_as=f"configs/apis/{workload}/{path.name}"), rehearsal)


def _layers(tree: Tree, rehearsal: bool) -> List[Tree]:
    base = {key: value for key, value in tree.items() if key != "rehearsal"}
    overlay = tree.get("rehearsal")
    if isinstance(overlay, Given):
        overlay = {"rehearsal": overlay}  # refused by the schema, with its line
    return [base, overlay] if rehearsal and overlay else [base]
