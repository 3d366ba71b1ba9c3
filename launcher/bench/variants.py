"""Variants of benchmarks: their names and their commands, as words that need no shell."""

from __future__ import annotations

import re
import shlex
import string
import sys
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Sequence, Set, Tuple

from ipulaunch.configs.benchmarks import Benchmark, Parameters
from ipulaunch.configs.errors import SettingsError, near_miss, nearest
from ipulaunch.launcher.engines.command import Command

# Poplar then logs when it compiles; a variable that is set, or that the entry sets, wins.
_LOGGING = {"POPLAR_LOG_LEVEL": "INFO", "POPART_LOG_LEVEL": "INFO", "TF_CPP_VMODULE": "poplar_compiler=1"}
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_VARIABLE = re.compile(r"\$(\$(?=[A-Za-z_{])|[A-Za-z_]\w*|\{[^}]*\})", re.ASCII)  # $$NAME stands for $NAME
_SHELL_ONLY = re.compile(r"&&|\|\|?|&|\d?>.*|<.*|[^'\"]*;")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_LONGEST_NAME = 120  # characters of a directory; what is cut off gets a number


class Variant(NamedTuple):
    """A benchmark with one set of its parameters."""

    benchmark: Benchmark
    name: str
    parameters: Parameters


def variants_of(benchmark: Benchmark) -> List[Variant]:
    """Every variant of a benchmark, named by its parameters in the order of the alphabet."""
    return [
        Variant(benchmark, "_".join([benchmark.name, *(f"{key}_{chosen[key]}" for key in sorted(chosen))]), chosen)
        for chosen in benchmark.parameters
    ]


def command_line(variant: Variant) -> str:
    """The command of a variant with its parameters, before variables are looked up."""
    benchmark = variant.benchmark
    parts: List[str] = []
    try:
        fields = list(string.Formatter().parse(benchmark.cmd))
    except ValueError as error:
        hint = "write {{ and }} for braces"
        raise SettingsError(f"{benchmark.origin}: {benchmark.name}: the cmd is broken: {error}", hint=hint) from error
    for text, name, form, conversion in fields:
        parts.append(text)
        if name is None:
            continue
        if text.endswith("$") and name not in variant.parameters and _NAME.fullmatch(name) and not form:
            parts.append(f"{{{name}}}")  # ${NAME} is a variable
            continue
        if name not in variant.parameters or form or conversion:
            written = f"{{{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}}}"
            hint = near_miss(name, variant.parameters) if variant.parameters else "write {{ and }} for braces"
            raise SettingsError(f"{benchmark.origin}: {benchmark.name}: {written} is no parameter", hint=hint)
        parts.append(variant.parameters[name])
    return "".join(parts).strip()


def command_of(variant: Variant, environ: Mapping[str, str]) -> Command:
    """The words of a variant's command, and the variables that it gets beside those of the environment.

    A variable is looked up within a word: its value is never split, so that a path may have blanks.
    """
    benchmark = variant.benchmark

    def wrong(what: str, hint: str = "") -> SettingsError:
        return SettingsError(f"{benchmark.origin}: {variant.name}: {what}", hint=hint)

    line = command_line(variant)
    try:
        words, quoted = shlex.split(line), shlex.split(line, posix=False)
    except ValueError as error:
        raise wrong(f"the cmd is broken: {error}", "close the quote, or put a backslash before it") from error
    shell = next((word for word in quoted if _SHELL_ONLY.fullmatch(word)), None)
    if shell is not None:
        raise wrong(f"the cmd has {shell}, which only a shell knows", "no shell runs it: write bash -c '...'")
    if words and _ASSIGNMENT.fullmatch(words[0]):
        raise wrong(f"the cmd begins with the variable {words[0].partition('=')[0]}", "write it under env")
    if not benchmark.allow_wandb:
        words = _without_wandb(words)
    if not words:
        raise wrong("the cmd is empty")
    env = {**{name: value for name, value in _LOGGING.items() if name not in environ}, **benchmark.env}
    known = {**environ, **env, "$": "$"}
    missing = [name for word in words for name in _names(word) if name not in known]
    if missing:
        hint = nearest(missing[0], known) or f"export {missing[0]}=..., or write it under env; $$ stands for $"
        raise wrong(f"the cmd needs {', '.join(f'${name}' for name in dict.fromkeys(missing))}, not set here", hint)
    expanded = [_VARIABLE.sub(lambda found: known[_bare(found[1])], word) for word in words]
    return Command((*_program(expanded[0]), *expanded[1:]), env)


def _program(word: str) -> Tuple[str, ...]:
    """The program of a command; ipulaunch is this one, wherever it is installed."""
    return (sys.executable, "-m", "ipulaunch.launcher") if word == "ipulaunch" else (word,)


def _names(word: str) -> List[str]:
    return [_bare(name) for name in _VARIABLE.findall(word)]


def _bare(name: str) -> str:
    return name[1:-1] if name.startswith("{") else name


def _without_wandb(words: Sequence[str]) -> List[str]:
    """The words without options for Weights & Biases and their values: a benchmark reports to nobody unasked."""
    kept: List[str] = []
    drops_value = False
    if any(word.startswith("--wandb") for word in words):
        for word in words:
            if word.startswith("-") and "wandb" in word:
                drops_value = True
            elif word.startswith("-") or not drops_value:
                kept.append(word)
                drops_value = False
            else:
                drops_value = False
        return kept
    return list(words)


def mpirun_processes(line: str) -> int:
    """The processes that a command starts with `mpirun ... --np N`: each of them prints its own throughput."""
    found = re.search(r"\bmpirun\b.+--np[ =](\d+)(?=\s)", line)
    return int(found[1]) if found else 1


def timeout_of(benchmark: Benchmark, timeout_s: float) -> float:
    """The seconds that a variant may take: the smaller of the entry's limit and the given one."""
    return min(timeout_s, benchmark.timeout_s or timeout_s)


def directory_names(variants: Sequence[Variant]) -> Dict[str, str]:
    """A name for the directory of each variant, which any file system takes and no other variant has."""
    names: Dict[str, str] = {}
    taken: Set[str] = set()
    for variant in variants:
        plain = re.sub(r"[^\w.,=+-]", "_", variant.name, flags=re.ASCII)[:_LONGEST_NAME].lstrip(".") or "variant"
        name = plain if plain not in taken else f"{plain}-{len(taken) + 1}"
        taken.update((plain, name))
        names[variant.name] = name
    return names


def working_directory(benchmark: Benchmark, logs: Path) -> Path:
    """Where a command runs: beside its specification, or where its logs are if that ships with ipulaunch."""
    return logs if benchmark.directory is None else benchmark.directory
