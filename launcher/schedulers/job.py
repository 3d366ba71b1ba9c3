"""A job for a cluster: the plan, its command, its variables and the scheduler's options; rendering needs no more."""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.secrets import is_secret
from ipulaunch.configs.sites import Site
from ipulaunch.launcher.schedulers.names import Word, plain
from ipulaunch.topology import Plan

_FROM_SECRET = "secret:"  # --env NAME=secret:SECRET/KEY, in Kubernetes


class SecretKey(NamedTuple):
    """A variable whose value is in a Secret of Kubernetes."""

    name: str
    secret: str
    key: str


class Variables(NamedTuple):
    """The variables in --env."""

    env: Tuple[str, ...] = ()  # for the call of ipulaunch in the job
    sent: Tuple[str, ...] = ()  # names of those to copy from here
    secrets: Tuple[SecretKey, ...] = ()


def variables_of(given: Sequence[str], scheduler: str, environ: Mapping[str, str], *, has_setup: bool) -> Variables:
    """The variables of a job; a job with set-up lines may set some itself, so they need not be set here."""
    env: List[str] = []
    sent: List[str] = []
    secrets: List[SecretKey] = []
    for text in given:
        name, equals, value = text.partition("=")
        plain("variable", name, "--env")
        if scheduler == "kubernetes" and value.startswith(_FROM_SECRET):
            secret, _, key = value[len(_FROM_SECRET) :].partition("/")
            found = SecretKey(
                name, plain("secret", secret, f"--env {name}: Secret"), plain("key", key, f"--env {name}: key")
            )
            secrets.append(found)
            env.append(name)
            continue
        if scheduler == "kubernetes" and equals and is_secret(name):
            raise UsageError(f"--env {name}=... would show a secret in the manifest", hint=_how(name, scheduler))
        if not equals and scheduler != "kubernetes" and name in environ:
            sent.append(name)
        elif not equals and not has_setup:
            where = "the variables here do not reach a Pod" if scheduler == "kubernetes" else "it is not set here"
            raise UsageError(
                f"--env {name}: {where}, and no --setup could set it in the job", hint=_how(name, scheduler)
            )
        env.append(text)
    return Variables(tuple(env), tuple(sent), tuple(secrets))


def _how(name: str, scheduler: str) -> str:
    if not is_secret(name):
        return f"give --env {name}=VALUE, or set it with --setup"
    if scheduler == "kubernetes":
        return f"give --env {name}=secret:NAME/KEY, for a key of a Secret in the namespace"
    return f"export {name} first, or let the job read it: --setup 'export {name}=$(cat FILE)'"


class Wishes(NamedTuple):
    """The scheduler's options, from the command line and the site. None means "not given"."""

    account: Optional[str] = None
    partition: Optional[str] = None
    time_s: Optional[int] = None
    requeue: Optional[bool] = None
    mail_user: Optional[str] = None
    mail_types: Tuple[str, ...] = ()
    directives: Tuple[str, ...] = ()
    setup: Tuple[str, ...] = ()
    image: Optional[str] = None
    namespace: Optional[str] = None
    volumes: Tuple[str, ...] = ()
    labels: Tuple[str, ...] = ()  # KEY=VALUE
    annotations: Tuple[str, ...] = ()  # KEY=VALUE
    queue: Optional[str] = None  # of Kueue
    lead_s: int = 120  # between the request to stop and the time limit
    nodes: Optional[int] = None  # the number of hosts in --nodes, if given
    nodelist: Optional[str] = None  # hosts that the user names
    sent: Tuple[str, ...] = ()  # names of variables to copy from the environment of the submission
    secrets: Tuple[SecretKey, ...] = ()

    @property
    def asked_after_s(self) -> Optional[int]:
        """Seconds from the start of the job to the request to stop; None without a time limit."""
        return None if self.time_s is None else self.time_s - self.lead_s


class ClusterJob(NamedTuple):
    """Everything a script or a manifest says."""

    name: str
    run: str  # the directory of the run, as the job sees it
    work_dir: str
    plan: Plan
    is_rehearsal: bool
    command: str  # of ipulaunch, which starts the run
    program: Tuple[Word, ...]  # of the user's own, which it starts; none for a workload
    record: str  # a file that the run has once it was started
    first: Tuple[Word, ...]  # options of the ipulaunch command that starts the run
    again: Tuple[Word, ...]  # options of the one that continues it
    wishes: Wishes
    site: Site

    @property
    def hosts(self) -> int:
        return len(self.plan.hosts)

    @property
    def cores_per_instance(self) -> int:
        return min(placement.cores for placement in self.plan.placements)

    @property
    def cores_per_host(self) -> int:
        return self.plan.instances_per_host * self.cores_per_instance
