"""`ipulaunch resume`: a run that ended early, continued in its own directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ipulaunch.launcher.commands.status import runs_dir
from ipulaunch.launcher.options import asked_from, resume_options, with_help


@click.command("resume")
@click.argument("run")
@runs_dir
@resume_options
def command(run: str, runs_dir: Path, verbose: bool, **values: Any) -> None:
    """Continue RUN, a run directory or its name, from its newest checkpoint, with its own settings and plan.

    It is launched as it was before; options given here replace those of that launch. Without a checkpoint it starts
    from the beginning. With --hosts, --num-instances or another option that says where it runs, a new plan is made; the
    weight updates stay the same.
    """
    from ipulaunch.launcher.display import make_display
    from ipulaunch.launcher.resuming import resume
    from ipulaunch.launcher.run_states import find_run

    num_instances = values.pop("num_instances")
    code = resume(find_run(run, runs_dir), asked_from(values), num_instances, make_display(verbose))
    click.get_current_context().exit(code)


with_help(
    command,
    {
        "engine": "What starts the instances. Default: that of the run.",
        "hosts": "Hosts to run on: a,b or host[0-3]. Default: those of the run.",
    },
)
