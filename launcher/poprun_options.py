"""The options of poprun, SDK by SDK, and a strict reader of poprun command lines."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import UsageError, near_miss

Sdk = Tuple[int, int]

NEWEST: Sdk = (3, 4)
OLDEST: Sdk = (2, 0)


class Option(NamedTuple):
    """One option of poprun: what follows it, the SDK that it was first seen in, and the last one that has it."""

    name: str
    kind: str  # "int", "bool", "text" or "flag" (nothing follows)
    first: Sdk = OLDEST
    last: Sdk = NEWEST
    repeatable: bool = False
    deprecated: Optional[Sdk] = None  # from this SDK on another one is meant to be used


# The first SDK is that of the first published use, where it is not OLDEST: an option can be older than that.
OPTIONS = (
    Option("help", "flag"),
    Option("version", "flag"),
    Option("version-format", "text"),
    Option("import-config", "text"),
    Option("export-config", "text"),
    Option("overwrite-config", "bool"),
    Option("host", "text"),
    Option("num-replicas", "int"),
    Option("ipus-per-replica", "int"),
    Option("num-instances", "int"),
    Option("num-ilds", "int"),
    Option("vipu-server-host", "text"),
    Option("vipu-server-port", "int"),
    Option("vipu-server-timeout", "int"),
    Option("vipu-partition", "text"),
    Option("vipu-partition-attempts", "int"),
    Option("update-partition", "bool"),
    Option("reset-partition", "bool"),
    Option("remove-partition", "bool"),
    Option("vipu-cluster", "text", deprecated=(3, 2)),
    Option("vipu-allocation", "text", first=(3, 2)),
    Option("sync-type", "text", first=(2, 6)),
    Option("executable-cache-path", "text", first=(2, 1)),
    Option("mpi-global-args", "text", repeatable=True),
    Option("mpi-local-args", "text", repeatable=True),
    Option("instance-mpi-local-args", "text", first=(2, 6), repeatable=True),
    Option("numa-aware", "bool", last=(3, 0)),
    Option("process-placement", "text", first=(3, 1)),
    Option("allow-run-as-root", "bool", first=(3, 3)),
    Option("host-subnet", "text", first=(2, 6)),
    Option("synchronise-python-venv", "text", first=(2, 6)),
    Option("synchronise-poplar-sdk", "text", first=(2, 6)),
    Option("distribute-ssh-key", "text", first=(2, 6)),
    Option("print-topology", "bool"),
    Option("only-output-from-instance", "int"),
    Option("offline-mode", "bool"),
    Option("verbose", "flag"),
    Option("vv", "flag"),
)
_MOST_DIGITS = 9
_SHORT = {"-H": "host", "-v": "verbose", "-vv": "vv"}
_BOOLS = {"yes", "no", "1", "0", "true", "false", "on", "off"}


def parse_sdk(text: str) -> Sdk:
    """The SDK in `3.3` or `3.3.0`."""
    parts = text.split(".")
    if len(parts) in (2, 3) and all(part.isdecimal() for part in parts):
        sdk = (int(parts[0]), int(parts[1]))
        if OLDEST <= sdk <= NEWEST:
            return sdk
    newest, oldest = ".".join(map(str, NEWEST)), ".".join(map(str, OLDEST))
    raise UsageError(f"{text!r} is not an SDK version that has poprun", hint=f"{oldest} to {newest}")


def options_of(sdk: Sdk) -> Dict[str, Option]:
    """The options that the poprun of an SDK has, or may have."""
    return {option.name: option for option in OPTIONS if sdk <= option.last}


def require(name: str, sdk: Sdk) -> None:
    """Refuse an option that the poprun of this SDK is not known to have; we write no other."""
    option = next(option for option in OPTIONS if option.name == name)
    if not option.first <= sdk <= option.last:
        since = f"SDK {_text(option.first)} to {_text(option.last)} have it"
        raise UsageError(f"the poprun of SDK {_text(sdk)} has no --{name}", hint=since + _instead(name))


def deprecation(name: str, sdk: Sdk) -> str:
    """What to tell of an option that the poprun of this SDK has and advises against; nothing of others."""
    option = next(option for option in OPTIONS if option.name == name)
    if option.deprecated is None or sdk < option.deprecated:
        return ""
    return f"--{name} is deprecated from SDK {_text(option.deprecated)} on{_instead(name)}"


def _doubt(option: Option, sdk: Sdk) -> str:
    """What to tell of an option that was not seen in this SDK, only in later ones; nothing of others."""
    if option.first <= sdk:
        return ""
    seen = f"--{option.name} was first seen in SDK {_text(option.first)}"
    return f"{seen}; the poprun of SDK {_text(sdk)} may not have it{_instead(option.name)}"


def _instead(name: str) -> str:
    pairs = {"vipu-cluster": "vipu-allocation", "numa-aware": "process-placement"}
    both = {**pairs, **{new: old for old, new in pairs.items()}}
    if name == "allow-run-as-root":
        return "; use --mpi-global-args=--allow-run-as-root"
    return f"; use --{both[name]}" if name in both else ""


def _text(sdk: Sdk) -> str:
    return f"{sdk[0]}.{sdk[1]}"


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
        option, said = _find(name, value, known, sdk)
        warnings += [text for text in (said, deprecation(option.name, sdk), _doubt(option, sdk)) if text]
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
    if any(option.name == bare for option in OPTIONS):
        require(bare, sdk)
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
    if option.kind == "bool" and value.lower() not in _BOOLS:
        raise UsageError(f"--{option.name} is {value!r}, expected yes or no")
