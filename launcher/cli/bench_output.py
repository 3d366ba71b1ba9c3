"""What `ipulaunch bench` prints."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence

import click

from ipulaunch.configs.benchmarks import Benchmark
from ipulaunch.configs.messages import Message
from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.configs.text import some
from ipulaunch.launcher.bench import tables
from ipulaunch.launcher.bench.comparing import Earlier, differences
from ipulaunch.launcher.bench.preparing import Prepared
from ipulaunch.launcher.bench.results import VariantResult, as_csv, as_json
from ipulaunch.launcher.bench.variants import timeout_of, working_directory
from ipulaunch.launcher.launch.redaction import redacted
from ipulaunch.launcher.show.picture import table

_LONGEST_TIMEOUT_S = 1e12


def print_list(benchmarks: Sequence[Benchmark], as_data: bool) -> None:
    """The benchmarks of a specification and their variants."""
    found = tables.listed(benchmarks)
    click.echo(json.dumps(found, indent=1) if as_data else "\n".join(tables.listed_lines(found)))


def print_commands(prepared: Sequence[Prepared], timeout_s: float, as_data: bool) -> None:
    """What would run, as a POSIX shell reads it."""
    values = secret_values(os.environ)
    found: List[Dict[str, Any]] = []
    for each in prepared:
        if not each.result.error:
            benchmark = each.result.variant.benchmark
            limit_s = timeout_of(benchmark, timeout_s)
            found.append(
                {
                    "variant_name": each.result.variant.name,
                    "directory": str(working_directory(benchmark, each.logs)),
                    "command": redacted(each.command, values).shell(),
                    "timeout": limit_s if limit_s < _LONGEST_TIMEOUT_S else None,
                }
            )
    if as_data:
        click.echo(json.dumps(found, indent=1))
        return
    for line in found:
        limit = "" if line["timeout"] is None else f", at most {line['timeout']:g} s"
        click.echo(f"# {line['variant_name']}{limit}\ncd {shlex.quote(line['directory'])}\n{line['command']}")


def print_results(
    found: Mapping[str, Any],
    results: Sequence[VariantResult],
    earlier: Optional[Earlier],
    *,
    as_data: bool,
    as_rows: bool,
) -> None:
    """The results on stdout: a table, JSON or CSV; what makes a comparison doubtful on stderr."""
    doubts = differences(earlier, found) if earlier is not None else []
    for doubt in doubts:
        click.echo(f"note: {doubt}", err=True)
    if as_data:
        more = {} if earlier is None else {"changes": tables.changes(results, earlier), "differences": doubts}
        click.echo(as_json({**found, **more}), nl=False)
    elif as_rows:
        click.echo(as_csv(results), nl=False)
    else:
        _print_table(tables.result_rows(results, found["rounds"], earlier))


def _print_table(rows: Sequence[tables.Row]) -> None:
    if not sys.stdout.isatty():
        click.echo(table(rows))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(*rows[0], box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in shown.columns:
        column.overflow = "fold"
    for row in rows[1:]:
        shown.add_row(*map(Text, row))
    Console(highlight=False, emoji=False).print(shown)


def grouped(benchmarks: Sequence[Benchmark]) -> List[Message]:
    """The messages of these benchmarks, each text once, with the names of those it is about."""
    names: Dict[Message, List[str]] = {}
    for benchmark in benchmarks:
        for message in benchmark.messages:
            names.setdefault(message, []).append(benchmark.name)
    return [Message(message.kind, f"{some(about)}: {message.text}") for message, about in names.items()]
