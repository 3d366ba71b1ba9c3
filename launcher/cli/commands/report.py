"""`ipulaunch report`: a page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from ipulaunch.launcher.cli.commands.status import run_argument, runs_dir


@click.command("report")
@run_argument
@runs_dir
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write the page. Default: report.html in the run directory.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@click.option("--follow", is_flag=True, help="Write the page again every few seconds until the run has ended.")
def command(run: str, runs_dir: Path, output: Optional[Path], opens: bool, follow: bool) -> None:
    """Write one HTML page about RUN: what ran, how it went, how it ended. It needs no server and no network.

    The page can be mailed: it is one file of at most 2 MB, without secrets and without scripts. It works for runs in
    any state. While a run goes on, --follow renews the page, and the browser that shows it follows.
    """
    from ipulaunch.launcher.runs.finding import find_run
    from ipulaunch.launcher.runs.reporting import write_report

    pages = write_report(find_run(run, runs_dir), output, follows=follow)
    page = next(pages)
    click.echo(str(page))
    if opens:
        _open(page)
    for _ in pages:
        pass


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.absolute().as_uri()):
        click.echo(f"note: there is no browser here to open {page} with", err=True)
