"""Benchmarks as a specification file describes them, in the published format of `benchmarks.yml`."""

from __future__ import annotations

import glob
import itertools
import re
import reprlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

from ipulaunch.configs.errors import SettingsError, near_miss, nearest
from ipulaunch.configs.merged_yaml import read_entries
from ipulaunch.configs.messages import Message, note, warning

REDUCTIONS = ("mean", "min", "max", "final", "value")
COMPILE_TIME = "total_compiling_time"  # found in the logs of every benchmark
_COMPILE_TIME = "compile_time"  # the name that published files show it by
_SHIPPED = Path(__file__).parent / "benchmarks"
_MOST_VARIANTS = 10_000
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 2
_NAME = re.compile(r"[A-Za-z_]\w*")  # of a variable of the environment

_KEYS = ("cmd", "description", "parameters", "data", "derived", "output", "env", "location", "timeout", "allow_wandb")
_TO_DO = {  # keys of published files that ask for something that a benchmark here does not do by itself
    "requirements_path": "bench installs nothing; before it, pip install -r {}",
    "requirements_file": "bench installs nothing; before it, pip install -r {}",
    "required_apt_packages_path": "bench installs nothing; before it, install the packages of {}",
    "pre_run_commands": "bench runs no other commands; run them before it",
}
_SILENT = ("generated", "synthetic", "reference_directory")  # they only concern the published runner's own checks

Parameters = Dict[str, str]


@dataclass(frozen=True)
class Metric:
    """A number to find in the logs."""

    name: str
    pattern: Pattern[str]
    skip: int = 0
    reduction: str = "mean"


@dataclass(frozen=True)
class Benchmark:
    """One entry of a specification; every set of parameters makes a variant of it."""

    name: str
    origin: str  # file and line
    cmd: str
    description: str = ""
    parameters: Tuple[Parameters, ...] = ({},)
    metrics: Tuple[Metric, ...] = ()
    derived: Mapping[str, str] = field(default_factory=dict)  # a name, and the expression that gives it
    output: Tuple[Tuple[str, str], ...] = ()  # a label, and the name of a metric
    env: Mapping[str, str] = field(default_factory=dict)
    directory: Optional[Path] = None  # where the command runs; None: where its logs are
    timeout_s: Optional[float] = None
    allow_wandb: bool = False
    messages: Tuple[Message, ...] = ()  # what the user should know before it runs

    @property
    def is_convergence(self) -> bool:
        """Whether it takes so long that it runs on request only."""
        return re.search(r"_conv(_|$)", self.name) is not None


class Specification(NamedTuple):
    """What specification files hold, and what is wrong with them."""

    benchmarks: Dict[str, Benchmark]
    wrong: Dict[str, SettingsError]  # benchmarks that cannot run
    others: Dict[str, str]  # entries that are no benchmarks, and why
    errors: Tuple[SettingsError, ...]  # of whole files
    messages: Tuple[Message, ...]


def spec_files(patterns: Sequence[str]) -> List[Path]:
    """The files that paths and wildcards name, each once; without any, those that ship with ipulaunch.

    A wildcard that matches nothing stays, as a file that is not there.
    """
    if not patterns:
        return sorted(_SHIPPED.glob("*.yml"))
    found: List[str] = []
    for pattern in patterns:
        is_one = Path(pattern).exists() or not glob.has_magic(pattern)
        matches = [] if is_one else sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - a Path has no root to start from
        found += [match for match in matches if match.endswith((".yml", ".yaml"))] or [pattern]
    return [Path(name) for name in dict.fromkeys(found)]


def read_specification(files: Sequence[Path]) -> Specification:
    """The benchmarks of all files. What is wrong with one entry or file leaves the others usable."""
    benchmarks: Dict[str, Benchmark] = {}
    wrong: Dict[str, SettingsError] = {}
    others: Dict[str, str] = {}
    errors: List[SettingsError] = []
    messages: List[Message] = []
    for file in files:
        try:
            entries = read_entries(file)
        except SettingsError as error:
            errors.append(error)
            continue
        messages += [warning(f"{file}: {name} is given twice; the last one counts") for name in entries.repeated]
        for name, entry in entries.values.items():
            origin = f"{file}:{entries.lines.get(name, 1)}"
            reason = _no_benchmark(name, entry)
            if reason:
                others[name] = f"{origin}: {name} {reason}"
                continue
            try:
                benchmark = _benchmark(name, entry, origin, file)
            except SettingsError as error:
                wrong[name] = error
                continue
            if name in benchmarks:
                messages.append(warning(f"{origin}: {name} replaces that of {benchmarks[name].origin}"))
            benchmarks[name] = benchmark
    return Specification(benchmarks, wrong, others, tuple(errors), tuple(messages))


def _no_benchmark(name: str, entry: Any) -> str:
    """Why an entry is no benchmark; empty if it is one."""
    if "options" in name:
        return "is for others to merge: its name has `options` in it"
    if isinstance(entry, dict) and "notebook" in entry:
        return "runs a notebook, which bench does not: write a cmd"
    if not isinstance(entry, dict) or "cmd" not in entry:
        return "has no cmd: it is for others to merge"
    return ""


def _messages(
    entry: Mapping[Any, Any], directory: Path, output: Sequence[Tuple[str, str]], known: Sequence[str]
) -> List[Message]:
    """What nobody does or reads of an entry; the same text for entries that share it."""
    found: List[Message] = []
    for key, value in entry.items():
        if key in _TO_DO:
            place = directory / value if isinstance(value, str) else "the list"
            found.append(note(f"{key}: {_TO_DO[key].format(place)}"))
        elif key not in (*_KEYS, *_SILENT):
            hint = nearest(str(key), _KEYS)
            found.append(warning(f"nothing reads the key {key}{hint and f'; {hint}'}"))
    for label, metric in output:
        if metric not in known:
            found.append(
                warning(f"the output {label!r} shows {metric}, which is no metric; {near_miss(metric, known)}")
            )
    return found


def _benchmark(name: str, entry: Mapping[Any, Any], origin: str, file: Path) -> Benchmark:
    def wrong(what: str, hint: str = "") -> SettingsError:
        return SettingsError(f"{origin}: {name}: {what}", hint=hint)

    cmd = entry["cmd"]
    if not isinstance(cmd, str) or not cmd.strip():
        raise wrong(f"cmd is {_shown(cmd)}, not a command line")
    data, derived = (_mapping(entry, key, wrong) for key in ("data", "derived"))
    timeout = entry.get("timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0):
        raise wrong(f"timeout is {_shown(timeout)}, not a number of seconds above 0")
    parameters = _parameters(entry.get("parameters"), wrong)
    rows = _rows(entry.get("output"), wrong)
    found = (*data, *derived, *parameters[0])
    output = tuple(
        (label, COMPILE_TIME if metric == _COMPILE_TIME and metric not in found else metric) for label, metric in rows
    )
    directory = _directory(entry, file, wrong)
    return Benchmark(
        name=name,
        origin=origin,
        cmd=cmd,
        description=" ".join(_text(entry.get("description") or "", wrong).split()),
        parameters=parameters,
        metrics=tuple(_metric(metric, about, wrong) for metric, about in data.items()),
        derived={metric: _expression(metric, about, wrong) for metric, about in derived.items()},
        output=output,
        env=_environment(_mapping(entry, "env", wrong), wrong),
        directory=directory,
        timeout_s=timeout,
        allow_wandb=bool(entry.get("allow_wandb")),
        messages=tuple(_messages(entry, directory or file.parent, output, (*found, COMPILE_TIME))),
    )


Wrong = Callable[..., SettingsError]


def _mapping(entry: Mapping[Any, Any], key: str, wrong: Wrong) -> Dict[str, Any]:
    value = entry.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(f"{key} is not a mapping of names")
    return {str(name): about for name, about in value.items()}


def _parameters(value: Any, wrong: Wrong) -> Tuple[Parameters, ...]:
    """The sets of parameters: every combination of a mapping, or the rows of a table; later names vary slowest."""
    if value is None:
        return ({},)
    if isinstance(value, list):
        if len(value) < 2 or not all(isinstance(row, list) for row in value):
            raise wrong("parameters as a list need a row of names and then a row of values for each variant")
        names, *rows = value
        for row in rows:
            if len(row) != len(names):
                raise wrong(f"parameters have {len(names)} names, and a row of {len(row)} values: {_shown(row)}")
        return tuple({_text(name, wrong): _text(each, wrong) for name, each in zip(names, row)} for row in rows)
    if not isinstance(value, dict):
        raise wrong("parameters are neither a mapping nor a list of rows")
    choices = {str(name): _choices(name, each, wrong) for name, each in value.items()}
    count = 1
    for each in choices.values():
        count *= len(each)
    if count > _MOST_VARIANTS:
        raise wrong(f"parameters give {count} variants, more than {_MOST_VARIANTS}")
    names = list(choices)
    products = itertools.product(*(choices[name] for name in reversed(names)))
    return tuple(dict(zip(names, reversed(chosen))) for chosen in products)


def _choices(name: Any, value: Any, wrong: Wrong) -> List[str]:
    values = value if isinstance(value, list) else _text(value, wrong).split(",")
    if not values:
        raise wrong(f"the parameter {name} has no values")
    return [_text(each, wrong) for each in values]


def _text(value: Any, wrong: Wrong) -> str:
    if isinstance(value, (dict, list, set, tuple)):  # aliases can make a few lines as long as they like
        raise wrong(f"{_shown(value)} is not a single value")
    return str(value).strip()


def _shown(value: object) -> str:
    """A value in a message: short, whatever it holds."""
    return _BRIEF.repr(value)


def _metric(name: str, about: Any, wrong: Wrong) -> Metric:
    if not isinstance(about, dict) or not isinstance(about.get("regexp"), str):
        raise wrong(f"the metric {name} has no regexp")
    try:
        pattern = re.compile(about["regexp"])
    except (re.error, RecursionError, OverflowError) as error:
        raise wrong(f"the regexp of {name} is broken: {error}", hint=about["regexp"]) from error
    if pattern.groups > 1:
        raise wrong(f"the regexp of {name} has {pattern.groups} groups, and 1 gives the number", hint="use (?:...)")
    skip, reduction = about.get("skip", 0), about.get("reduction_type", "mean")
    if not isinstance(skip, int) or isinstance(skip, bool) or skip < 0:
        raise wrong(f"skip of {name} is {_shown(skip)}, not a number of matches")
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        raise wrong(
            f"the reduction_type of {name} is {_shown(reduction)}", hint=near_miss(_shown(reduction), REDUCTIONS)
        )
    return Metric(name, pattern, skip, reduction)


def _expression(name: str, about: Any, wrong: Wrong) -> str:
    expression = about.get("expr") if isinstance(about, dict) else None
    if not isinstance(expression, (str, int, float)):
        raise wrong(f"the derived metric {name} has no expr")
    return str(expression)


def _rows(value: Any, wrong: Wrong) -> List[Tuple[str, str]]:
    rows = value or []
    is_table = isinstance(rows, list) and all(isinstance(row, list) and len(row) == 2 for row in rows)
    if not is_table or any(isinstance(cell, (dict, list, set, tuple)) for row in rows for cell in row):
        raise wrong("output is not a list of [label, metric]")
    return [(str(label), str(metric)) for label, metric in rows]


def _environment(env: Mapping[str, Any], wrong: Wrong) -> Dict[str, str]:
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            raise wrong(f"env has {name!r}, which cannot be the name of a variable")
        if isinstance(value, bool) or not isinstance(value, (str, int, float)) or "\0" in str(value):
            raise wrong(f"{name} of env is {_shown(value)}, not text", hint=f"write {name}: '...', in quotes")
    return {name: str(value) for name, value in env.items()}


def _directory(entry: Mapping[Any, Any], file: Path, wrong: Wrong) -> Optional[Path]:
    location = entry.get("location")
    if location is not None and not isinstance(location, str):
        raise wrong(f"location is {_shown(location)}, not a directory")
    if file.parent == _SHIPPED and not location:
        return None
    return file.resolve().parent / (location or "")
