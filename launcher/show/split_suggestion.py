"""Pipeline splits that a plan proposes for a network."""

from __future__ import annotations

import json
from typing import Any, Optional

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.messages import note
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.launcher.launch.memory_check import megabytes
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.show.picture import table
from ipulaunch.topology.capacity.even_splits import MEASURES, MEMORY, even_splits
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.planning.rules import IPUS_PER_REPLICA

SUGGEST = "--suggest-splits"


def splits_options(command: Any) -> Any:
    """The options of a command that proposes splits."""
    command = click.option(
        "--splits-by",
        type=click.Choice(MEASURES),
        help="With --suggest-splits: what the stages should have equal shares of. Default: flops.",
    )(command)
    return click.option(
        SUGGEST,
        type=click.IntRange(2),
        metavar="STAGES",
        help="Propose pipeline splits for so many even stages, and stop.",
    )(command)


def refuse_splits_by(by: Optional[str], stages: Optional[int]) -> None:
    """Refuse --splits-by where no splits are proposed."""
    if by is not None and stages is None:
        raise UsageError(f"--splits-by {by} is for --suggest-splits", hint="give --suggest-splits STAGES")


def print_suggestion(settings: WorkloadSettings, stages: int, by: str, as_json: bool) -> None:
    """Print splits into so many even stages; refuses settings that have splits already."""
    if settings.pipeline.splits:
        raise UsageError("--suggest-splits looks for splits, and some are given", hint="leave --pipeline-splits out")
    network = network_of(settings)
    micro_size = settings.training.micro_batch_size
    found = even_splits(settings, stages, by)
    starts = [network.layers[0].name, *found.splits]
    if as_json:
        needs = [{MEMORY: memory.as_data()} for memory in found.memory] or [{}] * stages
        costs = [
            {"first_layer": first, **cost._asdict(), **need} for first, cost, need in zip(starts, found.costs, needs)
        ]
        click.echo(json.dumps({"splits": found.splits, "balance": found.balance, "stages": costs}, indent=1))
        return
    head = ["stage", "first layer", "GFLOP", "share", "parameters", "activations", *(["MB"] if found.memory else [])]
    rows = [head]
    for number, (cost, first, size) in enumerate(zip(found.costs, starts, found.sizes)):
        share = f"{size / sum(found.sizes):.0%}"
        row = [f"{number}", first, f"{cost.flops / 1e9:.3g}", share, f"{cost.parameters:,}", f"{cost.activations:,}"]
        rows.append([*row, *([megabytes(found.memory[number].bytes)] if found.memory else [])])
    click.echo(
        f"{network.name} in {stages} stages, balance {found.balance:.0%} by {by}. Computed for a micro-batch of"
        f" {micro_size}, forward and backward{', with recomputation' if found.memory else ''}:\n"
    )
    click.echo(table(rows) + "\n")
    options = [*(["--recomputation"] if found.memory else []), *(f"--pipeline-splits {name}" for name in found.splits)]
    click.echo(" ".join(options))
    if stages not in IPUS_PER_REPLICA:
        text = f"a replica has no {stages} IPUs (R6): put several stages on an IPU with --device-mapping"
        show_messages([note(text)])
