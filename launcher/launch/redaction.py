"""Masking secrets, which it knows by their names, in commands that ipulaunch prints, records and puts into scripts."""

from __future__ import annotations

import os
import re
import shlex
from typing import Collection, List, Sequence

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.secrets import MASK, is_secret, masked, secret_values
from ipulaunch.launcher.engines.command import Command, shell_words

# A name and what it is given, anywhere in a text: NAME=value, --name=value; and --name value.
_GIVEN = r"(?<![\w.-])(-{0,2}[\w.-]+)=[\"']?([^\s\"',;]+)"
_IN_ADDRESS = r"(://)[^\s/@]+:[^\s/@]+@"
_OPTION = r"(?<![\w.-])(--[\w.-]+)\s+[\"']?([^\s\"'-][^\s\"']*)"


def redact(words: Sequence[str], values: Collection[str] = ()) -> List[str]:
    """The words of a command, with the values of `NAME=value`, `--name=value` and `--name value` masked.

    So are passwords in addresses, and these values wherever they stand.
    """
    return [_without_password(masked(word, values)) for word in _without_named(words)]


def redacted_text(text: str, values: Collection[str]) -> str:
    """A text for people with these values masked, and word by word what a command would not show either."""
    return re.sub(r"\S*[=/]\S*", lambda word: redact([word.group()])[0], masked(text, values))


def redacted(command: Command, values: Collection[str]) -> Command:
    """A command as it may be shown or written down: its words and the values of its variables redacted."""
    env = {name: redact([f"{name}={value}"], values)[0].partition("=")[2] for name, value in command.env.items()}
    return Command(tuple(redact(command.argv, values)), env)


def _without_password(word: str) -> str:
    return re.sub(_IN_ADDRESS, rf"\1{MASK}@", word) if "://" in word else word


def _without_named(words: Sequence[str]) -> List[str]:
    shown: List[str] = []
    mask_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        if mask_next and not word.startswith("-"):
            shown.append(MASK)
        elif equals and is_secret(name) and re.fullmatch(r"-{0,2}[\w.-]+", name):
            shown.append(f"{name}={MASK}")
        else:
            shown.append(_redact_inside(word))
        mask_next = not equals and word.startswith("--") and is_secret(word)
    return shown


def _redact_inside(word: str) -> str:
    """A word that holds words itself: options for mpirun, or a program for a shell."""
    try:
        words = shell_words(word) if any(map(str.isspace, word)) else [word]
    except ValueError:
        return MASK if is_secret(word) else word
    if len(words) < 2:
        return word
    shown = _without_named(words)
    return word if shown == words else " ".join(map(shlex.quote, shown))


def refuse_secret(text: str, what: str) -> None:
    """Refuse a text that shows a secret; one that a shell is to look up, as in `TOKEN=$(cat file)`, is not shown."""
    secrets = {name: secret_values({name: value}) for name, value in os.environ.items() if is_secret(name)}
    shown = next((name for name, values in sorted(secrets.items()) if masked(text, values) != text), None)
    if shown is not None:
        raise UsageError(
            f"{what} would show the value of {shown}, a secret of your environment",
            hint=f"let the shell look it up there (${shown}) and forward it with --env {shown}, or unset it",
        )
    for name, value in (*re.findall(_GIVEN, text), *re.findall(_OPTION, text)):
        if is_secret(name) and not value.startswith("$"):
            bare = name.lstrip("-")
            raise UsageError(
                f"{what} would show the secret {bare} in a script or in the list of processes",
                hint="set it in your environment and forward it with --env NAME",
            )
