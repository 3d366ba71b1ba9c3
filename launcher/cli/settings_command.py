"""Settings on a command line: the options that they become, and the commands that take them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

import click

from ipulaunch.configs.settings.kinds import Kind
from ipulaunch.configs.settings.schema import Leaf, leaves, plain_value, value_of
from ipulaunch.configs.settings.workloads import SUMMARIES, resolve, schema_of
from ipulaunch.configs.text import YES_NO
from ipulaunch.launcher.cli.options import offers

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_METAVARS = {int: "INTEGER", float: "FLOAT", str: "TEXT", Fraction: "NUMBER"}
_YES_NO = {**YES_NO, "t": True, "y": True, "f": False, "n": False}  # click takes the letters for its own switches
EMPTY = "[]"  # a list without values


class SettingType(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A value as it is written: the settings check it, in their words and with their exit code."""

    name = "setting"

    def __init__(self, kind: Kind, choices: Tuple[str, ...]) -> None:
        self.number, self.choices = kind.item if kind.item in (int, float) else None, choices

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> Any:
        """A number where one is meant and written, so that messages show it as one."""
        try:
            return self.number(value) if self.number else value
        except ValueError:
            return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> List[CompletionItem]:
        from click.shell_completion import CompletionItem  # only a shell that completes a word needs it

        return [CompletionItem(choice) for choice in self.choices if choice.lower().startswith(incomplete.lower())]


def setting_option(leaf: Leaf, *also: str) -> Callable[[Any], Any]:
    """The click option of a setting, under all of its names."""
    kind = leaf.kind
    kwargs: Dict[str, Any] = {"default": None, "help": leaf.about.help[:1].upper() + leaf.about.help[1:] + "."}
    if kind.is_list:
        kwargs.update(multiple=True, metavar="NAME" if kind.item is str else "NUMBER")
        if leaf.key == "pipeline.splits":
            kwargs["shell_complete"] = offers("layers")
    elif kind.item is not bool:
        choices = leaf.about.choices
        metavar = f"[{'|'.join(choices)}]" if choices else _METAVARS[kind.item]
        kwargs.update(type=SettingType(kind, choices), metavar=metavar)
        if leaf.about.is_path:
            kwargs["metavar"] = "DIR"
    return click.option(leaf.about.flag, *leaf.about.also, *also, leaf.key.replace(".", "__"), **kwargs)


class SettingsCommand(click.Command):
    """A command that is also written as Graphcore's applications are.

    Switches take a word (--validation False), lists take several (--pipeline-splits a b), and the beginning of a name
    is enough where no other name begins so.
    """

    def parse_args(self, ctx: click.Context, args: List[str]) -> List[str]:
        whole = args if ctx.resilient_parsing else self._all_whole(args)  # a shell completes them itself
        words = _with_lists(self._lists(), whole)
        try:
            return super().parse_args(ctx, _without_words(_switches(self), words))
        except click.NoSuchOption as error:
            raise self._explained(error) from error

    def _lists(self) -> Set[str]:
        """The options of settings that are lists."""
        return {
            name for option in _options(self) if option.multiple and "__" in str(option.name) for name in option.opts
        }

    def _all_whole(self, args: List[str]) -> List[str]:
        """The words of the command line with whole names; a value is left as it is, also one that begins with --."""
        takes_value = _with_values(self)
        words: List[str] = []
        for word in args:
            is_value = bool(words) and words[-1] in takes_value
            words.append(word if is_value else self._whole(word))
        return words

    def _whole(self, word: str) -> str:
        """A word of the command line with the whole name of the option that it begins."""
        name, equals, value = word.partition("=")
        by_name = {each: option for option in _options(self) for each in (*option.opts, *option.secondary_opts)}
        if name in by_name or not name.startswith("--") or name in ("--", "--help"):
            return word
        meant = [each for each in by_name if each.startswith(name)]
        if len({id(by_name[each]) for each in meant}) > 1:
            raise click.UsageError(f"{name} could be {', '.join(sorted(meant))}.")
        return f"{meant[0]}{equals}{value}" if meant else word

    def _explained(self, error: click.NoSuchOption) -> click.UsageError:
        """What to say of an option that other workloads have."""
        name = error.option_name
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


class ProgramCommand(click.Command):
    """A command in front of a program, whose switches take a word as poprun's do (--reset-partition no)."""

    def parse_args(self, ctx: click.Context, args: List[str]) -> List[str]:
        end = self._end_of_options(args)
        return super().parse_args(ctx, [*_without_words(_switches(self), args[:end]), *args[end:]])

    def _end_of_options(self, args: List[str]) -> int:
        """Where the program begins, or the -- in front of it."""
        takes_value, switches = _with_values(self), _switches(self)
        before = ""
        for position, word in enumerate(args):
            is_value = before in takes_value or (before in switches and word.lower() in _YES_NO)
            if not is_value and (word == "--" or not word.startswith("-")):
                return position
            before = "" if is_value else word
        return len(args)


def _options(command: click.Command) -> List[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option)]


def _switches(command: click.Command) -> Dict[str, str]:
    """The switches of a command that take a word, each with what stands for its opposite."""
    pairs = (pair for option in _options(command) if option.is_flag for pair in zip(option.opts, option.secondary_opts))
    return dict(pair[::-1] if pair[0].startswith("--no-") else pair for pair in pairs)


def _with_values(command: click.Command) -> Set[str]:
    """The options of a command that are followed by a value."""
    return {name for option in _options(command) if not (option.is_flag or option.count) for name in option.opts}


def flags_of(workload: str) -> Set[str]:
    """The options that settings of a workload have."""
    declared = (flag for leaf in leaves(schema_of(workload)) for flag in (leaf.about.flag, *leaf.about.also))
    return {name for flag in declared for name in flag.split("/")}


def _without_words(switches: Dict[str, str], args: List[str]) -> List[str]:
    """The words of a command line, in which switches stand alone."""
    words: List[str] = []
    for word in args:
        name, equals, value = word.partition("=")
        if words and words[-1] in switches and word.lower() in _YES_NO:
            name, value = words.pop(), word
        elif not (equals and name in switches and value.lower() in _YES_NO):
            words.append(word)
            continue
        words.append(name if _YES_NO[value.lower()] else switches[name])
    return words


def _with_lists(lists: Set[str], args: List[str]) -> List[str]:
    """The words of a command line, in which each value of a list has its option before it; `[]` is the empty list."""
    words: List[str] = []
    current, is_empty = "", False
    for word in [*args, "--"]:
        if current and not word.startswith("-"):
            words += [current, word]
            is_empty = False
            continue
        words += [current, EMPTY] if current and is_empty else []
        current, is_empty = (word, True) if word in lists else ("", False)
        words += [] if current else [word]
    return words[:-1]


def _shown(value: object) -> str:
    """A value that is in force without the option, if there is one to speak of."""
    if value is None or value is False or value == ():
        return ""
    plain = plain_value(value)
    return f"  [default: {'yes' if plain is True else plain}]"
