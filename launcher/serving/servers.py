"""The two servers: TensorFlow Serving's own and ours. Both are started, asked whether they answer, and ended alike."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional

from ipulaunch.configs.errors import JobError
from ipulaunch.launcher.serving.address import Address
from ipulaunch.launcher.serving.model_server import batching_parameters, model_server_argv
from ipulaunch.launcher.serving.process import ServerProcess, own_server, wait_for_rest
from ipulaunch.launcher.serving.served import Served

LOOPBACK = "127.0.0.1"
TIMEOUT_S = 600.0  # to load a model: the program of a large one on many IPUs takes minutes
RUNNING_TIMEOUT_S = 30.0  # for a server that runs already to answer

Report = Callable[[Dict[str, Any]], None]


@contextlib.contextmanager
def started(
    served: Served, address: Address, model_server: Optional[Path], report: Report, timeout_s: float = TIMEOUT_S
) -> Iterator[ServerProcess]:
    """A server that answers; it has drained and ended when this is left. `report` gets what becomes of it."""
    if model_server is None:
        with own_server(str(served.base), served.name, address) as server:
            for event in server.events(timeout_s):
                report({**event, "server": "own", "model": served.name})
                if event["event"] == "ready":
                    break
            else:
                server.follow(report)
            yield server
        return
    with tempfile.TemporaryDirectory(prefix="ipulaunch-serving-") as directory:
        batching = _batching_file(served, Path(directory))
        argv = model_server_argv(model_server, served.base, served.name, address.port, address.rest_port, batching)
        with ServerProcess(argv, None, model_server.name) as server:
            wait_for_rest(server, address, served.name, timeout_s)
            found = {"event": "ready", **address._asdict(), "host": "0.0.0.0"}
            report({**found, "server": str(model_server), "model": served.name})
            yield server


def _batching_file(served: Served, directory: Path) -> Optional[Path]:
    """The file with the parameters of batching; None for a model that takes any batch."""
    batch = _description(served)["batch_size"]
    if batch is None:
        return None
    path = directory / "batching.txt"
    path.write_text(batching_parameters(batch), encoding="utf-8")
    return path


def _description(served: Served) -> Dict[str, Any]:
    """What the newest version takes, as our server's room reads it: the launcher does not read models."""
    argv = [sys.executable, "-m", "ipulaunch.workers.server", "description"]
    with ServerProcess(argv, {"path": str(served.base)}, "the reading of the model") as process:
        for event in process.events():
            if event["event"] == "result":
                return event
        process.follow(lambda event: None)
    raise JobError(f"{served.base} could not be read")


def ready_line(event: Dict[str, Any]) -> str:
    """Which server answers, and where."""
    whose = "ipulaunch's own server" if event["server"] == "own" else event["server"]
    host = f"[{event['host']}]" if ":" in event["host"] else event["host"]
    rest = f"http://{host}:{event['rest_port']}/v1/models/{event['model']}"
    return f"serving {event['model']} with {whose}: gRPC on {host}:{event['port']}, REST on {rest}"
