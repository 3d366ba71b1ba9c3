"""Pipeline splits that a plan proposes for a network."""

from __future__ import annotations

import json
from typing import Optional

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.messages import note
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.show.picture import table
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.network import Cost
from ipulaunch.topology.networks.splits import suggest_splits
from ipulaunch.topology.planning.rules import IPUS_PER_REPLICA

COSTS = Cost._fields[::-1]  # what the stages can have equal shares of


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
    found = suggest_splits(network, stages, micro_size, by)
    starts = [network.layers[0].name, *found.splits]
    if as_json:
        costs = [{"first_layer": first, **cost._asdict()} for first, cost in zip(starts, found.costs)]
        click.echo(json.dumps({"splits": found.splits, "balance": found.balance, "stages": costs}, indent=1))
        return
    rows = [("stage", "first layer", "GFLOP", "share", "parameters", "activations")]
    total = sum(getattr(cost, by) for cost in found.costs)
    for number, (cost, first) in enumerate(zip(found.costs, starts)):
        share = f"{getattr(cost, by) / total:.0%}"
        rows.append(
            (f"{number}", first, f"{cost.flops / 1e9:.3g}", share, f"{cost.parameters:,}", f"{cost.activations:,}")
        )
    click.echo(
        f"{network.name} in {stages} stages, balance {found.balance:.0%} by {by}. Computed for a micro-batch of"
        f" {micro_size}, forward and backward:\n"
    )
    click.echo(table(rows) + "\n")
    click.echo(" ".join(f"--pipeline-splits {name}" for name in found.splits))
    if stages not in IPUS_PER_REPLICA:
        text = f"a replica has no {stages} IPUs (R6): put several stages on an IPU with --device-mapping"
        show_messages([note(text)])
