"""An export on stdout: the line that would run, or what has been exported."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, List, Mapping

import click

from ipulaunch.configs.messages import Message, note, warning
from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.launcher.cli.data_tasks import follow, make_progress
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.launch.exporting import ExportOptions, require_ready
from ipulaunch.launcher.launch.redaction import redacted
from ipulaunch.launcher.show.messages import messages_data, show_messages
from ipulaunch.launcher.show.picture import table


def print_or_run(
    line: Command, engine: Engine, options: ExportOptions, messages: List[Message], *, dry_run: bool, as_json: bool
) -> None:
    """Print the line of an export, or run it to its end and print what it has made."""
    if options.iterations is not None and engine.is_rehearsal:
        messages = [*messages, note("--iterations is for IPUs: on CPUs every call runs the model once")]
    if dry_run:
        _print_line(line, messages, as_json)
        return
    require_ready(engine, options)
    _run(line, engine, options.directory, messages, as_json)


def _print_line(command: Command, messages: List[Message], as_json: bool) -> None:
    """The line of a dry run on stdout, alone."""
    command = redacted(command, secret_values(os.environ))
    if as_json:
        click.echo(json.dumps({"argv": list(command.argv), **messages_data(messages)}, indent=1))
        return
    show_messages(messages)
    click.echo(command.shell())


def _run(command: Command, engine: Engine, directory: Path, messages: List[Message], as_json: bool) -> None:
    show_messages(messages)
    click.echo(f"exporting to {directory}", err=True)
    result = follow(command.argv, {}, make_progress(sys.stderr), task="the export").result
    show_messages(map(warning, result["warnings"]))
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    rows = [
        ("exported", f"{result['model']} of {result['workload']} for {engine.backend.upper()}s"),
        ("to", result["path"]),
        ("weights", _weights(result["weights"])),
        ("input", _tensor(result["input"])),
        ("output", _tensor(result["output"])),
    ]
    if not engine.is_rehearsal:
        rows.append(("iterations", str(result["iterations"])))
    click.echo(table(rows))


def _weights(weights: Mapping[str, Any]) -> str:
    if weights["checkpoint"] is None:
        return "random"
    return f"of update {weights['update']}, from {weights['checkpoint']}"


def _tensor(tensor: Mapping[str, Any]) -> str:
    return f"{tensor['name']}: {tensor['dtype']} {tensor['shape']}, {tensor['values']}"
