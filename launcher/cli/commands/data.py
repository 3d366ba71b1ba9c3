"""`ipulaunch data`: make, build, index, verify, audit and measure data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import click

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.directory import records_of
from ipulaunch.configs.text import counted
from ipulaunch.launcher.cli.commands.data_sets import build, json_option, make, number_option, print_json, size
from ipulaunch.launcher.cli.commands.status import run_argument, runs_dir
from ipulaunch.launcher.cli.data_tasks import run_task
from ipulaunch.launcher.runs.finding import find_run
from ipulaunch.launcher.show.audit import audit_lines
from ipulaunch.launcher.show.picture import table

_MOST_DEFECTS = 50  # that are listed; --json has all


@click.group("data")
def command() -> None:
    """Make, build, index, verify, audit and measure data sets."""


command.add_command(make)
command.add_command(build)


@command.command("index")
@click.argument("directory", type=click.Path())
@json_option
def index(as_json: bool, **options: Any) -> None:
    """Build the record index of a set if it is missing or out of date."""
    result = run_task("index", options).result
    if as_json:
        print_json(result)
        return
    if not result["splits"]:
        click.echo(f"{result['kind']} is read whole and needs no index")
    for split, about in result["splits"].items():
        click.echo(f"{split}: {counted(about['records'], 'record')} in {counted(about['files'], 'file')}")
    for place in dict.fromkeys(about["index"] for about in result["splits"].values()):
        click.echo(f"index: {place}" if place else "index: not kept, because no place for it is writable")


@command.command("verify", short_help="Check every record of a set.")
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
@json_option
def verify(as_json: bool, **options: Any) -> None:
    """Check every checksum, every field, and the header and end of every image of a set."""
    result, defects = run_task("verify", options)
    if as_json:
        print_json({**result, "defects": defects})
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
        click.echo(f"ok: {size(result['bytes'])} read, every {what} is right")


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


@command.command("audit", short_help="Check which samples a run has used.")
@run_argument
@runs_dir
@json_option
def audit(run: str, runs_dir: Path, as_json: bool) -> None:
    """Check from the trace of RUN, a directory or a name, that each sample was used once in every epoch."""
    path = str(records_of(find_run(run, runs_dir)).path)
    result, defects = run_task("audit", {"run": path})
    messages = [defect["message"] for defect in defects]
    if as_json:
        print_json({**result, "messages": messages})
    else:
        click.echo("\n".join([*messages, *audit_lines(result)]))
    if result["discrepancies"]:
        count = counted(result["discrepancies"], "discrepancy", "discrepancies")
        raise DataError(f"{count} in {path}")


@command.command("bench", short_help="Compare our input pipeline with others.")
@click.argument("workload", type=click.Choice(["cosmoflow", "imagenet"]))
@click.option("--data-dir", type=click.Path(), help="Set to read. Default: a small one, generated for the purpose.")
@number_option("--instances", 1, click.IntRange(1), "Processes that read at the same time.")
@number_option("--seconds", 5.0, click.FloatRange(0.1), "Seconds to measure each pipeline for.")
@click.option(
    "--cold", is_flag=True, help="Also measure with the set's files dropped from the host's memory before every pass."
)
@json_option
def bench(as_json: bool, **options: Any) -> None:
    """Compare our input pipeline with a conventional tf.data one and with what the machine can do at most."""
    result = run_task("bench", options).result
    if as_json:
        print_json(result)
        return
    head = ("pipeline", "samples/s", "+-", "CPU ms/sample", "+-", "MB/s", "per core", "first batch s", "memory MB")
    rows = [
        (
            *(row["pipeline"], _number(row["samples_per_s"]), _apart(row["spreads"]["samples_per_s"])),
            *(_number(row["processor_ms"]), _apart(row["spreads"]["processor_ms"])),
            *(_number(row[name]) for name in ("mb_per_s", "per_core", "first_batch_s", "memory_mb")),
        )
        for row in result["rows"]
    ]
    click.echo(table([head, *rows]))
    for name, ratio in result["ratios"].items():
        click.echo(f"{name}: {ratio:.2f} {_apart(result['ratio_spreads'][name])}")


def _apart(spread: float) -> str:
    """Half of the distance between the largest and the smallest of the rounds, as a part of their median."""
    return f"+-{50 * spread:.0f}%"


def _number(value: Optional[float]) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
