"""`ipulaunch request`: the published flow in one line: export, serve, send from many processes, measure."""

from __future__ import annotations

from typing import Any, List, Optional

import click

from ipulaunch.configs.messages import note
from ipulaunch.configs.settings.workloads import SUMMARIES
from ipulaunch.launcher.cli.groups import NearMissGroup
from ipulaunch.launcher.cli.measurement import MeasurementOptions, measure
from ipulaunch.launcher.cli.options import PATH, SERVED_MODEL, Decorator, decorate
from ipulaunch.launcher.cli.request_output import print_measurement
from ipulaunch.launcher.cli.settings_options import settings_from, settings_options, workload_command
from ipulaunch.launcher.engines.registry import choose_engine, refuse_silent_rehearsal
from ipulaunch.launcher.serving.servers import RUNNING_TIMEOUT_S, TIMEOUT_S
from ipulaunch.launcher.show.messages import show_messages

_OPTIONS: List[Decorator] = [
    click.option(
        "--server", metavar="HOST:PORT", help="Only send, to this server, which may be any TensorFlow Serving."
    ),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8500,
        show_default=True,
        help="Port to serve on; 0 takes a free one.",
    ),
    click.option(
        "--rest-port",
        type=click.IntRange(0, 65535),
        default=8501,
        show_default=True,
        help="Port of REST; 0 takes a free one.",
    ),
    click.option(
        "--served-name",
        metavar="NAME",
        help="Name of the model on the server. Default: the configuration, or the workload.",
    ),
    click.option("--batch-size", type=click.IntRange(1), default=1, show_default=True, help="Samples of a request."),
    click.option(
        "--num-threads",
        "senders",
        type=click.IntRange(1, 1024),
        default=2,
        show_default=True,
        help="Number of processes that send.",
    ),
    click.option(
        "--num-images",
        "images",
        type=click.IntRange(1),
        default=1000,
        show_default=True,
        help="Samples that each of them sends.",
    ),
    click.option(
        "--use-async",
        "is_async",
        is_flag=True,
        help="Send without waiting for the answers before, at most 16 at a time.",
    ),
    click.option(
        "--verbose", "-v", "is_verbose", is_flag=True, help="Print the latency of each request of the first sender."
    ),
    *SERVED_MODEL,
    click.option(
        "--serving-bin-path", type=PATH, help="TensorFlow Serving's tensorflow_model_server. Default: the one found."
    ),
    click.option(
        "--own-server", is_flag=True, help="Use ipulaunch's own server, even where tensorflow_model_server is found."
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        help=f"Seconds to wait for the server to answer. Default: {TIMEOUT_S:g}; with --server {RUNNING_TIMEOUT_S:g}.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the measurement as JSON."),
]


class RequestCommands(NearMissGroup):
    """One command for each workload."""

    def list_commands(self, ctx: click.Context) -> List[str]:
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        return _command(name) if name in SUMMARIES else None


@click.group("request", cls=RequestCommands, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
def command() -> None:
    """Measure the serving of a workload: ipulaunch request imagenet --config resnet50_infer_bs16 --num-threads 32

    It exports the model, serves it, sends validation samples from many processes at once, and prints throughput,
    latency and accuracy. Nothing of it is left. Without a data set the samples are synthetic.
    """


def _command(workload: str) -> click.Command:
    @workload_command(workload, f"Measure the serving of {workload}: export, serve, send, measure.")
    @_with_options
    @settings_options(workload)
    def request(**values: Any) -> None:
        as_json = values.pop("as_json")
        options = MeasurementOptions(**{name: values.pop(name) for name in MeasurementOptions._fields})
        engine = choose_engine(options.engine, dry_run=False)
        if values["rehearsal"] is None:
            refuse_silent_rehearsal(engine, options.engine, "--engine openmpi")
        resolved = settings_from(workload, values, on_cpus=engine.is_rehearsal)
        show_messages(map(note, resolved.notes))
        print_measurement(measure(resolved, options), as_json)

    for option in request.params:  # here it is the batch of a request
        if option.name == "training__micro_batch_size":
            option.opts = [name for name in option.opts if name != "--batch-size"]
    return request


def _with_options(command: Any) -> Any:
    return decorate(command, _OPTIONS)
