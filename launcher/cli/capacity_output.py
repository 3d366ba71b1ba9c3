"""The capacity of a plan on stdout, as text or JSON, and as a picture in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional, Sequence

import click

from ipulaunch.configs.messages import Message
from ipulaunch.launcher.launch.capacity import Capacity, capacity_data
from ipulaunch.launcher.show.capacity_svg import capacity_svg
from ipulaunch.launcher.show.capacity_table import capacity_text
from ipulaunch.launcher.show.messages import messages_data, show_messages


def print_capacity(capacity: Capacity, messages: Sequence[Message], *, as_json: bool, svg: Optional[Path]) -> None:
    """The capacity on stdout; notes and warnings on stderr."""
    if svg is not None:
        svg.write_text(capacity_svg(capacity), encoding="utf-8")
    if as_json:
        click.echo(json.dumps({**capacity_data(capacity), **messages_data(messages)}, indent=1))
        return
    click.echo(capacity_text(capacity))
    show_messages(messages)
