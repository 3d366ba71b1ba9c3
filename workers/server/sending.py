"""Senders: processes that wait for each other, send at the same time, and are measured together.

They are forked from one that has loaded NumPy and grpc but has not yet called anything: starting 32 interpreters would
take longer than most measurements.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError, IpulaunchError, JobError
from ipulaunch.data_pipeline.reported import Report
from ipulaunch.workers.server.client import Client, ServerError, Signature
from ipulaunch.workers.server.saved_model import Tensor
from ipulaunch.workers.server.sender import LABELS, SAMPLES, Outcome, Work, send
from ipulaunch.workers.server.tensors import numpy_type, type_name

_PR_SET_PDEATHSIG = 1
_ANSWER_S = 30.0  # for a server that is up to say what a model takes
READY = "ready"  # what a sender says before it waits for the others


class SenderError(IpulaunchError):
    """What a process of ours says is wrong; the exit code is its own."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        super().__init__(said["error"], hint=said["hint"])
        self.exit_code = said["exit_code"]


class Child(NamedTuple):
    """A process of ours, and the pipe that its results come through."""

    pid: int
    results: int


def run(options: Mapping[str, Any], report: Report) -> Dict[str, Any]:
    """Send all requests, and return what was measured."""
    signature = _signature(options)
    work = Work(
        options["address"],
        options["model"],
        signature,
        _fitting(_samples(options), signature),
        _labels(Path(options["directory"], LABELS)),
        options["batch_size"],
        options["images"],
        options["is_async"],
    )
    count = options["senders"]
    return _summary(work, _measure(work, count, report), options["is_verbose"])


def _signature(options: Mapping[str, Any]) -> Signature:
    """What the model takes, asked by a process of its own: grpc must not have been used before a fork."""

    def ask(say: Callable[[Any], None]) -> None:
        client = Client(options["address"])
        client.wait_until_up(options["timeout"])
        say(client.signature(options["model"], _ANSWER_S))

    go, never = os.pipe()
    child = _fork(0, ask, never)
    os.close(go)
    os.close(never)
    with _ended_at_the_end([child]):
        _, (alias, (name, dtype, shape)) = _Readers([child]).next()
    return Signature(alias, Tensor(name, dtype, None if shape is None else tuple(shape)))


def _fitting(samples: Any, signature: Signature) -> Any:
    """The samples in the type that the model takes."""
    kind, tensor = numpy_type(signature.input.dtype), signature.input
    if kind is None or not tensor.fits(samples.shape, 1):
        raise DataError(
            f"the samples are {list(samples.shape[1:])}, and the model takes"
            f" {list((tensor.shape or ())[1:])} of {type_name(tensor.dtype)}",
            hint="name the workload and the configuration that the model was exported with",
        )
    return samples if samples.dtype == kind else samples.astype(kind)


def _samples(options: Mapping[str, Any]) -> Any:
    """The samples, which all senders have in one memory."""
    return np.memmap(Path(options["directory"], SAMPLES), options["dtype"], "r", shape=tuple(options["shape"]))


def _labels(path: Path) -> Any:
    return np.fromfile(path, np.int64) if path.exists() else None


def _measure(work: Work, count: int, report: Report) -> List[Outcome]:
    """The outcomes of all senders: they start together, when the last one is ready."""
    go, start = os.pipe()
    children: List[Child] = []
    with _ended_at_the_end(children):
        for number in range(count):

            def work_of(say: Callable[[Any], None], number: int = number) -> None:
                def ready() -> None:
                    say(READY)
                    os.read(go, 1)  # until all copies of its other end are closed

                say(send(work, number, ready)._asdict())

            children.append(_fork(number, work_of, start))
        os.close(go)
        readers = _Readers(children)
        for done in range(1, count + 1):
            readers.next()
            report({"event": "progress", "what": "senders ready", "done": done, "total": count})
        os.close(start)
        outcomes: Dict[int, Outcome] = {}
        while len(outcomes) < count:
            number, outcome = readers.next()
            outcomes[number] = Outcome(**outcome)
            report({"event": "progress", "what": "senders done", "done": len(outcomes), "total": count})
    return [outcomes[number] for number in range(count)]


def _fork(number: int, work: Callable[[Callable[[Any], None]], None], not_for_it: int) -> Child:
    """Do some work in a process of its own, which ends with us, and says things through a pipe."""
    results, say_to = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(say_to)
        return Child(pid, results)
    try:  # from here on, nothing may return to what the parent does
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        os.close(not_for_it)
        os.close(results)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        with os.fdopen(say_to, "w", encoding="utf-8") as stream:

            def say(value: Any) -> None:
                stream.write(json.dumps(value) + "\n")
                stream.flush()

            try:
                work(say)
            except ServerError as error:
                text = f"the server answers a request of sender {number + 1} with {error}"
                say({"error": text, "hint": "", "exit_code": JobError.exit_code})
            except IpulaunchError as error:
                say({"error": error.message, "hint": error.hint, "exit_code": error.exit_code})
    except BaseException:  # noqa: BLE001 - the edge of a process
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


class _Readers:
    """What the children say, as it comes. One that ends without a word is an error."""

    def __init__(self, children: List[Child]) -> None:
        self._children = children
        self._streams = {child.results: os.fdopen(child.results, encoding="utf-8") for child in children}
        self._numbers = {child.results: number for number, child in enumerate(children)}

    def next(self) -> Tuple[int, Any]:
        """The next value, and the number of the child that says it."""
        (found, *_), _, _ = select.select(list(self._streams), [], [])
        number = self._numbers[found]
        line = self._streams[found].readline()
        if not line.endswith("\n"):
            raise JobError(f"sender {number + 1} {self._end(number)} before it had all of its answers")
        value = json.loads(line)
        if isinstance(value, dict) and "error" in value:
            raise SenderError(value)
        if value != READY:
            del self._streams[found]
        return number, value

    def _end(self, number: int) -> str:
        _, status = os.waitpid(self._children[number].pid, 0)
        code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return f"was ended by {signal.Signals(code).name}" if code else f"ended with exit code {os.WEXITSTATUS(status)}"


@contextlib.contextmanager
def _ended_at_the_end(children: List[Child]) -> Any:
    """When this is left, none of these processes is left."""
    try:
        yield
    except BaseException:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        raise
    finally:
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)


def _summary(work: Work, outcomes: List[Outcome], is_verbose: bool) -> Dict[str, Any]:
    latencies = np.array([latency for outcome in outcomes for latency in outcome.latencies]) * 1000
    seconds = max(outcome.ended_at for outcome in outcomes) - min(outcome.started_at for outcome in outcomes)
    images = work.images * len(outcomes)
    labelled = sum(outcome.labelled for outcome in outcomes)
    p50, p90, p99 = (float(each) for each in np.percentile(latencies, [50, 90, 99]))
    result: Dict[str, Any] = {
        "senders": len(outcomes),
        "batch_size": work.batch_size,
        "requests": len(latencies),
        "samples": images,
        "seconds": seconds,
        "throughput": images / seconds,
        "latency_ms": {
            "mean": float(latencies.mean()),
            "p50": p50,
            "p90": p90,
            "p99": p99,
            "min": float(latencies.min()),
            "max": float(latencies.max()),
        },
        "accuracy": sum(outcome.right for outcome in outcomes) / labelled if labelled else None,
        "distinct_samples": min(len(work.samples), images),
    }
    if is_verbose:
        result["first_sender_ms"] = [1000 * latency for latency in outcomes[0].latencies]
    return result
