"""`ipulaunch resume`: a run that ended early, continued in its own directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ipulaunch.launcher.options import asked_from, resume_options


@click.command("resume")
@click.argument("run", type=click.Path(path_type=Path))
@resume_options
def command(run: Path, verbose: bool, **values: Any) -> None:
    """Continue a run from its newest checkpoint, with its own settings and plan: ipulaunch resume runs/NAME

    Without a checkpoint it starts anew. With --hosts or --num-instances the plan is made again for those; the weight
    updates stay the same.
    """
    from ipulaunch.launcher.display import make_display
    from ipulaunch.launcher.resuming import resume

    num_instances = values.pop("num_instances")
    code = resume(run, asked_from(values), num_instances, make_display(verbose))
    click.get_current_context().exit(code)
