"""`ipulaunch cosmoflow` and the other workloads: plan, print or run a training."""

from __future__ import annotations

from typing import Any

import click

from ipulaunch.configs.settings.workloads import SUMMARIES
from ipulaunch.launcher.cli.launch_output import print_launch
from ipulaunch.launcher.cli.options import (
    engine_from,
    launch_options,
    launch_options_from,
    verbosity_from,
)
from ipulaunch.launcher.cli.settings_options import settings_from, settings_options, workload_command
from ipulaunch.launcher.engines.registry import choose_engine, refuse_silent_rehearsal
from ipulaunch.launcher.launch.earlier_runs import about_resume, with_resume
from ipulaunch.launcher.launch.workload_planning import launch_workload
from ipulaunch.launcher.show.messages import show_messages


def make_command(workload: str) -> click.Command:
    """The command of a workload; its options come from the workload's settings."""

    @workload_command(workload, SUMMARIES[workload])
    @launch_options
    @settings_options(workload)
    def command(**values: Any) -> None:
        dry_run, as_json, run_dir = values.pop("dry_run"), values.pop("as_json"), values.pop("run_dir")
        verbose = verbosity_from(values) > 0
        engine_name = engine_from(values)
        engine = choose_engine(engine_name, dry_run or as_json)
        if not values["rehearsal"]:
            refuse_silent_rehearsal(engine, engine_name, "--engine openmpi or --rehearsal")
        settings = settings_from(workload, values, on_cpus=engine.is_rehearsal)
        resolved = with_resume(settings)
        show_messages(about_resume(settings, resolved))
        options = launch_options_from(values)
        if dry_run or as_json:
            print_launch(launch_workload(resolved, options, engine, None), as_json, run_dir)
            return
        from ipulaunch.launcher.runs.expected_duration import with_expected_duration
        from ipulaunch.launcher.runs.run_files import run_path
        from ipulaunch.launcher.runs.running import run_launch
        from ipulaunch.launcher.show.display import make_display

        with run_path(workload, run_dir) as path:
            launch = with_expected_duration(launch_workload(resolved, options, engine, path), path.parent)
            code = run_launch(launch, path, make_display(verbose), is_made=run_dir is None)
        click.get_current_context().exit(code)

    return command
