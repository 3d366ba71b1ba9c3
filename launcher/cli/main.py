"""The command `ipulaunch`. Commands are loaded when they are called, so that none pays for another."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import click

from ipulaunch.configs.errors import EXIT_CODES, INTERRUPTED, IpulaunchError, NotReadyError
from ipulaunch.configs.settings.workloads import SUMMARIES
from ipulaunch.launcher.cli.groups import NearMissGroup

# Name of the command, the module that has it, and its line in the help.
_COMMANDS: Dict[str, Tuple[str, str]] = {
    "plan": ("plan", "Show the plan for a workload: numbers, reasons, picture."),
    "capacity": ("capacity", "Show whether the hosts keep the IPUs busy, and what would help."),
    "export": ("export", "Export a model for servers, with the weights of a training."),
    "resume": ("resume", "Continue a run from its newest checkpoint."),
    "run": ("run", "Launch a PopDist program of your own."),
    "bench": ("bench", "Run benchmarks from specification files."),
    "data": ("data", "Make, build, index, verify, audit and measure data sets."),
    "serve": ("serve", "Serve an exported model over gRPC and REST, as TensorFlow Serving does."),
    "request": ("request", "Measure the serving of a workload: throughput, latency, accuracy."),
    "check": ("check", "Check a poprun command line that you already have."),
    "translate": ("translate", "Translate a line of Graphcore's applications into one of ipulaunch."),
    "doctor": ("doctor", "Show what each engine needs, what is missing here, and how to fix it."),
    "submit": ("submit", "Submit a training to Slurm, Kubernetes or PBS."),
    "ps": ("ps", "List the runs: state, progress, where."),
    "status": ("status", "Show the state of a run, from its records and its scheduler."),
    "report": ("report", "Write one HTML page about a run: plan, settings, curves, attempts, verdict."),
    "compare": ("compare", "Compare runs: what differs, what came of it, and what can explain it."),
    "logs": ("logs", "Show the logs of a run; -f follows them."),
    "cancel": ("cancel", "End a run: a job of a scheduler, or one started here."),
}


class Failure(click.ClickException):
    """One of our errors, on its way out through click."""

    def __init__(self, error: IpulaunchError) -> None:
        super().__init__(error.message)
        self.hint = error.hint
        self.exit_code = error.exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)
        if self.hint:
            click.echo(f"hint: {self.hint}", err=True)


class Commands(NearMissGroup):
    """The commands: one for each workload, and the others."""

    what = "workload or command"

    def list_commands(self, ctx: click.Context) -> List[str]:
        return [*SUMMARIES, *_COMMANDS]

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        if name in SUMMARIES:
            from ipulaunch.launcher.cli.commands.workload import make_command

            return make_command(name)
        if name in _COMMANDS:
            module = importlib.import_module(f"ipulaunch.launcher.cli.commands.{_COMMANDS[name][0]}")
            command: click.Command = module.command
            return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would load every command to ask for its line; the lines are here.
        with formatter.section("Workloads"):
            formatter.write_dl(list(SUMMARIES.items()))
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])
        super().format_epilog(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except IpulaunchError as error:
            raise Failure(error) from error
        except BrokenPipeError:  # nobody reads any more; click ends quietly
            raise
        except OSError as error:
            raise Failure(_not_ready(error)) from error
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _not_ready(error: OSError) -> NotReadyError:
    """The error for what this machine refuses, where no other code has a better message."""
    try:
        Path.cwd()
    except OSError:
        return NotReadyError("the directory that you are in has been removed", hint="cd into one that is there")
    where = f"{error.filename}: " if error.filename else ""
    return NotReadyError(f"{where}{error.strerror or error}", hint="see ipulaunch doctor")


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"ipulaunch {version('ipulaunch')}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def cli() -> None:
    """Plan, print, rehearse and run TensorFlow trainings on Graphcore IPU PODs.

    \b
    ipulaunch cosmoflow --pod 16             on a POD: run it; elsewhere: rehearse it on CPUs
    ipulaunch cosmoflow --pod 16 --dry-run   print the poprun command
    ipulaunch plan cosmoflow --pod 16        show the plan and its picture
    ipulaunch run --pod 16 -- python3 t.py   launch a program of your own
    """
