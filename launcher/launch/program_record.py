"""program.json: the program of a run, so that `ipulaunch resume` calls it again."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, NamedTuple, Tuple

from ipulaunch.configs.errors import DataError, IpulaunchError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import BACKENDS
from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.configs.runs.untrusted import open_regular, parse_json, read_text
from ipulaunch.configs.settings.schema import build, plain
from ipulaunch.configs.settings.sections import Survival
from ipulaunch.configs.settings.tree import Given, Tree
from ipulaunch.launcher.launch.program import Program
from ipulaunch.launcher.launch.redaction import redact

_FORMAT = 1


class ProgramRecord(NamedTuple):
    """A program, and what it was started on."""

    program: Program
    backend: str  # one of BACKENDS
    is_whole: bool = True  # False where a secret among the words is masked


def to_json(program: Program, backend: str) -> str:
    """The program as text, with secrets among its words masked."""
    words = redact(program.words, secret_values(os.environ))
    data = {"backend": backend, "is_whole": words == list(program.words), "program": words}
    return json.dumps({"format": _FORMAT, **data, "survival": plain(program.survival)}, indent=1) + "\n"


def from_json(text: str, name: str) -> ProgramRecord:
    """The program in a text that anybody may have written; raises DataError for everything that is wrong with it."""
    try:
        data: Dict[str, Any] = parse_json(text)
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT}")
        if data["backend"] not in BACKENDS or not isinstance(data["is_whole"], bool):
            raise ValueError("its backend or is_whole is wrong")
        survival: Tree = {key: Given(value, name) for key, value in data["survival"].items()}
        program = Program(_words(data["program"]), build(Survival, survival, {}))
        return ProgramRecord(program, data["backend"], data["is_whole"])
    except (ValueError, TypeError, KeyError, AttributeError, IpulaunchError) as error:
        raise DataError(f"{name} does not say which program to call: {error}", hint="start it again") from error


def read(run: RunDirectory) -> ProgramRecord:
    """The program of a run, to show what is known of it."""
    return from_json(read_text(run.program), str(run.program))


def read_to_call(run: RunDirectory) -> ProgramRecord:
    """The program of a run, to call it again: only where it is ours, and whole."""
    try:
        with open_regular(run.program) as file:
            is_ours = os.fstat(file.fileno()).st_uid == os.getuid()
        record = read(run)
    except OSError as error:
        raise DataError(f"{run.program} cannot be read: {error.strerror}") from error
    again = "start it again, with ipulaunch run"
    if not is_ours:
        raise UsageError(f"{run.program} belongs to somebody else, and says which program to call", hint=again)
    if not record.is_whole:
        raise UsageError(f"{run.path}: a secret among the words of its program is not kept", hint=again)
    return record


def _words(value: Any) -> Tuple[str, ...]:
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(word, str) and "\0" not in word for word in value)
    ):
        raise ValueError("its program is not a list of words")
    return tuple(value)
