"""Messages of commands: lines on stderr, or keys of their JSON."""

from __future__ import annotations

from typing import Dict, Iterable, List

import click

from ipulaunch.configs.messages import NOTE, WARNING, Message, in_order, texts


def show_messages(messages: Iterable[Message]) -> None:
    """Print one line per message on stderr: stdout has the result of the command alone."""
    for message in in_order(messages):
        click.echo(str(message), err=True)


def messages_data(messages: Iterable[Message]) -> Dict[str, List[str]]:
    """The messages as keys of JSON."""
    found = list(messages)
    return {"notes": texts(found, NOTE), "warnings": texts(found, WARNING)}
