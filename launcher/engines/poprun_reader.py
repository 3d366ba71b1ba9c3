"""A strict reader of poprun command lines."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import UsageError, near_miss
from ipulaunch.configs.text import YES_NO
from ipulaunch.launcher.engines.poprun_table import NEWEST, OPTION, OPTIONS, Option, Sdk, deprecation, doubt, require

_MOST_DIGITS = 9
_SHORT = {"-H": "host", "-v": "verbose", "-vv": "vv"}


def options_of(sdk: Sdk) -> Dict[str, Option]:
    """What a poprun of this SDK takes, and what later ones do: an option can be older than its first published use."""
    return {option.name: option for option in OPTIONS if sdk <= option.last}


class Line(NamedTuple):
    """A poprun command line, taken apart."""

    options: Dict[str, List[str]]
    program: Tuple[str, ...]
    warnings: Tuple[str, ...]

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        return default if text is None else int(text)

    def text(self, name: str) -> Optional[str]:
        """The value as it is written; one that only a shell knows is refused."""
        text = self.options[name][-1] if name in self.options else None
        if text is not None and "$" in text:
            raise UsageError(f"--{name} is {text}, whose value is not known here", hint="write the value itself")
        return text


def read_line(argv: Sequence[str], sdk: Sdk = NEWEST) -> Line:
    """Take a command line apart; whatever poprun would not understand is refused with the near miss."""
    words = list(argv)
    if not words or words[0].rsplit("/", 1)[-1] != "poprun":
        raise UsageError("this is not a poprun command line", hint="it starts with the word poprun")
    words.pop(0)
    known, options, warnings = options_of(sdk), {}, []  # type: Tuple[Dict[str, Option], Dict[str, List[str]], List[str]]
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, equals, value = word.partition("=")
        option, said = _find(name, value or (words[0] if words else ""), known, sdk)
        if option.kind == "flag":
            if equals:
                raise UsageError(f"--{option.name} takes no value, and {value!r} is given", hint=f"write {name}")
        elif not equals:
            if not words:
                raise UsageError(f"--{option.name} is the last word; its value is missing")
            value = words.pop(0)
            if value.startswith("--") and option.kind == "text" and not option.repeatable:
                hint = "is the variable that was to stand here set?"
                raise UsageError(f"--{option.name} has no value: {value} follows it", hint=hint)
        _check_value(option, value)
        warnings += [text for text in (said, deprecation(option.name, sdk), doubt(option.name, sdk, value)) if text]
        given = options.setdefault(option.name, [])
        if given and not option.repeatable and option.kind != "flag":
            raise UsageError(
                f"--{option.name} is given twice: {given[0]!r} and {value!r}",
                hint="one of the two was meant for another option",
            )
        given.append(value)
    if not words and not {"help", "version"} & set(options):
        hint = "is a backslash missing at the end of a line?"
        raise UsageError("the poprun line has no program to run", hint=hint)
    if not options:
        warnings.append("poprun without options runs one instance of one replica; is a backslash missing?")
    return Line(options, tuple(words), tuple(warnings))


def _find(name: str, value: str, known: Dict[str, Option], sdk: Sdk) -> Tuple[Option, str]:
    if name in _SHORT:
        return known[_SHORT[name]], ""
    bare = name.lstrip("-")
    if bare in known and name.startswith("--"):
        return known[bare], ""
    longer = [option for option in known if option.startswith(bare)] if len(bare) > 2 else []
    if len(longer) == 1 and name.startswith("--"):
        return known[longer[0]], f"{name} is short for --{longer[0]}; write it out"
    if bare in OPTION:
        require(bare, sdk, value)
    # `--num=ilds` was published: the dash slipped to an equals sign.
    joined = f"{bare}-{value}"
    hint = f"did you mean --{joined}?" if joined in known else near_miss(bare, known).replace("mean ", "mean --")
    raise UsageError(f"poprun has no option {name}", hint=hint)


def _check_value(option: Option, value: str) -> None:
    if option.kind == "flag":
        return
    if not value:
        raise UsageError(f"--{option.name} is empty", hint="is the variable that it came from set?")
    if option.kind == "int" and value.isdecimal() and len(value) > _MOST_DIGITS:
        raise UsageError(f"--{option.name} is {value}, more than any system has")
    if option.kind == "int" and not value.isdecimal() and not value.startswith("$"):
        raise UsageError(f"--{option.name} is {value!r}, expected a whole number")
    if option.kind == "bool" and value.lower() not in YES_NO:
        raise UsageError(f"--{option.name} is {value!r}, expected yes or no")
