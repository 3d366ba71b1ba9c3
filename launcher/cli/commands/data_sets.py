"""`ipulaunch data make` and `ipulaunch data build`: new data sets, synthetic ones and those from raw data."""

from __future__ import annotations

import json
from typing import Any, Callable, Mapping

import click

from ipulaunch.configs.text import counted
from ipulaunch.launcher.cli.data_tasks import run_task

_MOST_LEFT_OUT = 50  # that are listed; --json has all

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def number_option(flag: str, default: float, kind: Any, about: str) -> Callable[[Any], Any]:
    """An option for a number, with its default in the help."""
    return click.option(flag, type=kind, default=default, show_default=True, help=about)


@click.group("make")
def make() -> None:
    """Write a small set of synthetic samples in a published format. A model can learn from them."""


def _make_options(samples: int, validation_samples: int) -> Callable[[Any], Any]:
    """What every maker takes."""

    def add(function: Any) -> Any:
        options = [
            click.option("--out", type=click.Path(), required=True, help="New or empty directory to write to."),
            number_option("--samples", samples, click.IntRange(1), "Training samples."),
            number_option("--validation-samples", validation_samples, click.IntRange(1), "Validation samples."),
            number_option("--seed", 0, click.IntRange(0), "Seed of the samples."),
            json_option,
        ]
        for option in reversed(options):
            function = option(function)
        return function

    return add


@make.command("cosmoflow", short_help="Write random fields as int16 volumes.")
@_make_options(256, 64)
@number_option("--side", 32, click.IntRange(2), "Voxels per edge; 128 in the published set.")
@number_option("--samples-per-file", 1, click.IntRange(1), "Samples in each file; 1 in the published set.")
@click.option("--gzip", is_flag=True, help="Compress the files.")
def make_cosmoflow(as_json: bool, **options: Any) -> None:
    """Write random fields as int16 volumes; the targets are amplitude, slope, cut-off and mean."""
    _print_made(run_task("make_cosmoflow", options).result, as_json)


@make.command("imagenet", short_help="Write JPEGs in TFRecord files.")
@_make_options(1000, 200)
@number_option("--side", 500, click.IntRange(8), "Approximate width in pixels; sizes vary.")
@number_option("--files", 8, click.IntRange(1, 99999), "Training files.")
@number_option("--classes", 10, click.IntRange(1, 1000), "Number of classes; labels start at 1.")
@click.option("--boxes", is_flag=True, help="Add the bounding box of each object.")
def make_imagenet(as_json: bool, **options: Any) -> None:
    """Write JPEGs of about 500 x 375 in TFRecord files; colour, stripes and a spot show the class."""
    _print_made(run_task("make_images", {"kind": "imagenet", **options}).result, as_json)


def _add_maker(kind: str, samples: int, about: str) -> None:
    """A command that writes small images in the files of a published set."""

    @make.command(kind, help=about)
    @_make_options(samples, 1000)
    def make_images(as_json: bool, **options: Any) -> None:
        _print_made(run_task("make_images", {"kind": kind, **options}).result, as_json)


_add_maker("cifar10", 5000, "Write the Python and the binary batches.")
_add_maker("cifar100", 5000, "Write the Python and the binary version.")
_add_maker("mnist", 6000, "Write the four idx files, compressed with gzip.")


@click.group("build")
def build() -> None:
    """Build record files from raw data."""


@build.command("imagenet", short_help="Turn raw images, or records, into TFRecord files.")
@click.option("--raw", type=click.Path(), help="Directory with train/ and validation/, or with ILSVRC2012_img_*.tar.")
@click.option(
    "--records", type=click.Path(), help="Directory with a set of TFRecord files to prepare, instead of raw images."
)
@click.option(
    "--out", type=click.Path(), required=True, help="New directory, or that of an interrupted build to continue."
)
@click.option(
    "--shards",
    type=click.IntRange(1, 99999),
    help="Training files; validation gets an eighth as many. Default: those of --records, else 1251 images a file.",
)
@click.option(
    "--longest-side", type=click.IntRange(1), help="Shrink images whose longest side has more pixels than this."
)
@click.option(
    "--shorter-side",
    type=click.IntRange(1),
    help="Shrink images whose shorter side has more pixels than this; 256 suits crops of 224.",
)
@click.option("--quality", type=click.IntRange(1, 100), help="Of the JPEGs that --shorter-side makes. Default: 95.")
@click.option("--pixels", is_flag=True, help="Store plain pixels, which need no decoding, instead of JPEGs.")
@click.option(
    "--validation-labels", type=click.Path(), help="File with the class of each validation image, one per line."
)
@click.option(
    "--bad-records",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="At a damaged image or record, end the build, or leave it out and say so.",
)
@click.option("--workers", type=click.IntRange(1), help="Files to write at the same time. Default: one per core.")
@json_option
def build_imagenet(as_json: bool, **options: Any) -> None:
    """Turn class folders, the challenge's archives, or record files into TFRecord files, also with smaller images.

    An interrupted build continues.
    """
    result = run_task("build_imagenet", options).result
    if as_json:
        print_json(result)
        return
    for split, count in result["images"].items():
        click.echo(f"{split}: {count} images in {counted(result['shards'][split], 'file')}")
    classes = f"{result['classes']} classes; " if result["classes"] is not None else ""
    click.echo(f"{classes}{result['converted']} images converted, {result['kept']} files kept")
    for message in (result["damaged_files"] + result["left_out"])[:_MOST_LEFT_OUT]:
        click.echo(f"left out: {message}")
    if result["left_out"]:
        click.echo(f"{counted(len(result['left_out']), 'damaged image')} left out")
    if result["preparation"]:
        click.echo(f"prepared: {result['preparation']}")
    click.echo(f"{size(result['bytes'])} in {result['out']}")


def _print_made(result: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    counts = result["samples"]
    click.echo(
        f"{counts['train']} training and {counts['validation']} validation samples"
        f" in {counted(result['files'], 'file')}, {size(result['bytes'])}, in {result['out']}"
    )


def print_json(data: Mapping[str, Any]) -> None:
    """What --json asks for."""
    click.echo(json.dumps(data, indent=1))


def size(count: int) -> str:
    """Bytes of a set for people."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
