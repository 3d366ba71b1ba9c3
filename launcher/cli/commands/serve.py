"""`ipulaunch serve`: an exported model behind the protocol of TensorFlow Serving."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Optional

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.messages import warning
from ipulaunch.configs.runs.directory import RUNS, RunDirectory
from ipulaunch.launcher.cli.options import server_options
from ipulaunch.launcher.serving.address import Address, require_free
from ipulaunch.launcher.serving.model_server import find_model_server
from ipulaunch.launcher.serving.served import ExportFailed, Served, exported, served_directory
from ipulaunch.launcher.serving.servers import LOOPBACK, TIMEOUT_S, ready_line, started
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.supervise.stop_signals import StopSignals


@click.command("serve", short_help="Serve an exported model over gRPC and REST.")
@click.argument("model", metavar="DIRECTORY|RUN")
@server_options
@click.option("--host", help=f"Address to answer on; 0.0.0.0 is every network. Default: {LOOPBACK}, this machine only.")
@click.option(
    "--model-name", metavar="NAME", help="Name that requests use. Default: that of the export, or of DIRECTORY."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=TIMEOUT_S,
    show_default=True,
    help="Seconds to load the model in.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON.")
def command(
    model: str,
    port: int,
    rest_port: int,
    host: Optional[str],
    model_name: Optional[str],
    serving_bin_path: Optional[Path],
    own_server: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Serve DIRECTORY, which ipulaunch export has written, or the newest checkpoint of RUN, until Ctrl-C or TERM.

    New versions that appear in DIRECTORY replace the one that is served. Requests that are in when the server ends are
    answered first.
    """
    model_server = None if own_server else find_model_server(serving_bin_path, os.environ)
    if model_server is not None:
        text = f"{model_server.name} answers on every network of this machine"
        show_messages(
            [
                warning(
                    f"{text}; --own-server answers on {LOOPBACK} only" if host is None else f"{text}, not just {host}"
                )
            ]
        )
        for flag, number in (("--port", port), ("--rest-port", rest_port)):
            if not number:
                raise UsageError(f"{model_server.name} cannot take a free port by itself", hint=f"give {flag} a number")
    address = Address(host or LOOPBACK, port, rest_port)
    require_free(address)
    end = "ended before the model was served"
    with StopSignals() as stopping:
        try:
            with stopping.interrupting(), _source(model, model_name) as served:
                say = _printer(as_json)
                with started(served, address, model_server, say, timeout) as server:
                    end = "the server has ended, and has answered every request that was in"
                    server.follow(say)
        except ExportFailed as error:
            click.get_current_context().exit(error.code)
        except KeyboardInterrupt:
            click.echo(end, err=True)
            if stopping.first == signal.SIGINT:
                raise


def _source(model: str, name: Optional[str]) -> ContextManager[Served]:
    """What is to be served: a directory of versions as it is, or the export of a run."""
    path = Path(model)
    if path.is_file():
        raise UsageError(f"{model} is a file", hint="name the directory of all versions, or a run")
    if os.sep in model and not path.is_dir():
        raise UsageError(f"there is no directory {model}", hint="ipulaunch export WORKLOAD --export-dir D writes one")
    if path.is_dir() and not RunDirectory(path).plan.is_file():
        return contextlib.nullcontext(served_directory(path, name))
    from ipulaunch.launcher.runs.finding import find_run

    return exported([str(find_run(model, Path(RUNS)))], name)


def _printer(as_json: bool) -> Callable[[Dict[str, Any]], None]:
    """What becomes of a server, on stdout."""

    def as_line(event: Dict[str, Any]) -> None:
        click.echo(json.dumps(event))

    def as_text(event: Dict[str, Any]) -> None:
        if event["event"] == "version":
            reason = f": {event['message']}" if event["message"] else ""
            click.echo(f"version {event['version']}: {event['state']}{reason}")
        elif event["event"] == "ready":
            click.echo(ready_line(event))

    return as_line if as_json else as_text
