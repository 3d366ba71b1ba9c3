"""`ipulaunch submit`: a job for a cluster, printed or handed over to its scheduler."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict

import click

from ipulaunch.configs.sites import SCHEDULERS, Site, read_site
from ipulaunch.launcher.cli.groups import WorkloadGroup
from ipulaunch.launcher.cli.launch_output import solution_data
from ipulaunch.launcher.cli.options import (
    engine_from,
    launch_options,
    launch_options_from,
    offers,
    verbosity_from,
    with_help,
)
from ipulaunch.launcher.cli.settings_options import settings_from, settings_options, workload_command
from ipulaunch.launcher.engines.registry import cluster_engine
from ipulaunch.launcher.runs.run_files import new_run_path, run_path
from ipulaunch.launcher.schedulers.hand_over import hand_over
from ipulaunch.launcher.schedulers.submission import Submission, prepare
from ipulaunch.launcher.schedulers.wishes import choose_scheduler
from ipulaunch.launcher.show.messages import messages_data, show_messages

_MAIL_TYPES = ("BEGIN", "END", "FAIL", "REQUEUE", "TIME_LIMIT", "ALL", "NONE")
_PREFIX = "scheduler__"  # gives them a heading of their own in the help


def _option(flag: str, help: str, **more: Any) -> Callable[[Any], Any]:
    name = flag.split("/")[0].lstrip("-").replace("-", "_")
    return click.option(flag, _PREFIX + name, help=help, **more)


_OPTIONS = [
    _option("--scheduler", "Scheduler of the cluster. Default: the site's.", type=click.Choice(SCHEDULERS)),
    _option("--site", "Settings that jobs on a cluster share: the name of a shipped site, or a YAML file.",
            metavar="NAME|FILE", shell_complete=offers("sites")),
    _option("--account", "Account or project to charge."),
    _option("--partition", "Partition or queue to submit to."),
    _option("--time", "Time limit: minutes, HH:MM:SS or D-HH:MM:SS.", metavar="TIME"),
    _option("--nodes", "Number of hosts to request. Default: as the plan needs.", type=click.IntRange(1)),
    _option(
        "--requeue/--no-requeue", "Requeue a job that was stopped, so that it continues. PBS: allow it to be rerun.",
        default=None,
    ),
    _option("--signal-lead", "Seconds before the end of --time to ask the job to stop. Default: --grace + 60.",
            type=click.IntRange(1)),
    _option("--mail-user", "Address to send mail to.", metavar="ADDRESS"),
    _option("--mail-type", "Event to send mail at; may be repeated.", multiple=True,
            type=click.Choice(_MAIL_TYPES, case_sensitive=False)),
    _option("--setup", "A line of shell to run before ipulaunch; may be repeated.", multiple=True,
            metavar="LINE"),
    _option("--directive", "Another option for the scheduler, e.g. --directive=--qos=high; may be repeated.",
            multiple=True, metavar="TEXT"),
    _option("--container-image", "Container image that has ipulaunch installed.", metavar="IMAGE"),
    _option("--namespace", "Kubernetes namespace."),
    _option("--volume", "A persistent volume claim and where to mount it; may be repeated. The first holds the run.",
            multiple=True, metavar="CLAIM:PATH"),
    _option("--queue", "Kubernetes: queue of Kueue to submit to.", metavar="NAME"),
    _option("--label", "Kubernetes: a label of the job and its Pods; may be repeated.", multiple=True,
            metavar="KEY=VALUE"),
    _option("--annotation", "Kubernetes: an annotation of the job and its Pods; may be repeated.", multiple=True,
            metavar="KEY=VALUE"),
]  # fmt: skip
_HELP = {
    "engine": "What starts the instances. Default: poprun.",
    "hosts": "Slurm: hosts to request by name, a,b or host[0-3]. Default: as many as the plan needs.",
    "dry_run": "Print the script or manifest and stop.",
    "as_json": "Report as JSON; with --dry-run, print the plan and the script.",
    "run_dir": "Directory to create for the run before the job is submitted. Default: runs/NAME-TIME.",
    "verbose": "Let the job show the output of all instances; -vv: and poprun log everything (--vv).",
}


@click.group("submit", cls=WorkloadGroup, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
def command() -> None:
    """Submit a training to a cluster: ipulaunch submit cosmoflow --pod 16 --scheduler slurm --dry-run"""


@command.for_each_workload
def _submit(workload: str) -> click.Command:
    @workload_command(workload, f"Submit {workload} to a cluster.")
    @launch_options
    @settings_options(workload)
    def submit(**values: Any) -> None:
        dry_run, as_json, run_dir = values.pop("dry_run"), values.pop("as_json"), values.pop("run_dir")
        verbose = verbosity_from(values) > 0
        given = {name[len(_PREFIX) :]: values.pop(name) for name in list(values) if name.startswith(_PREFIX)}
        site = Site() if given["site"] is None else read_site(given["site"])
        scheduler = choose_scheduler(given["scheduler"], site)
        engine = cluster_engine(engine_from(values))
        in_pods = scheduler == "kubernetes"
        resolved = settings_from(workload, values, on_cpus=engine.is_rehearsal, elsewhere=in_pods)
        options = launch_options_from(values, elsewhere=in_pods)
        if dry_run:
            path = new_run_path(workload, run_dir)
            submission = prepare(resolved, options, engine, scheduler, site, given, path, verbose=verbose)
            _print(submission, as_json)
            return
        with run_path(workload, run_dir) as path:
            submission = prepare(resolved, options, engine, scheduler, site, given, path, verbose=verbose)
            _hand_over(submission, as_json, is_made=run_dir is None)

    others, submit.params = submit.params, []
    for option in _OPTIONS:
        submit = option(submit)
    submit.params += others  # after those that are of this command alone
    with_help(submit, _HELP)
    return submit


def _print(submission: Submission, as_json: bool) -> None:
    """The script, on stdout alone; the rest is talk."""
    if as_json:
        data = {**_data(submission), "script": submission.text, **solution_data(submission.launch.solution)}
        click.echo(json.dumps(data, indent=1))
        return
    show_messages(submission.messages)
    click.echo(submission.text, nl=False)


def _hand_over(submission: Submission, as_json: bool, *, is_made: bool) -> None:
    """Submit the job, with its id on stdout alone."""
    if not as_json:
        show_messages(submission.messages)
    job = hand_over(submission, is_made=is_made)
    if as_json:
        click.echo(json.dumps({**_data(submission), "id": job.id, "submitted": job.submitted}, indent=1))
        return
    click.echo(f"submitted to {job.scheduler}; see ipulaunch status {submission.path}", err=True)
    click.echo(job.id)


def _data(submission: Submission) -> Dict[str, Any]:
    return {"scheduler": submission.scheduler, "run": str(submission.path), **messages_data(submission.messages)}
