"""One launch, from what the user asked for to the command that would run. A dry run is stopping here."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import DataError, PlanError, SettingsError, UsageError
from ipulaunch.configs.job import Job, set_options
from ipulaunch.configs.pods import Catalogue, HostEntry, read_catalogue
from ipulaunch.configs.sections import Launch as LaunchSettings
from ipulaunch.configs.sections import Training
from ipulaunch.configs.workloads import Resolved
from ipulaunch.launcher import engines
from ipulaunch.launcher.command import Command
from ipulaunch.launcher.examination import Finding, check_pipeline, examine
from ipulaunch.launcher.redaction import is_secret
from ipulaunch.topology import hostlist, hosts, pods
from ipulaunch.topology.solver import Request, Solution, solve

_FLAGS = ("offline_mode", "print_topology")  # False where they are not given; other options are None there
PROGRAM = "program"  # the workload name of a user's own program


class Asked(NamedTuple):
    """What the command line says about where and how to launch. None is "not given"."""

    pod: Optional[str] = None
    ipus: Optional[int] = None
    hosts: Optional[str] = None
    hostfile: Optional[Path] = None
    host_layout: Optional[str] = None
    ilds: Optional[int] = None
    oversubscribe: bool = False
    engine: Optional[str] = None
    python: Optional[str] = None
    openmpi_version: Optional[int] = None
    sdk: Optional[Tuple[int, int]] = None
    env: Tuple[str, ...] = ()
    mpi_global_args: Tuple[str, ...] = ()
    mpi_local_args: Tuple[str, ...] = ()
    allow_run_as_root: Optional[bool] = None
    poprun: Mapping[str, Any] = {}  # further fields of PoprunOptions


class Engine(NamedTuple):
    """What will start the instances, and whether it is on this machine."""

    name: str  # "poprun" or "openmpi"
    is_here: bool
    about: str  # one line for the user

    @property
    def backend(self) -> str:
        return "ipu" if self.name == "poprun" else "cpu"


class Launch(NamedTuple):
    """Everything decided: what runs where, and the command for it."""

    engine: Engine
    solution: Solution
    command: Command
    job: Optional[Job]  # None for a user's own program
    notes: Tuple[str, ...]
    training: Tuple[Finding, ...] = ()  # what the plan shows of the training itself


def choose_engine(asked: Optional[str], dry_run: bool) -> Engine:
    """poprun when the SDK is here, else Open MPI; a dry run prints for a POD unless told otherwise."""
    has_poprun = engines.find_poprun() is not None
    name = asked or ("poprun" if has_poprun or dry_run else "openmpi")
    if name == "poprun":
        return Engine(name, has_poprun, "poprun")
    reason = "" if asked else " (no poprun here; is the Poplar SDK enabled?)"
    return Engine(name, engines.find_mpirun() is not None, f"rehearsal on CPUs over Open MPI{reason}")


def plan_for(
    workload: str,
    asked: Asked,
    engine: Engine,
    launch: LaunchSettings,
    training: Training,
    origins: Mapping[str, str],
    *,
    hosts_need_names: bool = True,
) -> Solution:
    """The plan of a workload or program on the system that was asked for."""
    catalogue = read_catalogue()
    system = _system(asked, catalogue)
    found, why_hosts = _hosts(asked, engine, system, catalogue, hosts_need_names)
    return solve(
        Request(
            workload=workload,
            system=system,
            hosts=found,
            ipus_per_replica=launch.ipus_per_replica or 1,
            replicas=launch.num_replicas,
            instances=launch.num_instances,
            ilds=asked.ilds,
            ipus=asked.ipus,
            io_bound=launch.io_bound,
            min_cores_per_instance=launch.min_cores_per_instance,
            micro_batch_size=training.micro_batch_size,
            accumulation=training.gradient_accumulation_count,
            global_batch_size=training.global_batch_size,
            oversubscribe=asked.oversubscribe,
            is_rehearsal=engine.name == "openmpi",
            origins=_origins(asked, launch, training, origins, why_hosts),
        )
    )


def launch_workload(resolved: Resolved, asked: Asked, engine: Engine, run_dir: Optional[Path]) -> Launch:
    """The launch of one of our workloads; with a run directory, the instances take their job from there."""
    settings = resolved.settings
    solution = plan_workload(resolved, asked, engine)
    findings = examine(resolved, solution.plan, engine.backend)
    solution = solution._replace(warnings=(*solution.warnings, *findings.warnings))
    if settings.training.trace_samples and engine.backend == "ipu":
        raise SettingsError(
            "--trace-samples watches the training step, which on IPUs the host does not see",
            hint="rehearse with --engine openmpi: the order of samples is the same",
        )
    if engine.is_here and run_dir is not None:  # what is only printed may be for a machine that has the data
        _look_for_data(resolved.workload, settings)
    worker = [_python(asked, engine), "-m", "ipulaunch.workers", resolved.workload, "--backend", engine.backend]
    worker += ["--rehearsal"] if resolved.rehearsal else []
    worker += set_options(resolved)
    worker += ["--run-dir", str(run_dir)] if run_dir else []
    job = Job(resolved.workload, engine.backend, settings)
    launch = _launch(engine, solution, asked, worker, job)
    return launch._replace(notes=(*launch.notes, *findings.notes), training=findings.lines)


def launch_again(solution: Solution, job: Job, asked: Asked, engine: Engine, run_dir: Path) -> Launch:
    """The launch of a run that has its job in its directory already."""
    worker = [_python(asked, engine), "-m", "ipulaunch.workers", job.workload, "--backend", engine.backend]
    return _launch(engine, solution, asked, [*worker, "--run-dir", str(run_dir)], job)


def plan_workload(resolved: Resolved, asked: Asked, engine: Engine, *, hosts_need_names: bool = True) -> Solution:
    """The plan of a workload; the IPUs of a replica follow from its pipeline stages."""
    settings, origins = resolved.settings, dict(resolved.origins)
    check_pipeline(settings)
    if settings.launch.ipus_per_replica is None and settings.pipeline.splits:
        origins["launch.ipus_per_replica"] = origins["pipeline.splits"]
    launch = dataclasses.replace(settings.launch, ipus_per_replica=settings.ipus_per_replica)
    if asked.pod is None and asked.ipus is None and (launch.single or launch.num_replicas):
        asked = asked._replace(ipus=(launch.num_replicas or 1) * settings.ipus_per_replica)
        origins["ipus"] = "computed"
    return plan_for(
        resolved.workload, asked, engine, launch, settings.training, origins, hosts_need_names=hosts_need_names
    )


def _look_for_data(workload: str, settings: Any) -> None:
    data = settings.data
    for section, name in ((data, "data_dir"), (data, "dataset_path"), (settings.training, "checkpoint_input_dir")):
        path = getattr(section, name, None)
        if path and not Path(path).is_dir():
            raise DataError(f"there is no directory {path}", hint=f"check --{name.replace('_', '-')}")
    if getattr(data, "dataset_path", "") is None and data.synthetic_data is None:
        raise DataError(
            f"{workload} needs its images", hint="give --dataset-path, or --synthetic-data cpu for made-up ones"
        )


def launch_program(program: Tuple[str, ...], asked: Asked, engine: Engine, launch: LaunchSettings) -> Launch:
    """The launch of a user's own PopDist program."""
    solution = plan_for(PROGRAM, asked, engine, launch, Training(), {})
    words = list(program)
    if engine.name == "openmpi":  # poprun binds its instances; mpirun is told not to, so a small module does it
        words = [_python(asked, engine), "-m", "ipulaunch.workers.bound", *words]
    return _launch(engine, solution, asked, words, None)


def _launch(engine: Engine, solution: Solution, asked: Asked, program: List[str], job: Optional[Job]) -> Launch:
    forward, env = _environment(asked.env)
    as_root, notes = _as_root(asked, engine)
    common: Dict[str, Any] = {
        "mpi_global_args": asked.mpi_global_args,
        "mpi_local_args": asked.mpi_local_args,
        "forward": forward,
        "run_as_root": as_root,
    }
    if engine.name == "poprun":
        from ipulaunch.launcher.poprun import PoprunOptions, poprun_argv

        sdk = asked.sdk or engines.sdk_here(os.environ)
        options = PoprunOptions(sdk=sdk, writes_ilds=asked.ilds is not None, **common, **asked.poprun)
        argv = poprun_argv(solution.plan, options, program)
        if asked.openmpi_version is not None:
            notes.append("for rehearsals only, without effect on a POD: --openmpi-version")
        if options.host_subnet and solution.plan.hosts == ("localhost",):
            notes.append("for several hosts, without effect on one: --host-subnet")
    else:
        from ipulaunch.launcher.openmpi import OpenMpiOptions, openmpi_argv

        major, mpirun = asked.openmpi_version or 5, "mpirun"
        if engine.is_here:
            found = engines.open_mpi()
            major, mpirun = asked.openmpi_version or found.major, found.path
        argv = openmpi_argv(solution.plan, OpenMpiOptions(major=major, mpirun=mpirun, **common), program)
        if os.environ.get("OMP_NUM_THREADS"):
            notes.append(f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']} is set: kept, instead of a thread per core")
        given = sorted(name for name, value in asked.poprun.items() if value or (value is False and name not in _FLAGS))
        given += ["sdk_version"] if asked.sdk else []
        if given:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            notes.append(f"for poprun only, without effect in a rehearsal: {flags}")
    return Launch(engine, solution, Command(argv, env), job, tuple(notes))


def _system(asked: Asked, catalogue: Catalogue) -> pods.System:
    if asked.pod is not None:
        return pods.find(asked.pod, catalogue)
    if asked.ipus is not None:
        return pods.of_size(asked.ipus)
    raise UsageError("no system is named", hint="give --pod 16, or --ipus 2 for a part of one")


def _hosts(
    asked: Asked, engine: Engine, system: pods.System, catalogue: Catalogue, need_names: bool
) -> Tuple[Tuple[hosts.Host, ...], str]:
    if asked.hosts is not None and asked.hostfile is not None:
        raise UsageError("--hosts and --hostfile are both given", hint="give one of them")
    names: Tuple[str, ...] = ("localhost",)
    origin = "computed"
    if asked.hosts is not None:
        names, origin = hostlist.parse(asked.hosts), "--hosts"
    elif asked.hostfile is not None:
        names, origin = hostlist.read_file(asked.hostfile), "--hostfile"
    elif engine.name == "poprun" and system.hosts > 1:
        if need_names:
            raise PlanError(
                f"{system.name} needs {system.hosts} hosts, and none are named",
                hint=f"give --hosts a,b or --hosts 'host[0-{system.hosts - 1}]'",
            )
        names, origin = tuple(f"host{index}" for index in range(system.hosts)), "catalogue"
    return tuple(hosts.named(_layout(asked, engine, catalogue), name) for name in names), origin


def _layout(asked: Asked, engine: Engine, catalogue: Catalogue) -> hosts.Host:
    """The cores of one host: as given, as found here when this machine is to run it, else as the catalogue has it."""
    if asked.host_layout is not None:
        return hosts.reference("", hosts.parse_layout(asked.host_layout), "--host-layout")
    if engine.name == "openmpi" or engine.is_here:
        return hosts.discover("")
    reference: HostEntry = catalogue.reference_host
    return hosts.reference("", reference, "catalogue")


def _origins(
    asked: Asked, launch: LaunchSettings, training: Training, origins: Mapping[str, str], hosts_origin: str
) -> Dict[str, str]:
    """Where the solver's wishes came from, under the solver's names."""
    given = {
        "ipus_per_replica": origins.get("launch.ipus_per_replica", "default"),
        "micro_batch_size": origins.get("training.micro_batch_size", "default"),
        "hosts": hosts_origin,
    }
    if launch.num_replicas is not None:
        given["replicas"] = origins.get("launch.num_replicas", "--num-replicas")
    if launch.num_instances is not None:
        given["instances"] = origins.get("launch.num_instances", "--num-instances")
    if training.gradient_accumulation_count is not None:
        given["accumulation"] = origins.get("training.gradient_accumulation_count", "--gradient-accumulation-count")
    if training.global_batch_size is not None:
        given["global_batch_size"] = origins.get("training.global_batch_size", "--global-batch-size")
    if asked.ilds is not None:
        given["ilds"] = "--num-ilds"
    if asked.ipus is not None:
        given["ipus"] = origins.get("ipus", "--ipus")
    return given


def _python(asked: Asked, engine: Engine) -> str:
    # A path of this machine means nothing on another one.
    if asked.python is not None:
        if not asked.python:
            raise UsageError("--python is empty", hint="is the variable that it came from set?")
        return asked.python
    return sys.executable if engine.is_here else "python3"


def _environment(given: Tuple[str, ...]) -> Tuple[Tuple[str, ...], Dict[str, str]]:
    """The variables to forward, and those of them to set."""
    forward, env = [], {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name.replace("_", "a").isalnum() or name[0].isdigit() or not name.isascii():
            raise UsageError(f"--env {name!r} is not the name of a variable")
        if equals and is_secret(name):
            raise UsageError(
                f"--env {name}=... would show a secret in the process list",
                hint=f"set {name} in your environment and give --env {name}",
            )
        if not equals and name not in os.environ:
            raise UsageError(f"--env {name}: it is not set here", hint=f"give --env {name}=VALUE")
        forward.append(name)
        if equals:
            env[name] = value
    return tuple(forward), env


def _as_root(asked: Asked, engine: Engine) -> Tuple[bool, List[str]]:
    if asked.allow_run_as_root is not None:
        return asked.allow_run_as_root, []
    if engine.is_here and os.geteuid() == 0:
        return True, ["running as root: MPI is told to allow it"]
    return False, []
