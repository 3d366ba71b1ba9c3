"""Sites: what jobs on one cluster have in common, as written in YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Optional, Tuple

from ipulaunch.configs.errors import SettingsError, near_miss
from ipulaunch.configs.settings.kinds import Lines, Words
from ipulaunch.configs.settings.schema import Settings, build, leaves, section, setting, value_of
from ipulaunch.configs.settings.tree import Tree, read_yaml

SCHEDULERS = ("slurm", "kubernetes", "pbs")
JOB_ID = "{job_id}"  # stands for the number of the job
_WITH_JOB_ID = ("vipu.partition", "vipu.allocation", "vipu.cluster")


class Environment(Settings):
    """What a job does before it calls ipulaunch."""

    modules: Tuple[str, ...] = setting((), "modules to load")
    enable: Tuple[str, ...] = setting((), "files to source, such as the enable.sh of the Poplar SDK")
    lines: Lines = setting((), "further lines of shell")


class Hosts(Settings):
    """The machines that jobs get."""

    layout: Optional[str] = setting(None, "NUMA nodes and cores of a host, e.g. 8x16")
    ipus_per_host: Optional[int] = setting(None, "IPUs that a job has for each host it asks for", at_least=1)


class Network(Settings):
    """How hosts reach each other."""

    interface: Optional[str] = setting(None, "network interface between hosts, for MPI")
    subnet: Optional[str] = setting(None, "network between hosts, for poprun: 10.1.5.0/24")


class Vipu(Settings):
    """Where partitions of IPUs come from; in their names {job_id} stands for the number of the job."""

    partition: Optional[str] = setting(None, "V-IPU partition, e.g. slurm_{job_id}")
    server_host: Optional[str] = setting(None, "V-IPU controller")
    server_port: Optional[int] = setting(None, "its port", at_least=1, below=65536)
    allocation: Optional[str] = setting(None, "allocation to make the partition in (SDK 3.2 and later)")
    cluster: Optional[str] = setting(None, "cluster to make the partition in (before SDK 3.2)")


class Defaults(Settings):
    """What a job asks of the scheduler unless the command line says otherwise."""

    account: Optional[str] = setting(None, "account or project that pays")
    partition: Optional[str] = setting(None, "partition or queue")
    time: Optional[str] = setting(None, "time limit: minutes, HH:MM:SS or D-HH:MM:SS")
    requeue: Optional[bool] = setting(None, "whether a job that was stopped is put into the queue again")
    directives: Lines = setting((), "further options of the scheduler, as in its scripts: --qos=high")


class Slurm(Settings):
    """What this Slurm has."""

    ask_for: Optional[str] = setting(
        None,
        "what a job asks for: whole hosts, cores, or IPUs where Slurm has Graphcore's plugin",
        choices=("hosts", "cores", "ipus"),
    )


class Container(Settings):
    """The image that ipulaunch is in."""

    image: Optional[str] = setting(None, "container image")
    command: Words = setting(("apptainer", "exec"), "what runs a program in an image, in Slurm and PBS jobs")


class Kubernetes(Settings):
    """What Pods get."""

    namespace: Optional[str] = setting(None, "namespace of jobs")
    cpu: Optional[int] = setting(None, "cores of a Pod; without it, those of the plan", at_least=1, below=10_000)
    memory: Optional[str] = setting(None, "memory of a Pod, e.g. 200Gi")
    shared_memory: str = setting("10Gi", "size of /dev/shm in a Pod")
    volumes: Tuple[str, ...] = setting((), "persistent volume claims and where they are mounted: CLAIM:/path")
    queue: Optional[str] = setting(None, "queue of Kueue that jobs wait in")
    labels: Lines = setting((), "labels of jobs and their Pods: KEY=VALUE")
    annotations: Lines = setting((), "annotations of jobs and their Pods: KEY=VALUE")


class Site(Settings):
    """One cluster."""

    scheduler: Optional[str] = setting(None, "what runs jobs here", choices=SCHEDULERS)
    environment: Environment = section(Environment)
    hosts: Hosts = section(Hosts)
    network: Network = section(Network)
    vipu: Vipu = section(Vipu)
    defaults: Defaults = section(Defaults)
    slurm: Slurm = section(Slurm)
    container: Container = section(Container)
    kubernetes: Kubernetes = section(Kubernetes)


def shipped_sites() -> Dict[str, Path]:
    """The sites that come with the package, by name."""
    return {path.stem: path for path in sorted(Path(__file__).with_name("sites").glob("*.yaml"))}


def read_site(name: str) -> Site:
    """A site that is shipped, or one in a file of your own: what has a slash or ends in .yaml is a file."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        return _site(read_yaml(Path(name)))
    known = shipped_sites()
    if name not in known:
        raise SettingsError(f"there is no site {name}", hint=near_miss(name, known) + "; a file of your own: ./my.yaml")
    return _site(read_yaml(known[name], shown_as=f"configs/sites/{name}.yaml"))


def _site(tree: Tree) -> Site:
    """The site in a file; a {job_id} that nothing would replace is refused, ${job_id} is a variable of a shell."""
    origins: Dict[str, str] = {}
    site = build(Site, tree, origins)
    for leaf in leaves(Site):
        if leaf.key not in _WITH_JOB_ID and re.search(rf"(?<!\$){re.escape(JOB_ID)}", str(value_of(site, leaf.key))):
            raise SettingsError(
                f"{origins[leaf.key]}: {leaf.key} has {JOB_ID}, which is for {', '.join(_WITH_JOB_ID)} alone",
                hint="lines of shell have the scheduler's own variable, such as $SLURM_JOB_ID",
            )
    return site
