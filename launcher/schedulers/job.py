"""A job for a cluster: the plan, its command and the scheduler's options. Rendering it needs nothing else."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from ipulaunch.configs.sites import Site
from ipulaunch.launcher.schedulers.names import Word
from ipulaunch.launcher.schedulers.variables import SecretKey
from ipulaunch.topology import Plan


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
