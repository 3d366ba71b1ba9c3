"""`ipulaunch serve` as a user runs it: its process, its server, its signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
from fixtures.launcher import FAKES
from fixtures.serving import Address

LIMIT_S = 300.0  # only keeps a test from hanging

pytest.importorskip("grpc", reason="the extra [serving] is not installed")


class Serve:
    """The command in a process of its own, and the events that it prints."""

    def __init__(self, words: List[str], environ: Dict[str, str]) -> None:
        line = [sys.executable, "-m", "ipulaunch.launcher", "serve", *words, "--json"]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, text=True)

    def event(self, kind: str, **fields: Any) -> Dict[str, Any]:
        """The next event of a kind with these values."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found: Dict[str, Any] = json.loads(line)
            if found["event"] == kind and fields.items() <= found.items():
                return found
        raise AssertionError(f"no {kind}: {self.end()}")

    def ready(self) -> Address:
        event = self.event("ready")
        return Address(event["port"], event["rest_port"])

    def server(self) -> int:
        """The process of the server."""
        pid = self.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(child)

    def end(self) -> Any:
        """Its exit code and what it said on stderr."""
        _, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, err


@pytest.fixture()
def serve(own_environment: Dict[str, str]) -> Iterator[Callable[..., Serve]]:
    started: List[Serve] = []

    def start(*words: Any, **environ: str) -> Serve:
        started.append(Serve(list(map(str, words)), {**own_environment, **environ}))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.send_signal(signal.SIGTERM)
        each.process.communicate(timeout=LIMIT_S)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.core
def test_a_model_is_served_to_curl_until_term(
    tmp_path: Path, write_model: Callable[..., Path], serve: Callable[..., Serve]
) -> None:
    """A new version takes over on its own; TERM ends both processes with exit code 0."""
    write_model(tmp_path / "m" / "1")
    run = serve(tmp_path / "m", "--port", 0, "--rest-port", 0, "--own-server")
    address = run.ready()
    url = f"http://127.0.0.1:{address.rest_port}/v1/models/m"
    ask = {"instances": [[1, 0, 0, 0, 0, 2], [0, 3, 0, 0, 0, 0]]}
    assert address.rest("/v1/models/m:predict", ask) == (200, {"predictions": [[13.0], [6.0]]})
    curl = shutil.which("curl")
    if curl:
        line = [curl, "--silent", "--noproxy", "*", "--data", json.dumps(ask), f"{url}:predict"]
        assert json.loads(subprocess.run(line, capture_output=True, timeout=LIMIT_S, check=True).stdout) == {
            "predictions": [[13.0], [6.0]]
        }
    write_model(tmp_path / "new", factor=10.0).rename(tmp_path / "m" / "2")
    run.event("version", version=1, state="END")
    assert address.rest("/v1/models/m:predict", ask) == (200, {"predictions": [[130.0], [60.0]]})
    server = run.server()
    run.process.send_signal(signal.SIGTERM)
    code, err = run.end()
    assert code == 0, err
    assert is_gone(server)
    if not curl:
        pytest.skip("there is no curl here: all but the request with it passed")


@pytest.mark.night
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_the_end_of_the_server_and_of_the_command(
    how: str, tmp_path: Path, write_model: Callable[..., Path], serve: Callable[..., Serve]
) -> None:
    """A server that is killed ends the command with a verdict; Ctrl-C ends the server.

    Left to the night, as each start loads TensorFlow.
    """
    write_model(tmp_path / "m" / "1")
    run = serve(tmp_path / "m", "--port", 0, "--rest-port", 0, "--own-server")
    run.ready()
    server = run.server()
    if how == "killed":
        os.kill(server, signal.SIGKILL)
        code, err = run.end()
        assert code == 7
        assert "error: ipulaunch's own server was ended by SIGKILL" in err
    else:
        run.process.send_signal(signal.SIGINT)
        code, err = run.end()
        assert code == 130, err
        assert "Traceback" not in err
    assert is_gone(server)


@pytest.fixture()
def model_server(tmp_path: Path) -> Path:
    path = tmp_path / "tensorflow_model_server-r2.6"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{FAKES / "tensorflow_model_server.py"}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture()
def batch_of_16(tmp_path: Path) -> Path:
    """A directory with a version that is made for batches of 16; no server here loads it."""
    from ipulaunch.workers.server.messages import SavedModel

    model = SavedModel()
    graph = model.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    graph.signature_def["serving_default"].inputs["input"].tensor_shape.dim.add(size=16)
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "saved_model.pb").write_bytes(model.SerializeToString())
    return tmp_path / "m"


def test_tensorflow_serving_gets_its_options_and_ends_with_us(
    batch_of_16: Path, model_server: Path, serve: Callable[..., Serve]
) -> None:
    ports = free_port(), free_port()
    line = (batch_of_16, "--port", ports[0], "--rest-port", ports[1], "--model-name", "net")
    run = serve(*line, TF_SERVING_PATH=str(model_server))
    event = run.event("ready")
    assert event["server"] == str(model_server)
    assert (event["port"], event["rest_port"], event["model"]) == (*ports, "net")
    run.process.send_signal(signal.SIGTERM)
    code, err = run.end()
    assert code == 0, err
    assert '"max_batch_size": 16' in err
    assert "warning: tensorflow_model_server-r2.6 answers on every network of this machine" in err


def test_a_tensorflow_serving_that_does_not_start_is_a_failure(
    batch_of_16: Path, model_server: Path, serve: Callable[..., Serve]
) -> None:
    line = (batch_of_16, "--port", free_port(), "--rest-port", free_port(), "--serving-bin-path", model_server)
    code, err = serve(*line, FAKE_MODEL_SERVER="crash").end()
    assert code == 7
    assert "it crashes as it was told to" in err
    assert "error: tensorflow_model_server-r2.6 ended with exit code 255" in err


@pytest.mark.night
def test_the_memory_of_the_server_does_not_grow_with_requests(
    tmp_path: Path, write_model: Callable[..., Path], serve: Callable[..., Serve]
) -> None:
    """Left to the night, as it loads TensorFlow and sends 3,000 requests, one after the other."""
    write_model(tmp_path / "m" / "1")
    run = serve(tmp_path / "m", "--port", 0, "--rest-port", 0, "--own-server")
    address, server = run.ready(), run.server()
    ask = {"instances": [[1, 0, 0, 0, 0, 2]] * 1000}

    def resident_mb(requests: int) -> float:
        for _ in range(requests):
            assert address.rest("/v1/models/m:predict", ask) == (200, {"predictions": [[13.0]] * 1000})
        return int(Path(f"/proc/{server}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    before = resident_mb(1000)
    assert resident_mb(2000) < before + 20  # MB, half of the bytes of these requests


@pytest.fixture()
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize("option", ["--port", "--rest-port"])
def test_a_port_that_is_taken_is_an_error_before_anything_is_loaded(
    option: str, batch_of_16: Path, taken_port: int, serve: Callable[..., Serve]
) -> None:
    other = "--rest-port" if option == "--port" else "--port"
    code, err = serve(batch_of_16, option, taken_port, other, 0, "--own-server").end()
    assert code == 4
    assert err.splitlines() == [
        f"error: port {taken_port} of 127.0.0.1 cannot be used: Address already in use",
        f"hint: another server may use it; choose another with {option}",
    ]


@pytest.mark.night
@pytest.mark.parametrize("option", ["port", "rest_port"])
def test_a_port_that_is_taken_while_the_model_is_loaded_is_an_error_of_the_server(
    option: str, tmp_path: Path, write_model: Callable[..., Path], taken_port: int, own_environment: Dict[str, str]
) -> None:
    """Left to the night, as it loads TensorFlow."""
    write_model(tmp_path / "m" / "1")
    options = {"path": str(tmp_path / "m"), "model_name": "m", "host": "127.0.0.1", "port": 0, "rest_port": 0}
    done = subprocess.run(
        [sys.executable, "-m", "ipulaunch.workers.server", "serving"],
        input=json.dumps({**options, option: taken_port}),
        env=own_environment,
        capture_output=True,
        timeout=LIMIT_S,
        text=True,
        check=False,
    )
    error = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, error["event"], error["exit_code"]) == (4, "error", 4)
    assert error["message"] == f"port {taken_port} of 127.0.0.1 cannot be used"
    assert "--" + option.replace("_", "-") in error["hint"]
    assert "Traceback" not in done.stderr and "add_port" not in done.stderr
