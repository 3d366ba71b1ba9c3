"""The variables that instances get, and the secrets that must not be seen on a command line."""

from __future__ import annotations

import os
from typing import Dict, List, Sequence, Tuple

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.messages import Message, note
from ipulaunch.configs.runs.secrets import is_secret, secret_values, withheld
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.redaction import redact, refuse_secret


def variables_to_forward(given: Sequence[str]) -> Tuple[Tuple[str, ...], Dict[str, str]]:
    """The names in --env, and the values of those that it sets."""
    forward, env = [], {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name.replace("_", "a").isalnum() or name[0].isdigit() or not name.isascii():
            raise UsageError(f"--env {name!r} is not the name of a variable")
        if equals and is_secret(name):
            raise UsageError(
                f"--env {name}=... would show a secret in the process list",
                hint=f"set {name} in your environment and give --env {name}",
            )
        if not equals and name not in os.environ:
            how = f"export {name} first" if is_secret(name) else f"export it first, or give --env {name}=VALUE"
            raise UsageError(f"--env {name}: it is not set here", hint=how)
        forward.append(name)
        if equals:
            refuse_secret(value, f"--env {name}=...")
            env[name] = value
    return tuple(forward), env


def refuse_secrets(options: LaunchOptions) -> None:
    """Refuse arguments for MPI and poprun that would show a secret."""
    per_instance = options.poprun.get("instance_mpi_local_args") or ()
    for text in (*options.mpi_global_args, *options.mpi_local_args, *per_instance):
        refuse_secret(text, "an argument for MPI")
    for text in options.poprun_args:
        refuse_secret(text, "an argument for poprun")


def about_secrets(program: Sequence[str], forward: Sequence[str], *, is_here: bool) -> List[Message]:
    """What the user of a program should know about secrets: those in its arguments, and those that it does not get."""
    messages = []
    if redact(program, secret_values(os.environ)) != list(program):
        messages.append(note("a secret among the program's arguments is in the list of processes; see --env NAME"))
    away = withheld(os.environ, forward) if is_here else []
    if away:
        messages.append(note(f"not given to the instances, as --env does not name them: {', '.join(away)}"))
    return messages
