"""`ipulaunch compare`: runs beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional, Sequence, Tuple

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import write_whole
from ipulaunch.configs.text import counted
from ipulaunch.launcher.cli.commands.status import runs_dir
from ipulaunch.launcher.cli.options import offers

_MOST = 6  # runs: so many colours and strokes can be told apart


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", shell_complete=offers("run_names"))
@runs_dir
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME=VALUE",
    help="Tell when each run reached this: val_accuracy=0.9. Default: the best value that all have reached.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write an HTML page, with the curves over each other.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(
    runs: Tuple[str, ...], runs_dir: Path, targets: Tuple[str, ...], output: Optional[Path], as_json: bool
) -> None:
    """Compare runs: what differs in settings, plan and environment, what came of it, and what can explain it.

    Each RUN is a run directory or its name. The first one is what the others are compared with.
    """
    from ipulaunch.launcher.report.compare_text import compare_text, harmless
    from ipulaunch.launcher.report.comparison import as_data, compared
    from ipulaunch.launcher.report.effects import effects_of
    from ipulaunch.launcher.report.page import require_templates
    from ipulaunch.launcher.runs.finding import find_run
    from ipulaunch.launcher.runs.reporting import told

    if not 2 <= len(runs) <= _MOST:
        raise UsageError(f"{counted(len(runs), 'run')} to compare, expected 2 to {_MOST}")
    if output is not None:
        require_templates()
    aims = dict(map(_target, targets))
    comparison = compared([told(find_run(run, runs_dir)) for run in runs], aims)
    measured = [outcome.measure for outcome in comparison.outcomes]
    unknown = next((name for name in aims if name not in measured), None)
    if unknown is not None:
        raise UsageError(f"no run has measured {unknown}", hint=f"measured: {', '.join(measured) or 'nothing'}")
    effects = effects_of(comparison)
    if output is not None:
        _write(output, comparison, effects)
    if as_json:
        click.echo(json.dumps(harmless(as_data(comparison, effects)), indent=1))
        return
    click.echo(compare_text(comparison, effects))
    if output is not None:
        click.echo(f"\npage: {output}")


def _target(text: str) -> Tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        if name and equals:
            return name, float(value)
    except ValueError:
        pass
    raise UsageError(f"--target {text}: expected a measure and a number, such as val_accuracy=0.9")


def _write(output: Path, comparison: Any, effects: Sequence[Any]) -> None:
    from ipulaunch.launcher.report.compare_page import compare_page

    try:
        write_whole(output, compare_page(comparison, effects))
    except OSError as error:
        raise UsageError(
            f"the page {output} cannot be written: {error.strerror}", hint="give -o another place"
        ) from error
