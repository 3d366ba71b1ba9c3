"""`ipulaunch submit`: a job for a cluster, printed or handed over to its scheduler."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional

import click

from ipulaunch.configs.errors import near_miss
from ipulaunch.configs.sites import SCHEDULERS, Site, read_site
from ipulaunch.configs.workloads import SUMMARIES
from ipulaunch.launcher.commands.output import solution_data
from ipulaunch.launcher.options import (
    SettingsCommand,
    asked_from,
    engine_from,
    launch_options,
    settings_from,
    settings_options,
)
from ipulaunch.launcher.running import new_run_path
from ipulaunch.launcher.schedulers.submission import Submission, choose_scheduler, engine_for, hand_over, prepare

_MAIL_TYPES = ("BEGIN", "END", "FAIL", "REQUEUE", "TIME_LIMIT", "ALL", "NONE")
_PREFIX = "scheduler__"  # gives them a heading of their own in the help


def _option(flag: str, help: str, **more: Any) -> Callable[[Any], Any]:
    name = flag.split("/")[0].lstrip("-").replace("-", "_")
    return click.option(flag, _PREFIX + name, help=help, **more)


_OPTIONS = [
    _option("--scheduler", "What runs jobs there. Default: the site's.", type=click.Choice(SCHEDULERS)),
    _option("--site", "What jobs on a cluster have in common: a name, or a YAML file.", metavar="NAME|FILE"),
    _option("--account", "Account or project that pays."),
    _option("--partition", "Partition or queue."),
    _option("--time", "Limit: minutes, HH:MM:SS or D-HH:MM:SS.", metavar="TIME"),
    _option("--nodes", "Hosts to ask for. Default: those of the plan.", type=click.IntRange(1)),
    _option(
        "--requeue/--no-requeue", "Put a job that was stopped into the queue again; it continues.", default=None
    ),
    _option("--signal-lead", "Seconds before the limit at which the job is asked to stop. Default: --grace + 60.",
            type=click.IntRange(1)),
    _option("--mail-user", "Whom to write to.", metavar="ADDRESS"),
    _option("--mail-type", "When to write; give it once for each.", multiple=True,
            type=click.Choice(_MAIL_TYPES, case_sensitive=False)),
    _option("--setup", "A line of shell before ipulaunch is called; give it once for each.", multiple=True,
            metavar="LINE"),
    _option("--directive", "A further option of the scheduler: --directive=--qos=high.", multiple=True,
            metavar="TEXT"),
    _option("--container-image", "The image that ipulaunch is in.", metavar="IMAGE"),
    _option("--namespace", "Namespace, in Kubernetes."),
    _option("--volume", "A persistent volume claim and where it is mounted; the run lies in the first.", multiple=True,
            metavar="CLAIM:PATH"),
]  # fmt: skip
_HELP = {
    "dry_run": "Print the script or manifest and stop.",
    "as_json": "Report as JSON; with --dry-run, the plan and the script.",
    "run_dir": "Where the run lies, made before the job is submitted. Default: runs/NAME-TIME.",
    "verbose": "Let the job show the output of all instances.",
}


class Submits(click.Group):
    """One submit command for each workload."""

    def list_commands(self, ctx: click.Context) -> List[str]:
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        return _submit(name) if name in SUMMARIES else None

    def resolve_command(self, ctx: click.Context, args: List[str]) -> Any:
        is_unknown = args and not args[0].startswith("-") and args[0] not in SUMMARIES
        if is_unknown and not ctx.resilient_parsing:
            raise click.UsageError(f"There is no workload {args[0]!r}; {near_miss(args[0], SUMMARIES)}", ctx)
        return super().resolve_command(ctx, args)


@click.group("submit", cls=Submits, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
def command() -> None:
    """Submit a training to a cluster: ipulaunch submit cosmoflow --pod 16 --scheduler slurm --dry-run"""


def _submit(workload: str) -> click.Command:
    @click.command(workload, cls=SettingsCommand, help=f"Submit to a cluster: {SUMMARIES[workload]}")
    @launch_options
    @settings_options(workload)
    def submit(**values: Any) -> None:
        dry_run, as_json, run_dir = values.pop("dry_run"), values.pop("as_json"), values.pop("run_dir")
        verbose = values.pop("verbose")
        options = {name[len(_PREFIX) :]: values.pop(name) for name in list(values) if name.startswith(_PREFIX)}
        site = Site() if options["site"] is None else read_site(options["site"])
        scheduler = choose_scheduler(options["scheduler"], site)
        engine = engine_for(engine_from(values))
        resolved = settings_from(workload, values, on_cpus=engine.name == "openmpi")
        path = new_run_path(workload, run_dir)
        submission = prepare(
            resolved, asked_from(values), engine, scheduler, site, options, path, verbose=verbose
        )  # fmt: skip
        _print(submission, dry_run, as_json)

    for option in reversed(_OPTIONS):
        submit = option(submit)
    for param in submit.params:
        if isinstance(param, click.Option):
            param.help = _HELP.get(str(param.name), param.help)
    return submit


def _print(submission: Submission, dry_run: bool, as_json: bool) -> None:
    """The script of a dry run, or the id of the job, on stdout alone; the rest is talk."""
    data: Dict[str, Any] = {"scheduler": submission.scheduler, "run": str(submission.path)}
    warnings = submission.launch.solution.warnings
    if not as_json:
        for note in submission.notes:
            click.echo(f"note: {note}", err=True)
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
    if dry_run:
        if as_json:
            more = {"script": submission.text, "notes": list(submission.notes)}
            click.echo(json.dumps({**data, **more, **solution_data(submission.launch.solution)}, indent=1))
        else:
            click.echo(submission.text, nl=False)
        return
    job = hand_over(submission)
    if as_json:
        more = {"notes": list(submission.notes), "warnings": list(warnings)}
        click.echo(json.dumps({**data, "id": job.id, "submitted": job.submitted, **more}, indent=1))
        return
    click.echo(f"submitted to {job.scheduler}; see ipulaunch status {submission.path}", err=True)
    click.echo(job.id)
