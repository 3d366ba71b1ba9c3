"""`ipulaunch resume`: a run that ended early, continued in its own directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import click

from ipulaunch.configs.settings.workloads import WORKLOADS
from ipulaunch.launcher.cli.commands.status import run_argument, runs_dir
from ipulaunch.launcher.cli.options import launch_options_from, resume_options, verbosity_from, with_help
from ipulaunch.launcher.cli.settings_command import flags_of

_SETTINGS = ("--set", "--config", "--config-path")  # for settings of any workload


class Resume(click.Command):
    """Answers the option of a setting with how a run gets other settings."""

    def parse_args(self, ctx: click.Context, args: List[str]) -> List[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            if name not in _SETTINGS and not any(name in flags_of(workload) for workload in WORKLOADS):
                raise
            why = f"No such option {name!r} here: a run continues with its own settings."
            raise click.UsageError(f"{why} To change them: ipulaunch WORKLOAD --resume RUN {name} ...", ctx) from error


@click.command("resume", cls=Resume)
@run_argument
@runs_dir
@resume_options
def command(run: str, runs_dir: Path, **values: Any) -> None:
    """Continue RUN, a run directory or its name, from its newest checkpoint, with its own settings and plan.

    It is launched as it was before; options given here replace those of that launch. Without a checkpoint it starts
    from the beginning. With --hosts, --num-instances or another option that says where it runs, a new plan is made; the
    weight updates stay the same. A program of your own is called again, and knows by itself how to continue.
    """
    from ipulaunch.launcher.runs.calling_again import call_again, runs_program
    from ipulaunch.launcher.runs.finding import find_run
    from ipulaunch.launcher.runs.resuming import resume
    from ipulaunch.launcher.show.display import make_display

    num_instances, verbose = values.pop("num_instances"), verbosity_from(values) > 0
    path = find_run(run, runs_dir)
    again = call_again if runs_program(path) else resume
    code = again(path, launch_options_from(values), num_instances, make_display(verbose))
    click.get_current_context().exit(code)


with_help(
    command,
    {
        "engine": "What starts the instances. Default: that of the run.",
        "hosts": "Hosts to run on: a,b or host[0-3]. Default: those of the run.",
    },
)
