"""The REST API of TensorFlow Serving: predictions, the state of a model and its signatures as JSON."""

from __future__ import annotations

import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict
from urllib.parse import unquote

from ipulaunch.configs.exports import SIGNATURE
from ipulaunch.workers.server import json_tensors
from ipulaunch.workers.server.messages import ModelSpec
from ipulaunch.workers.server.prediction import find_version, predict, version_of
from ipulaunch.workers.server.saved_model import Signature, Tensor
from ipulaunch.workers.server.status import ServingError
from ipulaunch.workers.server.tensors import type_name
from ipulaunch.workers.server.versions import STATES, Versions

_MODEL = r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
_POST = re.compile(_MODEL + r":(classify|regress|predict)")
_GET = re.compile(_MODEL + r"(?:/(metadata))?")
_IDLE_S = 60.0  # before a connection without a request is closed
_MOST_BYTES = 2**31 - 1  # of a message of gRPC, and here too
_OTHER_TYPES = {  # that are never sent here
    0: "INVALID",
    8: "COMPLEX64",
    14: "BFLOAT16",
    18: "COMPLEX128",
    20: "RESOURCE",
    21: "VARIANT",
}


class RestServer(ThreadingHTTPServer):
    """Answers on one address, a thread for each connection."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, versions: Versions, host: str, port: int) -> None:
        self.versions = versions
        self._running = 0
        self._changed = threading.Condition()
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def stop(self, grace_s: float) -> None:
        """Accept no more connections and answer the requests that are in."""
        self.shutdown()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, grace_s)
        self.server_close()

    def count(self, change: int) -> None:
        with self._changed:
            self._running += change
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    server: RestServer

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_PUT(self) -> None:
        self._answer(self._refuse)

    do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = do_PUT

    def log_message(self, *_: Any) -> None:
        """One line for each request is too many."""

    def _answer(self, method: Any) -> None:
        self.server.count(1)
        try:
            path = self.path.partition("?")[0]
            status = 200
            try:
                body = self._body()
                if not path.lower().startswith("/v1/"):
                    raise ServingError("NOT_FOUND", f"{path} is not here; see /v1/models/{self.server.versions.name}")
                content = method(path, body)
            except ServingError as error:
                status, content = error.http_status, {"error": error.message}
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if self.command != "HEAD" else b"")
        finally:
            self.server.count(-1)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdigit() or int(length) > _MOST_BYTES:
            self.close_connection = True
            raise ServingError("INVALID_ARGUMENT", "a request needs a Content-Length of at most 2 GiB")
        return self.rfile.read(int(length))

    def _get(self, path: str, body: bytes) -> Dict[str, Any]:
        found = _GET.fullmatch(path)
        if not found:
            raise _malformed("GET", path)
        spec = _spec(found)
        return self._metadata(spec) if found[4] else self._status(spec)

    def _post(self, path: str, body: bytes) -> Dict[str, Any]:
        found = _POST.fullmatch(path)
        if not found:
            raise _malformed("POST", path)
        method = found[4].lower()
        if method != "predict":
            raise ServingError("UNIMPLEMENTED", f"{method} is not served here; predict is")
        return self._predict(_spec(found), json_tensors.parse(body))

    def _refuse(self, path: str, body: bytes) -> Dict[str, Any]:
        raise _malformed(self.command, path)

    def _predict(self, spec: Any, body: Dict[str, Any]) -> Dict[str, Any]:
        name = spec.signature_name = body.get("signature_name", "")
        version = find_version(self.server.versions, spec)
        spec.version.value = version.number  # the inputs are read for this one
        signature = version.model.signatures.get(name or SIGNATURE)
        if signature is None:
            raise ServingError(
                "INVALID_ARGUMENT", f'Serving signature name: "{name or SIGNATURE}" not found in signature def'
            )
        if not signature.inputs:
            raise ServingError("INVALID_ARGUMENT", f"Failed to get input map for signature: {name or 'DEFAULT'}")
        arrays, form = json_tensors.read_inputs(body, signature.inputs)
        answer = predict(self.server.versions, spec, arrays, arrays.__getitem__, ())
        return json_tensors.answer(answer.of(answer.outputs.result()), form)

    def _status(self, spec: Any) -> Dict[str, Any]:
        return {
            "model_version_status": [
                {
                    "version": str(number),
                    "state": STATES[status.state],
                    "status": {"error_code": status.code, "error_message": status.message},
                }
                for number, status in self.server.versions.statuses(spec.name, version_of(spec))
            ]
        }

    def _metadata(self, spec: Any) -> Dict[str, Any]:
        version = find_version(self.server.versions, spec)
        found = {name: _signature(signature) for name, signature in version.model.signatures.items()}
        return {
            "model_spec": {"name": spec.name, "signature_name": "", "version": str(version.number)},
            "metadata": {"signature_def": {"signature_def": found}},
        }


def _spec(found: Any) -> Any:
    spec = ModelSpec(name=unquote(found[1]))
    if found[2]:
        if int(found[2]) >= 2**63:
            raise ServingError("INVALID_ARGUMENT", f"Failed to convert version: {found[2]} to numeric.")
        spec.version.value = int(found[2])
    elif found[3]:
        spec.version_label = unquote(found[3])
    return spec


def _malformed(method: str, path: str) -> ServingError:
    return ServingError("INVALID_ARGUMENT", f"Malformed request: {method} {path}")


def _signature(signature: Signature) -> Dict[str, Any]:
    return {
        "inputs": {alias: _tensor(tensor) for alias, tensor in signature.inputs.items()},
        "outputs": {alias: _tensor(tensor) for alias, tensor in signature.outputs.items()},
        "method_name": signature.definition.method_name,
    }


def _tensor(tensor: Tensor) -> Dict[str, Any]:
    dims = [{"size": str(size), "name": ""} for size in tensor.shape or ()]
    return {
        "dtype": f"DT_{_OTHER_TYPES.get(tensor.dtype) or type_name(tensor.dtype).upper()}",
        "tensor_shape": {"dim": dims, "unknown_rank": tensor.shape is None},
        "name": tensor.name,
    }
