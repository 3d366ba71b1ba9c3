"""A strict tensorflow_model_server: it knows options of the real one, reads its parameters, and answers REST."""

from __future__ import annotations

import json
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Dict

OPTIONS = {
    *("port", "rest_api_port", "model_name", "model_base_path", "enable_batching", "batching_parameters_file"),
    *("file_system_poll_wait_seconds", "grpc_socket_path", "tensorflow_session_parallelism"),
}
PARAMETER = re.compile(r"(\w+) (?:\{ value: (\d+) \}|: (\d+))")
PARAMETERS = {
    "max_batch_size",
    "batch_timeout_micros",
    "max_enqueued_batches",
    "num_batch_threads",
    "allowed_batch_sizes",
}


def fail(text: str) -> None:
    print(text, file=sys.stderr)
    sys.exit(255)


def options(words: Any) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for word in words:
        flag, has_value, value = word.partition("=")
        if not flag.startswith("--") or flag[2:] not in OPTIONS or not has_value or flag[2:] in found:
            fail(f"unknown, repeated or incomplete option {word}")
        found[flag[2:]] = value
    return found


def parameters(path: str) -> Dict[str, int]:
    """The parameters of batching, which the real one reads as text of protobuf."""
    found: Dict[str, int] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        match = PARAMETER.fullmatch(line)
        if match is None or match[1] not in PARAMETERS:
            fail(f"Invalid protobuf file: {line}")
        else:
            found[match[1]] = int(match[2] or match[3])
    if found["allowed_batch_sizes"] != found["max_batch_size"]:
        fail("Last entry in allowed_batch_sizes must match max_batch_size")
    return found


def main() -> None:
    given = options(sys.argv[1:])
    base, name = Path(given["model_base_path"]), given["model_name"]
    if not base.is_absolute() or not any(path.name.isdigit() for path in base.iterdir()):
        fail(f"No versions of servable {name} found under base path {base}")
    if (given.get("enable_batching") == "true") != ("batching_parameters_file" in given):
        fail("--batching_parameters_file needs --enable_batching")
    batching = parameters(given["batching_parameters_file"]) if "batching_parameters_file" in given else {}
    if os.environ.get("FAKE_MODEL_SERVER") == "crash":
        fail("it crashes as it was told to")
    print(json.dumps(batching), file=sys.stderr, flush=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path == f"/v1/models/{name}"
            states = [{"version": "1", "state": "AVAILABLE"}]
            data = json.dumps({"model_version_status": states} if is_known else {"error": "not found"}).encode()
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    HTTPServer(("127.0.0.1", int(given["rest_api_port"])), Handler).serve_forever()


main()
