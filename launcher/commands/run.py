"""`ipulaunch run`: a PopDist program of the user's own, planned and supervised like ours."""

from __future__ import annotations

from typing import Any, Tuple

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.sections import Launch
from ipulaunch.launcher.commands.output import print_launch
from ipulaunch.launcher.launch import choose_engine, launch_program
from ipulaunch.launcher.options import asked_from, launch_options


def program_options(command: Any) -> Any:
    """What our own workloads say in their settings, for programs we know nothing of."""
    options = [
        click.option("--ipus-per-replica", type=click.IntRange(1), default=1, help="IPUs one replica takes."),
        click.option("--num-replicas", type=click.IntRange(1), help="Replicas over all instances. Default: all IPUs."),
        click.option("--num-instances", type=click.IntRange(1), help="Host processes. Default: one per NUMA node."),
        click.option("--io-bound", is_flag=True, help="The host's input work is the limit: as many instances as fit."),
        click.option("--min-cores-per-instance", type=click.IntRange(1), default=1, help="With --io-bound."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@launch_options
@program_options
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def command(program: Tuple[str, ...], **values: Any) -> None:
    """Launch a PopDist program of your own: ipulaunch run --pod 16 -- python3 my_train.py --flag"""
    if not program or not program[0]:
        raise UsageError("there is no program to run", hint="ipulaunch run --pod 16 -- python3 my_train.py")
    dry_run, as_json, run_dir = values.pop("dry_run"), values.pop("as_json"), values.pop("run_dir")
    verbose = values.pop("verbose")
    names = ("ipus_per_replica", "num_replicas", "num_instances", "io_bound", "min_cores_per_instance")
    settings = Launch(**{name: values.pop(name) for name in names})
    asked = asked_from(values)
    engine = choose_engine(asked.engine, dry_run or as_json)
    launch = launch_program(program, asked, engine, settings)
    if dry_run or as_json:
        print_launch(launch, as_json)
        return
    from ipulaunch.launcher.display import make_display
    from ipulaunch.launcher.running import carry_out, new_run_path

    click.get_current_context().exit(carry_out(launch, new_run_path("program", run_dir), make_display(verbose)))
