"""The way into `ipulaunch`: Ctrl-C shows no traceback, not even while Python loads the commands."""

from __future__ import annotations

import io
import sys

_INTERRUPTED = 130  # as configs.errors has it, which is not loaded yet


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no character is an error, in whatever encoding
    try:
        from ipulaunch.launcher.cli.main import cli
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    cli(prog_name="ipulaunch")
