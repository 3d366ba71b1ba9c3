"""The options for the scheduler of a cluster, and what they say."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple

import click

from ipulaunch.configs.sites import SCHEDULERS, Site, read_site
from ipulaunch.launcher.cli.options import offers, with_help
from ipulaunch.launcher.schedulers.wishes import choose_scheduler

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


class JobOptions(NamedTuple):
    """Where a job goes."""

    given: Dict[str, Any]  # the options for the scheduler
    site: Site
    scheduler: str

    @property
    def is_in_pods(self) -> bool:
        """Whether it runs where the directories here are not seen."""
        return self.scheduler == "kubernetes"


def with_job_options(command: click.Command) -> click.Command:
    """The command with the options for the scheduler, before those that other commands have too."""
    others, command.params = command.params, []
    for option in _OPTIONS:
        command = option(command)
    command.params += others
    with_help(command, _HELP)
    return command


def job_options_from(values: Dict[str, Any]) -> JobOptions:
    """What these options say; takes them out of `values`."""
    given = {name[len(_PREFIX) :]: values.pop(name) for name in list(values) if name.startswith(_PREFIX)}
    site = Site() if given["site"] is None else read_site(given["site"])
    return JobOptions(given, site, choose_scheduler(given["scheduler"], site))
