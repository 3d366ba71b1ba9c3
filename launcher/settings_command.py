"""Settings on a command line: the options that they become, and the commands that take them."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import click
from click.shell_completion import CompletionItem

from ipulaunch.configs.schema import Leaf, leaves, plain_value, value_of
from ipulaunch.configs.workloads import SUMMARIES, resolve, schema_of

_METAVARS = {"int": "INTEGER", "float": "FLOAT", "str": "TEXT", "Fraction": "NUMBER"}
_NUMBERS: Dict[str, Callable[[str], float]] = {"int": int, "float": float}
_YES = dict.fromkeys(("true", "t", "1", "yes", "y", "on"), True)
_NO = dict.fromkeys(("false", "f", "0", "no", "n", "off"), False)
_YES_NO = {**_YES, **_NO}
_SAME = {"--dataset-path": "--data-dir", "--data-dir": "--dataset-path"}  # in other workloads


class SettingType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A value as it is written: the settings check it, in their words and with their exit code."""

    name = "setting"

    def __init__(self, kind: str, choices: Tuple[str, ...]) -> None:
        self.number, self.choices = _NUMBERS.get(kind), choices

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> Any:
        """A number where one is meant and written, so that messages show it as one."""
        try:
            return self.number(value) if self.number else value
        except ValueError:
            return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> List[CompletionItem]:
        return [CompletionItem(choice) for choice in self.choices if choice.lower().startswith(incomplete.lower())]


def setting_option(leaf: Leaf) -> Callable[[Any], Any]:
    """The click option of a setting."""
    kind: Any = leaf.kind[9:-1] if leaf.kind.startswith("Optional[") else leaf.kind
    kwargs: Dict[str, Any] = {"default": None, "help": leaf.about["help"][:1].upper() + leaf.about["help"][1:] + "."}
    if kind.startswith("Tuple["):
        kwargs.update(multiple=True, metavar="NAME" if kind == "Tuple[str, ...]" else "NUMBER")
    elif kind != "bool":
        choices = leaf.about["choices"]
        metavar = f"[{'|'.join(choices)}]" if choices else _METAVARS[kind]
        kwargs.update(type=SettingType(kind, choices), metavar=metavar)
        if leaf.about["is_path"]:
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
        try:
            return super().parse_args(ctx, words)
        except click.NoSuchOption as error:
            raise self._explained(error) from error

    def _explained(self, error: click.NoSuchOption) -> click.UsageError:
        """What to say of an option that other workloads have."""
        name = error.option_name
        if name in _SAME:
            return click.UsageError(f"No such option {name!r} here: it is {_SAME[name]}.", ctx=error.ctx)
        others = [other for other in SUMMARIES if name in flags_of(other)]
        if not others:
            return error
        return click.UsageError(f"No such option {name!r} here; it is for {', '.join(others)}.", ctx=error.ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, with those of each group of settings under a heading of their own, and the workload's values."""
        sections: Dict[str, List[Tuple[str, str]]] = {}
        settings = resolve(str(self.name), rehearsal=False).settings
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                group, dot, name = str(param.name).partition("__")
                if hasattr(settings, group):
                    record = (record[0], record[1] + _shown(value_of(settings, f"{group}.{name}")))
                sections.setdefault(f"{group.capitalize()} settings" if dot else "Options", []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def flags_of(workload: str) -> Set[str]:
    """The options that settings of a workload have."""
    return {flag for leaf in leaves(schema_of(workload)) for flag in leaf.about.get("flag", "").split("/")}


def _shown(value: object) -> str:
    """A value that is in force without the option, if there is one to speak of."""
    if value is None or value is False or value == ():
        return ""
    plain = plain_value(value)
    return f"  [default: {'yes' if plain is True else plain}]"
