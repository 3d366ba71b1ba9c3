"""`ipulaunch data`: make, build, index, verify, audit and measure data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

import click

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.run_directory import records_of
from ipulaunch.configs.wording import counted
from ipulaunch.launcher.commands.status import runs_dir
from ipulaunch.launcher.data_tasks import run_task
from ipulaunch.launcher.picture import table
from ipulaunch.launcher.run_states import find_run

_MOST_DEFECTS = 50  # that are listed; --json has all

_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group("data")
def command() -> None:
    """Make, build, index, verify, audit and measure data sets."""


@command.group("make")
def make() -> None:
    """Write a small set of synthetic samples in a published format. A model can learn from them."""


def _make_options(samples: int, validation_samples: int) -> Callable[[Any], Any]:
    """What every maker takes."""

    def add(function: Any) -> Any:
        options = [
            click.option("--out", type=click.Path(), required=True, help="New or empty directory to write to."),
            click.option(
                "--samples", type=click.IntRange(1), default=samples, show_default=True, help="Training samples."
            ),
            click.option(
                "--validation-samples",
                type=click.IntRange(1),
                default=validation_samples,
                show_default=True,
                help="Validation samples.",
            ),
            click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the samples."),
            _json,
        ]
        for option in reversed(options):
            function = option(function)
        return function

    return add


@make.command("cosmoflow")
@_make_options(256, 64)
@click.option(
    "--side", type=click.IntRange(2), default=32, show_default=True, help="Voxels per edge; 128 in the published set."
)
@click.option(
    "--samples-per-file",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Samples in each file; 1 in the published set.",
)
@click.option("--gzip", is_flag=True, help="Compress the files.")
def make_cosmoflow(as_json: bool, **options: Any) -> None:
    """Write random fields as int16 volumes; the targets are amplitude, slope, cut-off and mean."""
    _print_made(run_task("make_cosmoflow", options).result, as_json)


@make.command("imagenet")
@_make_options(1000, 200)
@click.option(
    "--side", type=click.IntRange(8), default=500, show_default=True, help="Approximate width in pixels; sizes vary."
)
@click.option("--files", type=click.IntRange(1, 99999), default=8, show_default=True, help="Training files.")
@click.option(
    "--classes",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Number of classes; labels start at 1.",
)
@click.option("--boxes", is_flag=True, help="Add the bounding box of each object.")
def make_imagenet(as_json: bool, **options: Any) -> None:
    """Write JPEGs of about 500 x 375 in TFRecord files; colour, stripes and a spot show the class."""
    _print_made(run_task("make_images", {"kind": "imagenet", **options}).result, as_json)


@make.command("cifar10")
@_make_options(5000, 1000)
def make_cifar10(as_json: bool, **options: Any) -> None:
    """Write the Python and the binary batches."""
    _print_made(run_task("make_images", {"kind": "cifar10", **options}).result, as_json)


@make.command("mnist")
@_make_options(6000, 1000)
def make_mnist(as_json: bool, **options: Any) -> None:
    """Write the four idx files, compressed with gzip."""
    _print_made(run_task("make_images", {"kind": "mnist", **options}).result, as_json)


@command.group("build")
def build() -> None:
    """Build record files from raw data."""


@build.command("imagenet")
@click.option(
    "--raw",
    type=click.Path(),
    required=True,
    help="Directory with train/ and validation/, or with ILSVRC2012_img_*.tar.",
)
@click.option(
    "--out", type=click.Path(), required=True, help="New directory, or that of an interrupted build to continue."
)
@click.option("--shards", type=click.IntRange(1, 99999), help="Training files; validation gets an eighth as many.")
@click.option(
    "--longest-side", type=click.IntRange(1), help="Shrink images whose longest side has more pixels than this."
)
@click.option(
    "--validation-labels", type=click.Path(), help="File with the class of each validation image, one per line."
)
@click.option("--workers", type=click.IntRange(1), help="Files to write at the same time. Default: one per core.")
@_json
def build_imagenet(as_json: bool, **options: Any) -> None:
    """Turn class folders or the challenge's archives into TFRecord files. An interrupted build continues."""
    result = run_task("build_imagenet", options).result
    if as_json:
        _print_json(result)
        return
    for split, count in result["images"].items():
        click.echo(f"{split}: {count} images in {counted(result['shards'][split], 'file')}")
    click.echo(f"{result['classes']} classes; {result['converted']} images converted, {result['kept']} files kept")
    click.echo(f"in {result['out']}")


@command.command("index")
@click.argument("directory", type=click.Path())
@_json
def index(as_json: bool, **options: Any) -> None:
    """Build the record index of a set if it is missing or out of date."""
    result = run_task("index", options).result
    if as_json:
        _print_json(result)
        return
    if not result["splits"]:
        click.echo(f"{result['kind']} is read whole and needs no index")
    for split, about in result["splits"].items():
        click.echo(f"{split}: {counted(about['records'], 'record')} in {counted(about['files'], 'file')}")
    for place in dict.fromkeys(about["index"] for about in result["splits"].values()):
        click.echo(f"index: {place}" if place else "index: not kept, because no place for it is writable")


@command.command("verify")
@click.argument("directory", type=click.Path())
@click.option(
    "--instances", type=click.IntRange(1), help="Show the samples per instance, for this many instances. Default: 1."
)
@click.option(
    "--replicas",
    type=click.IntRange(1),
    help="Show the samples per instance, for this many replicas in all. Default: one per instance.",
)
@click.option(
    "--micro-batch-size",
    type=click.IntRange(1),
    help="Show the samples per instance, for micro-batches of this size. Default: 1.",
)
@click.option(
    "--gradient-accumulation-count",
    type=click.IntRange(1),
    help="Show the samples per instance, for this many micro-batches per weight update. Default: 1.",
)
@_json
def verify(as_json: bool, **options: Any) -> None:
    """Check every checksum, every field, and the header and end of every image of a set."""
    result, defects = run_task("verify", options)
    if as_json:
        _print_json({**result, "defects": defects})
    else:
        _print_verified(result, defects)
    if defects:
        raise DataError(f"{counted(len(defects), 'defect')} in {options['directory']}")


def _print_verified(result: Mapping[str, Any], defects: List[Dict[str, Any]]) -> None:
    for defect in defects[:_MOST_DEFECTS]:
        where = f", record {defect['record']} at byte {defect['offset']}" if defect["record"] is not None else ""
        click.echo(f"{defect['file']}{where}: {defect['message']}")
    if len(defects) > _MOST_DEFECTS:
        click.echo(f"... {len(defects) - _MOST_DEFECTS} more; --json lists all")
    for note in result["notes"]:
        click.echo(f"note: {note['message']}: {_counted_places(note)}")
    form = f" of {result['form']}" if result["form"] else ""
    for split, records in result["records"].items():
        files = counted(result["files"][split], "file")
        click.echo(f"{split}: {counted(records, 'record')}{form} in {files}{_share(result['shards'].get(split))}")
    if not defects:
        what = "checksum and field" if result["kind"] in ("cosmoflow", "imagenet") else "size and label"
        click.echo(f"ok: {_size(result['bytes'])} read, every {what} is right")


def _counted_places(note: Mapping[str, Any]) -> str:
    """How many records an oddity is in, or files, of which the first is named."""
    files = [place["file"] for place in note["places"] if place["record"] is None]
    return f"{counted(note['records'], 'file')}, {files[0]}" if files else counted(note["records"], "record")


def _share(share: Optional[Mapping[str, Any]]) -> str:
    if share is None:
        return ""
    rest = f"{share['left_out']} left out" if "left_out" in share else f"{share['padded']} padded"
    return (
        f"; {counted(share['instances'], 'instance')} x {share['per_instance']} samples"
        f" in {counted(share['steps'], 'step')}, {rest}"
    )


@command.command("audit")
@click.argument("run")
@runs_dir
@_json
def audit(run: str, runs_dir: Path, as_json: bool) -> None:
    """Check from the trace of RUN, a directory or a name, that each sample was used once in every epoch."""
    path = str(records_of(find_run(run, runs_dir)).path)
    result, defects = run_task("audit", {"run": path})
    messages = [defect["message"] for defect in defects]
    if as_json:
        _print_json({**result, "messages": messages})
    else:
        click.echo("\n".join([*messages, *_audited(result)]))
    if result["discrepancies"]:
        count = counted(result["discrepancies"], "discrepancy", "discrepancies")
        raise DataError(f"{count} in {path}")


def _audited(result: Mapping[str, Any]) -> List[str]:
    since = f", from update {result['first_update']} on," if result["first_update"] else ""
    if result["last_update"] < result["epochs"] * result["updates_per_epoch"]:
        since += f"{'' if since else ','} up to update {result['last_update']},"
    lines = [
        f"{counted(result['rows'], 'row')} of {counted(result['instances'], 'instance')}"
        f" and {counted(result['replicas'], 'replica')}:"
        f" {counted(result['epochs'], 'epoch')} of {counted(result['updates_per_epoch'], 'update')}{since}"
        f" of {result['global_batch']} out of {result['samples']} samples, remainder {result['remainder']}"
    ]
    if result["replaced"]:
        unread = counted(result["replaced"], "sample")
        lines.append(f"note: {unread} could not be read and made way for a neighbour, as the run has recorded")
    if not result["discrepancies"]:
        once = {
            "drop": "no sample was taken twice in a pass",
            "repeat": "every sample was taken in every whole pass, twice only to fill the last update",
            "pad": "every sample was taken in every whole pass, twice only as padding",
        }
        lines += [
            "ok: every step of every replica was filled",
            f"ok: {'but for those, ' if result['replaced'] else ''}{once[result['remainder']]}",
            "ok: every micro-batch is the one that seed and epoch say",
            "ok: all instances took as many samples",
        ]
    return lines


@command.command("bench")
@click.argument("workload", type=click.Choice(["cosmoflow", "imagenet"]))
@click.option("--data-dir", type=click.Path(), help="Set to read. Default: a small one, generated for the purpose.")
@click.option(
    "--instances", type=click.IntRange(1), default=1, show_default=True, help="Processes that read at the same time."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=5.0,
    show_default=True,
    help="Seconds to measure each pipeline for.",
)
@_json
def bench(as_json: bool, **options: Any) -> None:
    """Compare our input pipeline with a conventional tf.data one and with what the machine can do at most."""
    result = run_task("bench", options).result
    if as_json:
        _print_json(result)
        return
    head = ("pipeline", "samples/s", "MB/s", "per core", "first batch s", "memory MB")
    names = ("samples_per_s", "mb_per_s", "per_core", "first_batch_s", "memory_mb")
    rows = [(str(row["pipeline"]), *(_number(row[name]) for name in names)) for row in result["rows"]]
    click.echo(table([head, *rows]))
    for name, ratio in result["ratios"].items():
        click.echo(f"{name}: {ratio:.2f}")


def _print_made(result: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        _print_json(result)
        return
    counts = result["samples"]
    click.echo(
        f"{counts['train']} training and {counts['validation']} validation samples"
        f" in {counted(result['files'], 'file')}, {_size(result['bytes'])}, in {result['out']}"
    )


def _print_json(data: Mapping[str, Any]) -> None:
    click.echo(json.dumps(data, indent=1))


def _number(value: Optional[float]) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
