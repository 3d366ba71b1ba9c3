"""The command `ipulaunch`. Commands are loaded when they are called, so that none pays for another."""

from __future__ import annotations

import importlib
from typing import Any, Dict, List, Optional, Tuple

import click

from ipulaunch.configs.errors import EXIT_CODES, INTERRUPTED, IpulaunchError, near_miss
from ipulaunch.configs.workloads import SUMMARIES

# Name of the command, the module that has it, and its line in the help.
_COMMANDS: Dict[str, Tuple[str, str]] = {
    "plan": ("plan", "Show the plan for a workload: numbers, reasons, picture."),
    "resume": ("resume", "Continue a run from its newest checkpoint."),
    "run": ("run", "Launch a PopDist program of your own."),
    "data": ("data", "Make, build, index, verify, audit and measure data sets."),
    "check": ("check", "Check a poprun command line that you already have."),
    "doctor": ("doctor", "Say what is here and what is missing for each engine, each with the fix."),
    "submit": ("submit", "Submit a training to Slurm, Kubernetes or PBS."),
    "ps": ("ps", "List the runs: state, progress, where."),
    "status": ("status", "Show how a run is, from its records and its scheduler."),
    "logs": ("logs", "Show the logs of a run, as they grow with -f."),
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


class Commands(click.Group):
    """The commands: one for each workload, and the others."""

    def list_commands(self, ctx: click.Context) -> List[str]:
        return [*SUMMARIES, *_COMMANDS]

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        if name in SUMMARIES:
            from ipulaunch.launcher.commands.workload import make_command

            return make_command(name)
        if name in _COMMANDS:
            module = importlib.import_module(f"ipulaunch.launcher.commands.{_COMMANDS[name][0]}")
            command: click.Command = module.command
            return command
        return None

    def resolve_command(self, ctx: click.Context, args: List[str]) -> Any:
        is_unknown = args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx)
        if is_unknown and not ctx.resilient_parsing:  # a shell that completes is told nothing
            hint = near_miss(args[0], self.list_commands(ctx))
            raise click.UsageError(f"There is no workload or command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

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
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


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


def main() -> None:
    """The console script."""
    cli(prog_name="ipulaunch")
