"""Senders against our gRPC server, with a model of NumPy in the process of the test that knows each sample."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import pytest

from ipulaunch.workers.server.messages import SavedModel
from ipulaunch.workers.server.saved_model import Signature, Tensor
from ipulaunch.workers.server.versions import Versions

pytest.importorskip("grpc", reason="the extra [serving] is not installed")

from ipulaunch.workers.server.grpc_server import GrpcServer

LIMIT_S = 120.0  # only keeps a test from hanging
MORE_THAN_IT_GETS = 10**6  # images: nobody is done before the test goes on
CLASSES, BATCH, UINT8, FLOAT = 251, 16, 4, 1


class Model:
    """Answers each sample with a score of 1 for the class that it is of; holds its answers where it is told to."""

    def __init__(self) -> None:
        graph = SavedModel().meta_graphs.add()
        definition = graph.signature_def["serving_default"]
        definition.method_name = "tensorflow/serving/predict"
        for infos, alias, dtype, width in (
            (definition.inputs, "input", UINT8, 4),
            (definition.outputs, "output", FLOAT, CLASSES),
        ):
            infos[alias].name, infos[alias].dtype = f"{alias}:0", dtype
            for size in (BATCH, width):
                infos[alias].tensor_shape.dim.add(size=size)
        inputs = {"input": Tensor("input:0", UINT8, (BATCH, 4))}
        outputs = {"output": Tensor("output:0", FLOAT, (BATCH, CLASSES))}
        self.signatures = {"serving_default": Signature(inputs, outputs, definition)}
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = threading.Semaphore(0)

    def run(self, name: str, inputs: Dict[str, Any]) -> Dict[str, Any]:
        self.asked.release()
        assert self.may_answer.wait(LIMIT_S)
        return {"output": np.eye(CLASSES, dtype=np.float32)[inputs["input"].sum(axis=1) % CLASSES]}

    def close(self) -> None:
        pass


class Served:
    """The server, in a thread of this process."""

    def __init__(self, base: Path) -> None:
        (base / "1").mkdir(parents=True)
        (base / "1" / "saved_model.pb").touch()
        self.model = Model()
        self.versions = Versions(base, "m", lambda directory: self.model, lambda event: None)
        self.versions.refresh()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.server, self.port = self.wait_for(self._start())

    async def _start(self) -> Any:
        server = GrpcServer(self.versions)
        return server, await server.start("127.0.0.1", 0)

    def wait_for(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT_S)

    def stop(self) -> None:
        self.wait_for(self.server.stop(0))

    def close(self) -> None:
        self.model.may_answer.set()
        self.stop()
        self.versions.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture()
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "m")
    yield made
    made.close()


class Sending:
    """The task in a process of its own."""

    def __init__(self, directory: Path, address: str, **options: Any) -> None:
        values = {
            "batch_size": 8,
            "senders": 3,
            "images": 24,
            "is_async": False,
            "is_verbose": False,
            "timeout": LIMIT_S,
            "address": address,
            "model": "m",
            "dtype": "uint8",
            "shape": [700, 4],
            "directory": str(directory),
            **options,
        }
        line = [sys.executable, "-m", "ipulaunch.workers.server", "sending"]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        with self.process.stdin as stdin:
            stdin.write(json.dumps(values))

    def senders(self) -> List[int]:
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def wait_for(self, what: str) -> None:
        """Wait until all senders are ready, or done."""
        for event in self._events():
            if event.get("what") == what and event["done"] == event["total"]:
                return
        raise AssertionError(f"it ended before: {what}")

    def end(self) -> Any:
        """Its exit code, and the last thing that it reports."""
        last: Dict[str, Any] = {}
        for event in self._events():
            last = event
        return self.process.wait(LIMIT_S), last

    def _events(self) -> Iterator[Dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)


@pytest.fixture()
def send(tmp_path: Path, served: Served) -> Iterator[Callable[..., Sending]]:
    """Starts senders for samples whose labels are what the model has to find."""
    samples = np.random.default_rng(5).integers(0, 256, (700, 4), np.uint8)
    samples.tofile(tmp_path / "samples")
    (samples.sum(axis=1) % CLASSES).astype(np.int64).tofile(tmp_path / "labels")
    started: List[Sending] = []

    def start(**options: Any) -> Sending:
        started.append(Sending(tmp_path, options.pop("address", f"127.0.0.1:{served.port}"), **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(LIMIT_S)
        assert each.process.stdout is not None
        each.process.stdout.close()


@pytest.mark.core
@pytest.mark.parametrize("is_async", [False, True], ids=["one by one", "async"])
def test_a_thousand_requests_of_32_senders_each_get_their_own_answer(
    is_async: bool, send: Callable[..., Sending]
) -> None:
    """Each answer names the class of its own sample: nothing is lost, and nothing is mixed up."""
    code, result = send(senders=32, images=253, is_async=is_async, is_verbose=True).end()
    assert (code, result["event"]) == (0, "result"), result
    assert result["requests"] == 32 * 32  # of 8 samples, and a last one of 5
    assert (result["samples"], result["accuracy"], result["distinct_samples"]) == (32 * 253, 1.0, 700)
    latency = result["latency_ms"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert latency["min"] <= latency["mean"] <= latency["max"]
    assert result["throughput"] == pytest.approx(32 * 253 / result["seconds"])
    assert len(result["first_sender_ms"]) == 32


def test_a_sender_that_is_killed_ends_the_others_with_a_verdict(served: Served, send: Callable[..., Sending]) -> None:
    sending = send(images=MORE_THAN_IT_GETS)
    sending.wait_for("senders ready")
    served.model.may_answer.clear()
    senders = sending.senders()
    os.kill(senders[1], signal.SIGKILL)
    code, error = sending.end()
    assert (code, error["event"], error["exit_code"]) == (7, "error", 7)
    assert error["message"] == "sender 2 was ended by SIGKILL before it had all of its answers"
    assert not [pid for pid in senders if Path(f"/proc/{pid}").exists()]


def test_a_server_that_goes_away_ends_the_senders_with_a_verdict(served: Served, send: Callable[..., Sending]) -> None:
    sending = send(images=MORE_THAN_IT_GETS)
    sending.wait_for("senders ready")
    served.model.may_answer.clear()
    served.stop()
    code, error = sending.end()
    assert code == 7
    assert "with UNAVAILABLE" in error["message"] or "with CANCELLED" in error["message"]


def test_an_error_of_the_server_is_the_verdict(served: Served, send: Callable[..., Sending]) -> None:
    code, error = send(batch_size=2000, images=2000).end()
    assert code == 7
    text = "INVALID_ARGUMENT: Task size 2000 is larger than maximum input batch size 1024"
    assert error["message"].endswith(text)


def test_a_server_that_is_not_there_and_a_model_that_it_does_not_have(
    served: Served, send: Callable[..., Sending]
) -> None:
    code, error = send(address="127.0.0.1:1", timeout=0).end()
    assert code == 4
    assert "answers at 127.0.0.1:1" in error["message"]
    code, error = send(model="other").end()
    assert code == 7
    assert "Servable not found for request: Latest(other)" in error["message"]


def test_samples_that_do_not_fit_the_model_are_refused(tmp_path: Path, send: Callable[..., Sending]) -> None:
    np.zeros((3, 5), np.uint8).tofile(tmp_path / "samples")
    code, error = send(shape=[3, 5]).end()
    assert code == 5
    assert error["message"] == "the samples are [5], and the model takes [4] of uint8"
