"""A command to run: a list from birth to Popen, text only for eyes and for pasting."""

from __future__ import annotations

import re
import shlex
from typing import List, Mapping, NamedTuple, Sequence, Tuple

from ipulaunch.configs.errors import UsageError


class Command(NamedTuple):
    """Arguments, and the variables to set in front of them."""

    argv: Tuple[str, ...]
    env: Mapping[str, str] = {}

    def shell(self) -> str:
        """The command as a line that a POSIX shell reads back as exactly these words."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " ".join([*variables, *(shlex.quote(word) for word in self.argv)])


def shell_words(text: str) -> List[str]:
    """The words of a text, as a shell would read them, over several lines too; ValueError where a quote is open."""
    # shlex makes a word of the backslash at the end of a line, where a shell joins the lines.
    return shlex.split(re.sub(r"(\\[^\r\n])|\\\r?\n", r"\1", text))


def words_of(name: str, texts: Sequence[str]) -> List[str]:
    """The words of arguments that were given as texts, as a shell would read them."""
    try:
        return [word for text in texts for word in shell_words(text)]
    except ValueError as error:
        hint = "close it, or put a backslash before it"
        raise UsageError(f"{name} has a quote that is not closed: {' '.join(texts)}", hint=hint) from error


def guard_colons(program: Tuple[str, ...]) -> Tuple[str, ...]:
    """The program, with a lone `:` among its arguments hidden from mpirun, which would start a new context there."""
    if ":" not in program:
        return program
    return ("/bin/sh", "-c", "exec " + " ".join(shlex.quote(word) for word in program))
