"""A server as a process of ours: it is started so that it cannot outlive us, watched, and ended so that it drains."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from ipulaunch.configs.errors import IpulaunchError, JobError
from ipulaunch.launcher.serving.address import Address
from ipulaunch.launcher.supervise.processes import die_with_parent

_DRAIN_S = 40.0  # our server gives the requests that are in 30 s
_LOOK_S = 0.2  # between two questions to a server that only answers questions


class ReportedError(IpulaunchError):
    """What a process says is wrong; the exit code is the process's."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        super().__init__(str(event["message"]), hint=str(event["hint"]))
        self.exit_code = int(event["exit_code"])


class ServerProcess:
    """A server in a session of its own. It has ended when the `with` is left, one way or the other."""

    def __init__(self, argv: Sequence[str], options: Optional[Mapping[str, Any]], name: str) -> None:
        self._argv, self._options, self.name = list(argv), options, name
        self._text = b""

    def __enter__(self) -> ServerProcess:
        reports = self._options is not None
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE if reports else subprocess.DEVNULL,
            stdout=subprocess.PIPE if reports else 2,  # stdout has what we say
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:  # it has ended, and says why
                stdin.write(json.dumps(self._options).encode())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def stop(self) -> None:
        """End it, and wait until it has answered what is in."""
        process = self._process
        try:
            if process.poll() is None:
                self._send(signal.SIGTERM)
                process.wait(_DRAIN_S)
        except subprocess.TimeoutExpired:
            self._send(signal.SIGKILL)
            process.wait()

    def events(self, seconds: Optional[float] = None) -> Iterator[Dict[str, Any]]:
        """What a server of ours reports, until it ends. After so many seconds it is an error that it goes on."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            for event in self._complete_events():
                if event["event"] == "error":
                    self._process.wait()
                    raise ReportedError(event)
                yield event
            if not self._read(deadline):
                return

    def follow(self, report: Callable[[Dict[str, Any]], None]) -> None:
        """Pass on what it reports until it ends, which is an error: nobody here has asked for that."""
        if self._options is not None:
            for event in self.events():
                report(event)
        self._process.wait()
        self.require_living()

    def require_living(self) -> None:
        """Refuse to go on with a server that has ended."""
        code = self._process.poll()
        if code is not None:
            raise JobError(f"{self.name} {_how(code)}", hint="what it has to say about that is above")

    def has_ended(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self, deadline: Optional[float]) -> bool:
        """Read more of what it reports; whether there is more."""
        assert self._process.stdout is not None
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([self._process.stdout], [], [], left_s)[0]:
            raise JobError(f"{self.name} does not answer in time", hint="--timeout gives it longer to load the model")
        data = os.read(self._process.stdout.fileno(), 65536)
        self._text += data
        return bool(data)

    def _complete_events(self) -> List[Dict[str, Any]]:
        *lines, self._text = self._text.split(b"\n")
        return [json.loads(line) for line in lines]

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def own_server(base: str, name: str, address: Address) -> ServerProcess:
    """Our own server, which reports where it answers and each version that it loads."""
    options = {"path": base, "model_name": name, **address._asdict()}
    argv = [sys.executable, "-m", "ipulaunch.workers.server", "serving"]
    return ServerProcess(argv, options, "ipulaunch's own server")


def wait_for_rest(server: ServerProcess, address: Address, model: str, seconds: float) -> None:
    """Wait until TensorFlow Serving's own server says over REST that a version of the model is available."""
    deadline = time.monotonic() + seconds
    while not _is_available(address, model):
        server.require_living()
        if time.monotonic() > deadline:
            hint = "--timeout gives it longer to load the model"
            raise JobError(f"{server.name} does not serve {model} after {seconds:g} s", hint=hint)
        server.has_ended(_LOOK_S)


def _is_available(address: Address, model: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", address.rest_port, timeout=_LOOK_S)
    try:
        connection.request("GET", f"/v1/models/{model}")
        states = json.loads(connection.getresponse().read()).get("model_version_status", [])
        return any(state.get("state") == "AVAILABLE" for state in states)
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
