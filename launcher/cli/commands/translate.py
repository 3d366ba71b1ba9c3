"""`ipulaunch translate`: the line of ipulaunch for a line of Graphcore's published applications."""

from __future__ import annotations

import json
from typing import Tuple

import click

from ipulaunch.launcher.cli.translation import translate
from ipulaunch.launcher.engines.command import Command, words_of
from ipulaunch.launcher.show.messages import messages_data, show_messages


@click.command("translate", context_settings={"allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="Print the line and the messages as JSON.")
@click.argument("line", nargs=-1, type=click.UNPROCESSED, metavar="-- [poprun ...] python3 train.py ...")
def command(line: Tuple[str, ...], as_json: bool) -> None:
    """Translate a line of the CNN application or of CosmoFlow, with or without poprun, and say what has no counterpart.

    Only the line of ipulaunch goes to stdout.
    """
    words = words_of("the line", line) if len(line) == 1 else list(line)
    translation = translate(words)
    found = Command(("ipulaunch", *translation.words))
    if as_json:
        data = {"command": list(found.argv), "line": found.shell(), **messages_data(translation.messages)}
        click.echo(json.dumps(data, indent=1))
        return
    show_messages(translation.messages)
    click.echo(found.shell())
