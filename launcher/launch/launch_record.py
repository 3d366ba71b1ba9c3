"""asked.json: how a run was launched, so that `ipulaunch resume` launches it in the same way."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple

from ipulaunch.configs.errors import DataError, IpulaunchError
from ipulaunch.configs.messages import Message, note
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.launcher.engines.launch_options import FLAGS, LaunchOptions
from ipulaunch.launcher.engines.poprun_table import OFFERED, Option, is_given, parse_sdk, poprun_below
from ipulaunch.launcher.engines.registry import ENGINES, is_default
from ipulaunch.launcher.launch.redaction import redact

_FORMAT = 1
_LONGEST = 1 << 17  # characters; no argument or variable of a process is longer
_NOT_HERE = ("hosts", "hostfile")  # the plan has them
_NAMES = {"ilds": "num_ilds", "sdk": "sdk_version"}  # of options, where they are others


class LaunchRecord(NamedTuple):
    """The options that a run was launched with, and what the user should know about them."""

    options: LaunchOptions
    messages: Tuple[Message, ...] = ()


def to_json(options: LaunchOptions) -> str:
    """The options as text; a variable whose value would show a secret appears with its name alone."""
    hidden = secret_values(os.environ)
    env = []
    for text in options.env:
        name, _, value = text.partition("=")
        env.append(text if redact([value], hidden) == [value] else name)
    sdk = None if options.sdk is None else ".".join(map(str, options.sdk))
    poprun = {name: value for name, value in options.poprun.items() if is_given(value)}
    # The backend of the job tells its default engine.
    engine = options.engine if options.engine and not is_default(options.engine) else None
    values = {**options._asdict(), "env": env, "sdk": sdk, "poprun": poprun, "engine": engine}
    given = {name: value for name, value in values.items() if name not in _NOT_HERE and _was_given(name, value)}
    return json.dumps({"format": _FORMAT, **given}, indent=1) + "\n"


def from_json(text: str, name: str) -> LaunchOptions:
    """The options in a text that anybody may have written; raises DataError for everything that is wrong with it."""
    try:
        data: Dict[str, Any] = parse_json(text)
        if data.pop("format") != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT}")
        return LaunchOptions(**_checked(data, _FIELDS))
    except (ValueError, TypeError, KeyError, AttributeError, IpulaunchError) as error:
        raise DataError(
            f"{name} does not say how a run was launched: {error}",
            hint="remove it, and give the options of the launch again",
        ) from error


def read(run: RunDirectory) -> LaunchRecord:
    """How a run was launched.

    The record names programs and their options, so ipulaunch trusts only a record of the same user.
    """
    try:
        if run.launch_options.stat().st_uid != os.getuid():
            text = f"{run.launch_options} is another user's: options of the launch are those given now"
            return LaunchRecord(LaunchOptions(), (note(text),))
        options = from_json(read_text(run.launch_options), str(run.launch_options))
    except FileNotFoundError:
        text = "how it was launched is not recorded: options such as --env and --vipu-partition are those given now"
        return LaunchRecord(LaunchOptions(), (note(text),))
    except OSError as error:
        raise DataError(f"{run.launch_options} cannot be read: {error.strerror}") from error
    given = {**options._asdict(), **options.poprun, "poprun": None}
    flags = [_flag(name, value) for name, value in given.items() if _was_given(name, value)]
    return LaunchRecord(options, (note(f"taken from the launch of the run: {', '.join(flags)}"),) if flags else ())


def laid_over(given: LaunchOptions, before: LaunchOptions) -> LaunchOptions:
    """The options given now, and those of before where none is given; variables one by one."""
    over = {name: value for name, value in given._asdict().items() if _was_given(name, value)}
    named = {text.partition("=")[0] for text in given.env}
    kept = tuple(text for text in before.env if text.partition("=")[0] not in named)
    poprun = {name: value for name, value in given.poprun.items() if is_given(value)}
    return before._replace(
        **{**over, "env": (*kept, *given.env), "poprun": {**poprun_below(poprun, before.poprun), **poprun}}
    )


def _flag(name: str, value: Any) -> str:
    return f"--{'no-' if value is False else ''}{_NAMES.get(name, name).replace('_', '-')}"


def _was_given(name: str, value: Any) -> bool:
    """Whether the user gave an option: False means "not given" for options that can only be switched on."""
    return is_given(value) and not (value is False and name in FLAGS)


def _checked(data: Any, checks: Mapping[str, Callable[[Any], Any]]) -> Dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError("it is not a table")
    unknown = sorted(set(data) - set(checks))
    if unknown:
        raise ValueError(f"it has {unknown[0]!r}")
    found = {}
    for name, value in data.items():
        try:
            found[name] = checks[name](value)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name}: {error}") from None
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > _LONGEST or "\0" in value:
        raise ValueError("it is not a text")
    return value


def _engine(value: Any) -> str:
    known = [name for name in ENGINES if not is_default(name)]
    if value not in known:
        raise ValueError(f"it is not {' or '.join(known)}")
    return str(value)


def _texts(value: Any) -> Any:
    if not isinstance(value, list):
        raise ValueError("it is not a list")
    return tuple(map(_text, value))


def _number(value: Any, least: int) -> int:
    if type(value) is not int or not least <= value < 1 << 31:
        raise ValueError(f"it is not a number from {least} on")
    return value


def _count(value: Any) -> int:
    return _number(value, 1)


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("it is neither true nor false")
    return value


def _check_of(option: Option) -> Callable[[Any], Any]:
    """What checks the value of one of poprun's options."""
    if option.repeatable:
        return _texts
    if option.kind == "int":
        return lambda value: _number(value, option.least)
    return _text if option.kind == "text" else _truth


_POPRUN: Dict[str, Callable[[Any], Any]] = {key: _check_of(option) for key, option in OFFERED.items()}
_FIELDS: Dict[str, Callable[[Any], Any]] = {
    "pod": _text,
    "ipus": _count,
    "host_layout": _text,
    "ilds": _count,
    "oversubscribe": _truth,
    "engine": _engine,
    "python": _text,
    "openmpi_version": _count,
    "sdk": lambda value: parse_sdk(_text(value)),
    "env": _texts,
    "tag_output": _truth,
    "mpi_global_args": _texts,
    "mpi_local_args": _texts,
    "allow_run_as_root": _truth,
    "poprun": lambda value: _checked(value, _POPRUN),
    "poprun_args": _texts,
}
