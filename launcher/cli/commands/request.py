"""`ipulaunch request`: the published flow in one line: export, serve, send from many processes, measure."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.messages import note
from ipulaunch.configs.settings.schema import whole_path
from ipulaunch.launcher.cli.groups import WorkloadGroup
from ipulaunch.launcher.cli.measurement import MeasurementOptions, measure
from ipulaunch.launcher.cli.options import SERVED_MODEL, SERVER, Decorator, decorate, with_help
from ipulaunch.launcher.cli.settings_options import settings_from, settings_options, workload_command
from ipulaunch.launcher.engines.registry import choose_engine, refuse_silent_rehearsal
from ipulaunch.launcher.serving.servers import RUNNING_TIMEOUT_S, TIMEOUT_S
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.show.picture import table

_WEIGHTS = "training__checkpoint_input_dir"
_WEIGHTS_HELP = "A run, or a directory with checkpoints: the newest has the weights. Default: random weights."
# What --server leaves nothing to do for.
_OF_OUR_SERVER = (
    *("port", "rest_port", "serving_bin_path", "own_server"),
    *("iterations", "pipeline_serving_model", _WEIGHTS),
)

_OPTIONS: List[Decorator] = [
    click.option(
        "--server", metavar="HOST:PORT", help="Only send, to this server, which may be any TensorFlow Serving."
    ),
    *SERVER,
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
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        help=f"Seconds to wait for the server to answer. Default: {TIMEOUT_S:g}; with --server {RUNNING_TIMEOUT_S:g}.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the measurement as JSON."),
]


@click.group("request", cls=WorkloadGroup, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
def command() -> None:
    """Measure the serving of a workload: ipulaunch request imagenet --config resnet50_infer_bs16 --num-threads 32

    It exports the model, serves it, sends validation samples from many processes at once, and prints throughput,
    latency and accuracy. Nothing of it is left. Without a data set the samples are synthetic.
    """


@command.for_each_workload
def _command(workload: str) -> click.Command:
    @workload_command(workload, f"Measure the serving of {workload}: export, serve, send, measure.")
    @_with_options
    @settings_options(workload)
    def request(**values: Any) -> None:
        as_json = values.pop("as_json")
        if values["server"] is not None:
            _refuse_options_of_our_server()
        weights = values.pop(_WEIGHTS)
        values["weights"] = None if weights is None else whole_path(str(weights))
        options = MeasurementOptions(**{name: values.pop(name) for name in MeasurementOptions._fields})
        engine = choose_engine(options.engine, dry_run=False)
        if values["rehearsal"] is None:
            refuse_silent_rehearsal(engine, options.engine, "--engine openmpi")
        resolved = settings_from(workload, values, on_cpus=engine.is_rehearsal)
        show_messages(map(note, resolved.notes))
        _print_measurement(measure(resolved, options), as_json)

    with_help(request, {_WEIGHTS: _WEIGHTS_HELP})
    for option in request.params:  # here it is the batch of a request
        if option.name == "training__micro_batch_size":
            option.opts = [name for name in option.opts if name != "--batch-size"]
    return request


def _with_options(command: Any) -> Any:
    return decorate(command, _OPTIONS)


def _refuse_options_of_our_server() -> None:
    context = click.get_current_context()
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in _OF_OUR_SERVER
        and context.get_parameter_source(option.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UsageError(
            f"--server only sends, and {', '.join(given)} say what is exported and served", hint="leave one of them out"
        )


def _print_measurement(result: Dict[str, Any], as_json: bool) -> None:
    """Throughput, latency, and accuracy where the samples have labels."""
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    for number, latency in enumerate(result.get("first_sender_ms", ())):
        click.echo(f"request {number}: {latency:.2f} ms")
    latency = result["latency_ms"]
    shown = ("mean", "p50", "p90", "p99", "min", "max")
    server = "ipulaunch's own server" if result["server"] == "own" else result["server"]
    rows = [
        ("server", f"{server}, model {result['model']}"),
        ("sent", f"{result['requests']} requests of {result['batch_size']} from {result['senders']} senders"),
        ("latency", ", ".join(f"{name} {latency[name]:.2f}" for name in shown) + " ms"),
    ]
    if result["accuracy"] is not None:
        which = "synthetic samples" if result["samples_are_synthetic"] else "samples"
        rows.append(("accuracy", f"{result['accuracy']:.4f} on {result['distinct_samples']} {which}"))
    click.echo(table(rows))
    click.echo(f"Average throughput: {result['throughput']:.1f} samples/sec")
