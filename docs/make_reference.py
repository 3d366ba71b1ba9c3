"""`make reference`: writes docs/reference.md from the commands. Every version of click gives the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterator, Sequence, Tuple

import click

from ipulaunch.configs.settings.schema import plain_value, value_of
from ipulaunch.configs.settings.workloads import SUMMARIES, resolve
from ipulaunch.launcher.cli.main import cli

PATH = Path(__file__).with_name("reference.md")

_TOP = """# Reference of commands and options

`make reference` writes this page from the commands themselves. `ipulaunch COMMAND --help` shows the same in a terminal.
[Training](training.md), [Data sets](data.md) and [Clusters](clusters.md) explain how the options work together.
"""
_ABOUT_SETTINGS = """A default that differs between workloads names them. A rehearsal uses smaller values: they are
in the section `rehearsal:` of the files in [configs/workloads/](../configs/workloads/). Settings without an option are
set by name, such as `--set device.io_tiles=32`.
"""
_OF_ALL, _OF_SOME, _SETTINGS = "Options of all workloads", "Options of some workloads", "Settings of the workloads"
_WORKLOAD = "WORKLOAD"

Row = Tuple[str, ...]
Options = Dict[str, click.Option]


def reference() -> str:
    """The whole page."""
    commands = dict(_callable((), cli, click.Context(cli, info_name="ipulaunch")))
    workloads = {name: _options(commands[name]) for name in SUMMARIES}
    merged = {name: _merged(name, workloads) for options in workloads.values() for name in options}
    of_all = [name for name in merged if not _group(name) and all(name in options for options in workloads.values())]
    of_some = [name for name in merged if not _group(name) and name not in of_all]
    others = dict(_others(commands))

    parts = [_TOP, _heading("Commands"), _table(("command", "what it does"), _summaries(others))]
    for heading, names in ((_OF_ALL, of_all), (_OF_SOME, of_some)):
        parts += [_heading(heading), _table(("option", "meaning"), [merged[name] for name in names])]
    parts += [_heading(_SETTINGS), _ABOUT_SETTINGS]
    for group in filter(None, dict.fromkeys(map(_group, merged))):
        rows = [
            (merged[name][0], f"`{_key(name)}`", merged[name][1], _default(name, workloads))
            for name in merged
            if _group(name) == group
        ]
        parts += [f"### {group.capitalize()}\n", _table(("option", "setting", "meaning", "default"), rows)]
    shared = {name: next(iter(workloads.values()))[name] for name in of_all}
    for title, command in others.items():
        of_workload = workloads[str(command.name)] if _WORKLOAD in title else {}
        parts += [_heading(f"ipulaunch {title}"), _section(title, command, shared, of_workload)]
    return "\n".join(parts)


def _callable(words: Row, command: click.Command, ctx: click.Context) -> Iterator[Tuple[str, click.Command]]:
    """Every command that can be called, in the order of the help."""
    if words and (not isinstance(command, click.Group) or command.invoke_without_command):
        yield " ".join(words), command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None
            yield from _callable((*words, name), child, click.Context(child, parent=ctx, info_name=name))


def _others(commands: Dict[str, click.Command]) -> Iterator[Tuple[str, click.Command]]:
    """The commands that are not a workload. Where each workload has one, that of the first stands for all."""
    for words, command in commands.items():
        *before, last = words.split()
        if before[:1] == ["data"] or last not in SUMMARIES:
            yield words, command
        elif before and last == next(iter(SUMMARIES)):
            yield " ".join((*before, _WORKLOAD)), command


def _summaries(others: Dict[str, click.Command]) -> Sequence[Row]:
    rows = [(_link(f"`ipulaunch {name}`", _OF_ALL), about) for name, about in SUMMARIES.items()]
    for title, command in others.items():
        about = (command.help or "").strip().split("\n")[0]
        about = about.replace(str(command.name), "a workload") if _WORKLOAD in title else about
        rows.append((_link(f"`ipulaunch {title}`", f"ipulaunch {title}"), about))
    return rows


def _section(title: str, command: click.Command, shared: Options, of_workload: Options) -> str:
    """A command that is not a workload: its usage, its own options, and what it takes of those of the workloads."""
    arguments = [each.metavar or str(each.name).upper() for each in command.params if isinstance(each, click.Argument)]
    text = f"    ipulaunch {' '.join((title, '[OPTIONS]', *arguments))}\n"
    known = [_cells(option) for option in ({**shared, **of_workload}).values()]
    own = [_cells(option) for option in _options(command).values() if _cells(option) not in known]
    if own:
        text += "\n" + _table(("option", "meaning"), own)
    has, lacks = [], []
    for name, option in shared.items():
        if name not in _options(command):
            lacks.append(f"`{option.opts[0]}`")
        elif _cells(option) == _cells(_options(command)[name]):
            has.append(f"`{option.opts[0]}`")
    if has:
        others = f"all others but {_listed(lacks)}" if lacks else "all others"
        which = _listed(has) if len(has) <= len(lacks) else others
        text += f"\nOf the {_link(_OF_ALL.lower(), _OF_ALL)} it takes {which}."
        settings = f" It takes the other options and all {_link('settings', _SETTINGS)} of its workload."
        text += (settings if of_workload else "") + "\n"
    return text


def _merged(name: str, workloads: Dict[str, Options]) -> Row:
    """The cells of an option of the workloads; a name, a value or a meaning that only some have says whose it is."""
    found = {who: options[name] for who, options in workloads.items() if name in options}
    spelt = [(who, flag) for who, option in found.items() for flag in (*option.opts, *option.secondary_opts)]
    flags = []
    for flag in dict.fromkeys(flag for _, flag in spelt):
        owners = [who for who, each in spelt if each == flag]
        flags.append(f"`{flag}`" + ("" if len(owners) == len(found) else f" ({', '.join(owners)})"))
    value, meaning = (_by_workload({who: part(each) for who, each in found.items()}) for part in (_value, _meaning))
    only = "" if len(found) == len(workloads) else f" Only {_listed(list(found))}."
    return _joined(", ".join(flags), value), meaning + only


def _by_workload(texts: Dict[str, str]) -> str:
    """One text where all workloads agree, else each text with its workloads."""
    different = list(dict.fromkeys(texts.values()))
    if len(different) == 1:
        return different[0]
    return "<br>".join(f"{', '.join(who for who in texts if texts[who] == text)}: {text}" for text in different)


def _default(name: str, workloads: Dict[str, Options]) -> str:
    found = [who for who, options in workloads.items() if name in options]
    return _by_workload({who: _shown(value_of(resolve(who, rehearsal=False).settings, _key(name))) for who in found})


def _shown(value: object) -> str:
    plain = plain_value(value)
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    return "none" if plain in (None, [], ()) else f"`{plain}`"


def _options(command: click.Command) -> Options:
    return {str(param.name): param for param in command.params if isinstance(param, click.Option)}


def _key(name: str) -> str:
    """The key of the setting that an option sets."""
    return name.replace("__", ".")


def _group(name: str) -> str:
    """The section of the settings that an option belongs to, or nothing if it is not a setting."""
    return name.partition("__")[0] if "__" in name else ""


def _cells(option: click.Option) -> Row:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    return _joined(flags, _value(option)), _meaning(option)


def _value(option: click.Option) -> str:
    """What stands after the name of an option, if anything does."""
    if option.is_flag or option.count:
        return ""
    kind = "INTEGER" if isinstance(option.type, click.IntRange) else option.type.name.split()[0].upper()
    value = option.metavar or "|".join(getattr(option.type, "choices", (kind,)))
    return f"`{value[1:-1] if value.startswith('[') else value}`"


def _meaning(option: click.Option) -> str:
    text = (option.help or "").strip()
    least, most = getattr(option.type, "min", None), getattr(option.type, "max", None)
    if least is not None and not option.count:
        text += f" At least {least}." if most is None else f" From {least} to {most}."
    if option.show_default:
        text += f" Default: {option.default}."
    return text + (" Required." if option.required else "")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _joined(flags: str, value: str) -> str:
    return f"{flags} {value}" if value else flags


def _heading(text: str) -> str:
    return f"## {text}\n"


def _link(text: str, heading: str) -> str:
    return f"[{text}](#{heading.lower().replace(' ', '-')})"


def _table(head: Row, rows: Sequence[Row]) -> str:
    lines = [head, tuple("---" for _ in head), *(tuple(cell.replace("|", r"\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PATH.write_text(reference(), encoding="utf-8")
