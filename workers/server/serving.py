"""The server: it loads the newest version, says where it answers, follows the directory, and drains at its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from pathlib import Path
from typing import Any, Dict, List, Mapping

from ipulaunch.configs.errors import DataError, NotReadyError
from ipulaunch.data_pipeline.reported import Report
from ipulaunch.workers.server.grpc_server import GrpcServer
from ipulaunch.workers.server.rest_server import RestServer
from ipulaunch.workers.server.session import LoadedModel
from ipulaunch.workers.server.versions import Versions

POLL_S = 1.0  # between two looks at the directory, as in TensorFlow Serving
DRAIN_S = 30.0  # for the requests that are in


def run(options: Mapping[str, Any], report: Report) -> Dict[str, Any]:
    """Serve until TERM or INT; returns what it served."""
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # it calls the loader of sessions deprecated, at each load
    base = Path(options["path"])
    messages: List[str] = []

    def note(event: Dict[str, Any]) -> None:
        messages.append(event["message"])
        report(event)

    versions = Versions(base, options["model_name"], LoadedModel, note)
    versions.refresh()
    if not versions.is_available:
        why = messages[-1] if messages else "there is no directory with a number for a name and a SavedModel in it"
        raise DataError(f"{base} has no version that can be served: {why}")
    try:
        asyncio.run(_serve(versions, options, report))
    finally:
        versions.close()
    return {"served": options["model_name"]}


def _unusable(host: str, port: int, option: str) -> NotReadyError:
    return NotReadyError(
        f"port {port} of {host} cannot be used", hint=f"another server may use it; choose another with {option}"
    )


async def _serve(versions: Versions, options: Mapping[str, Any], report: Report) -> None:
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    host = options["host"]
    with contextlib.ExitStack() as stack:
        grpc_server = GrpcServer(versions)
        try:
            port = await grpc_server.start(host, options["port"])
        except (OSError, RuntimeError) as error:
            raise _unusable(host, options["port"], "--port") from error
        try:
            rest_server = RestServer(versions, host, options["rest_port"])
        except OSError as error:
            await grpc_server.stop(0)
            raise _unusable(host, options["rest_port"], "--rest-port") from error
        stack.callback(_following(versions))
        report({"event": "ready", "host": host, "port": port, "rest_port": rest_server.port})
        await ending.wait()
        report({"event": "draining"})
        await grpc_server.stop(DRAIN_S)
        await asyncio.get_running_loop().run_in_executor(None, rest_server.stop, DRAIN_S)


def _following(versions: Versions) -> Any:
    """Look for new versions in a thread of its own: loading one takes a while. Returns what ends it."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(POLL_S):
            with contextlib.suppress(OSError):  # the directory is being replaced, or is out of reach for a moment
                versions.refresh()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    return end
