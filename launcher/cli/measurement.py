"""A measurement of a server: samples are prepared, many processes send them, and what they measure comes back."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import click

from ipulaunch.configs.errors import IpulaunchError, StoppedError, UsageError
from ipulaunch.configs.runs.job import Job, set_options, to_yaml
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.launcher.cli.data_tasks import follow, make_progress
from ipulaunch.launcher.serving.address import Address, require_free, takes_connections
from ipulaunch.launcher.serving.model_server import find_model_server
from ipulaunch.launcher.serving.process import ServerProcess
from ipulaunch.launcher.serving.served import ExportFailed, exported
from ipulaunch.launcher.serving.servers import LOOPBACK, RUNNING_TIMEOUT_S, TIMEOUT_S, ready_line, started
from ipulaunch.launcher.supervise.stop_signals import StopSignals

_END_S = 2.0  # for a server that is ending to be gone when its senders have failed


class MeasurementOptions(NamedTuple):
    """What is measured, and how."""

    server: Optional[str]  # HOST:PORT of somebody else's
    port: int
    rest_port: int
    served_name: Optional[str]
    batch_size: int
    senders: int
    images: int  # of each sender
    is_async: bool
    is_verbose: bool
    iterations: Optional[int]
    pipeline_serving_model: bool
    weights: Optional[str]  # the directory of a run, or of checkpoints
    engine: Optional[str]
    serving_bin_path: Optional[Path]
    own_server: bool
    timeout: Optional[float]


def measure(resolved: Resolved, options: MeasurementOptions) -> Dict[str, Any]:
    """Measure a server that is there, or one that is started for it. Nothing is left, however it ends."""
    text = "the measurement was stopped, and nothing of it is left"
    with StopSignals() as stopping:
        try:
            with stopping.interrupting():
                return _measure_server(resolved, options) if options.server else _measure_export(resolved, options)
        except ExportFailed as error:
            raise click.exceptions.Exit(error.code) from error
        except KeyboardInterrupt:
            if stopping.first == signal.SIGINT:
                click.echo(text, err=True)
                raise
            raise StoppedError(text) from None


def _measure_server(resolved: Resolved, options: MeasurementOptions) -> Dict[str, Any]:
    name = options.served_name or resolved.config or resolved.workload
    host, _, port = str(options.server).rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--server is {options.server}, expected HOST:PORT", hint=f"such as {options.server}:8500")
    with tempfile.TemporaryDirectory(prefix="ipulaunch-samples-") as directory:
        samples = _prepare(resolved, options, directory)
        click.echo(f"waiting for {options.server}", err=True)
        return {"server": options.server, "model": name, **_send(str(options.server), name, options, samples)}


def _measure_export(resolved: Resolved, options: MeasurementOptions) -> Dict[str, Any]:
    model_server = None if options.own_server else find_model_server(options.serving_bin_path, os.environ)
    address = Address(LOOPBACK, options.port, options.rest_port)
    require_free(address)
    ready: Dict[str, Any] = {}

    def note(event: Dict[str, Any]) -> None:
        if event["event"] == "ready":
            ready.update(event)
            click.echo(ready_line(event), err=True)

    with exported(_export_words(resolved, options), options.served_name) as served, tempfile.TemporaryDirectory(
        prefix="ipulaunch-samples-"
    ) as directory:
        samples = _prepare(resolved, options, directory)
        with started(served, address, model_server, note, options.timeout or TIMEOUT_S) as server:
            try:
                measured = _send(f"{LOOPBACK}:{ready['port']}", served.name, options, samples)
            except IpulaunchError:
                _blame(server, ready["port"])
                raise
    return {"server": ready["server"], "model": served.name, **measured}


def _export_words(resolved: Resolved, options: MeasurementOptions) -> List[str]:
    """The words of the export: the same settings, as `ipulaunch export` takes them."""
    words = [resolved.workload, "--rehearsal" if resolved.rehearsal else "--no-rehearsal", *set_options(resolved)]
    if options.engine is not None:
        words += ["--engine", options.engine]
    if options.iterations is not None:
        words += ["--iterations", str(options.iterations)]
    if options.weights is not None:
        words += ["--checkpoint-input-dir", options.weights]
    if options.pipeline_serving_model:
        words.append("--pipeline-serving-model")
    return words


def _prepare(resolved: Resolved, options: MeasurementOptions, directory: str) -> Dict[str, Any]:
    """Write the samples that the settings name; what is read is the same for CPUs and IPUs."""
    job = to_yaml(Job(resolved.workload, "cpu", resolved.settings))
    count = options.senders * options.images
    result = _task("samples", {"job": job, "count": count, "directory": directory})
    return {"directory": directory, **{name: result[name] for name in ("dtype", "shape", "is_synthetic")}}


def _send(address: str, name: str, options: MeasurementOptions, samples: Dict[str, Any]) -> Dict[str, Any]:
    names = ("batch_size", "senders", "images", "is_async", "is_verbose")
    what = {name: getattr(options, name) for name in names}
    # Ours has said that it answers: if it does not, it has ended.
    what["timeout"] = 0 if options.server is None else options.timeout or RUNNING_TIMEOUT_S
    result = _task("sending", {**what, **samples, "address": address, "model": name})
    return {**result, "samples_are_synthetic": samples["is_synthetic"]}


def _task(task: str, options: Dict[str, Any]) -> Dict[str, Any]:
    argv = [sys.executable, "-m", "ipulaunch.workers.server", task]
    return follow(argv, options, make_progress(sys.stderr)).result


def _blame(server: ServerProcess, port: int) -> None:
    """Raise the server's own end, if it has ended: its senders only see that it does not answer."""
    if server.has_ended(0.0 if takes_connections(LOOPBACK, port) else _END_S):
        server.require_living()
