"""`ipulaunch run`: a PopDist program of the user's own, planned and supervised like ours."""

from __future__ import annotations

from typing import Any, Tuple

import click

from ipulaunch.launcher.cli.launch_output import print_launch
from ipulaunch.launcher.cli.options import (
    launch_options_from,
    program_options,
    program_settings,
    require_words,
    run_options,
    survival_from,
    survival_options,
    verbosity_from,
)
from ipulaunch.launcher.cli.settings_command import ProgramCommand
from ipulaunch.launcher.engines.registry import choose_engine, refuse_silent_rehearsal
from ipulaunch.launcher.launch.launch import launch_program
from ipulaunch.launcher.launch.program import Program
from ipulaunch.launcher.launch.program_planning import plan_program


@click.command(
    "run",
    cls=ProgramCommand,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@run_options
@program_options
@survival_options
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def command(program: Tuple[str, ...], **values: Any) -> None:
    """Launch a PopDist program of your own: ipulaunch run --pod 16 -- python3 my_train.py --flag

    It gets signals such as TERM, and asks to be continued with exit code 75. IPULAUNCH_ATTEMPT counts its attempts.
    """
    require_words(program, "ipulaunch run --pod 16 -- python3 my_train.py")
    dry_run, as_json, run_dir = values.pop("dry_run"), values.pop("as_json"), values.pop("run_dir")
    settings = program_settings(values)
    own = Program(program, survival_from(values))
    if verbosity_from(values) == 1:
        values["poprun_verbose"] = True
    options = launch_options_from(values)
    engine = choose_engine(options.engine, dry_run or as_json)
    refuse_silent_rehearsal(engine, options.engine, "--engine openmpi")
    solution = plan_program(options, engine, settings)
    launch = launch_program(solution, own, options, engine)
    if dry_run or as_json:
        print_launch(launch, as_json, run_dir)
        return
    from ipulaunch.launcher.launch.needs import require_program, require_python
    from ipulaunch.launcher.runs.run_files import run_path
    from ipulaunch.launcher.runs.running import run_launch
    from ipulaunch.launcher.show.display import make_display

    if options.python is not None and engine.is_rehearsal:
        require_python(options.python)
    if solution.plan.is_on_this_host:
        require_program(program[0], options.env)
    with run_path("program", run_dir) as path:
        launch = launch_program(solution, own, options, engine, path)
        code = run_launch(launch, path, make_display(verbose=False), is_made=run_dir is None)
    click.get_current_context().exit(code)
