"""One launch, from its plan to the command that would run. A dry run is stopping here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import SettingsError, UsageError
from ipulaunch.configs.runs.job import Job, set_options
from ipulaunch.configs.runs.secrets import is_secret, secret_values, withheld
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.compile_only import offline
from ipulaunch.launcher.engines.poprun_table import is_given, refuse_contradictions
from ipulaunch.launcher.launch.command import Command, words_of
from ipulaunch.launcher.launch.examination import Finding
from ipulaunch.launcher.launch.launch_options import Asked, Engine
from ipulaunch.launcher.launch.needs import lacks_images, require_data, require_python
from ipulaunch.launcher.launch.planning import Planned, plan_workload
from ipulaunch.launcher.launch.redaction import redact, refuse_secret
from ipulaunch.topology import Plan
from ipulaunch.topology.planning.solver import Solution

_OF_MPI = ("poprun_args", "mpi_global_args", "mpi_local_args", "allow_run_as_root", "openmpi_version")


class Launch(NamedTuple):
    """Everything decided: what runs where, and the command for it."""

    engine: Engine
    solution: Solution
    command: Command
    job: Optional[Job]  # None for a user's own program
    notes: Tuple[str, ...]
    training: Tuple[Finding, ...] = ()  # what the plan shows of the training itself
    asked: Asked = Asked()  # what it was planned from


def launch_workload(resolved: Resolved, asked: Asked, engine: Engine, run_dir: Optional[Path]) -> Launch:
    """The launch of one of our workloads; with a run directory, the instances take their job from there."""
    return launch_planned(plan_workload(resolved, asked, engine), resolved, asked, engine, run_dir)


def launch_planned(
    planned: Planned, resolved: Resolved, asked: Asked, engine: Engine, run_dir: Optional[Path]
) -> Launch:
    """The same for a workload that is planned already."""
    settings, (solution, findings) = resolved.settings, planned
    offline_notes: List[str] = []
    if settings.device.compile_only and engine.name != "openmpi":
        poprun, offline_notes = offline(asked.poprun)
        if engine.name == "direct":  # the worker is told by its settings alone
            del poprun["offline_mode"]
        asked = asked._replace(poprun=poprun)
    if engine.is_here and run_dir is not None:  # what is only printed may be for a machine that has the data
        require_data(resolved.workload, settings)
        require_python(_python(asked, engine))
    elif lacks_images(settings):
        warning = f"{resolved.workload} needs its images, and the command names none: give --dataset-path"
        solution = solution._replace(warnings=(*solution.warnings, warning))
    worker = _worker(resolved.workload, asked, engine)
    worker += _described(resolved, solution.plan, engine) if run_dir is None else ["--run-dir", str(run_dir)]
    job = Job(resolved.workload, engine.backend, settings)
    launch = _launch(engine, solution, asked, worker, job)
    notes = (*launch.notes, *offline_notes, *findings.notes)
    return launch._replace(notes=notes, training=findings.lines)


def launch_again(solution: Solution, job: Job, asked: Asked, engine: Engine, run_dir: Path) -> Launch:
    """The launch of a run that has its job in its directory already."""
    worker = _worker(job.workload, asked, engine)
    return _launch(engine, solution, asked, [*worker, "--run-dir", str(run_dir)], job)


def _worker(workload: str, asked: Asked, engine: Engine) -> List[str]:
    """What every instance starts as. A run directory, which follows, has its plan and its job."""
    return [_python(asked, engine), "-m", "ipulaunch.workers", workload, "--backend", engine.backend]


def _described(resolved: Resolved, plan: Plan, engine: Engine) -> List[str]:
    """What a line says that is only printed: its settings, and the replicas where no poprun tells them."""
    words = ["--num-replicas", str(plan.replicas)] if engine.name == "direct" else []
    return [*words, *(["--rehearsal"] if resolved.rehearsal else []), *set_options(resolved)]


def launch_program(solution: Solution, program: Tuple[str, ...], asked: Asked, engine: Engine) -> Launch:
    """The launch of a user's own PopDist program, which is planned already."""
    words = list(program)
    if engine.name == "openmpi":  # poprun binds its instances; mpirun is told not to, so a small module does it
        words = [_python(asked, engine), "-m", "ipulaunch.workers.bound", *words]
    launch = _launch(engine, solution, asked, words, None)
    if asked.python is not None and engine.name == "poprun":
        launch = launch._replace(notes=(*launch.notes, "without effect, as poprun starts the program itself: --python"))
    return launch


def _launch(engine: Engine, solution: Solution, asked: Asked, program: List[str], job: Optional[Job]) -> Launch:
    if job is not None and job.settings.device.compile_only and engine.name == "openmpi":
        raise SettingsError(
            "--compile-only is for IPUs: a rehearsal on CPUs has nothing to compile ahead, and would train",
            hint="compile with --engine poprun, or leave --compile-only out to rehearse",
        )
    forward, env = _environment(asked.env)
    as_root, notes = (False, []) if engine.name == "direct" else _as_root(asked, engine)  # type: Tuple[bool, List[str]]
    notes += _about_secrets(asked, engine, program, forward) if job is None else []
    for text in (*asked.mpi_global_args, *asked.mpi_local_args, *(asked.poprun.get("instance_mpi_local_args") or ())):
        refuse_secret(text, "an argument for MPI")
    for text in asked.poprun_args:
        refuse_secret(text, "an argument for poprun")
    if engine.backend == "ipu":
        refuse_contradictions(asked.poprun, {name: env.get(name, os.environ.get(name, "")) for name in forward})
    common: Dict[str, Any] = {
        "mpi_global_args": asked.mpi_global_args,
        "mpi_local_args": asked.mpi_local_args,
        "forward": forward,
        "run_as_root": as_root,
    }
    if engine.name == "poprun":
        from ipulaunch.launcher.engines.forwarding import named, of_the_sdk
        from ipulaunch.launcher.engines.poprun import PoprunOptions, about_output, poprun_argv
        from ipulaunch.launcher.engines.poprun_table import OFFERED, deprecation

        if solution.plan.hosts != ("localhost",):
            # A line that is only printed is for a machine that has the SDK, and whose other variables nobody knows.
            of_sdk = of_the_sdk(os.environ if engine.is_here else None)
            named_already = {*forward, *named(words_of("--mpi-local-args", asked.mpi_local_args))}
            common["forward"] = (*forward, *(name for name in of_sdk if name not in named_already))
        sdk = asked.sdk or discovery.sdk_here(os.environ)
        options = PoprunOptions(
            sdk=sdk,
            given=asked.poprun,
            more=asked.poprun_args,
            writes_ilds=asked.ilds is not None,
            tags_output=asked.tag_output,
            **common,
        )
        argv = poprun_argv(solution.plan, options, program)
        used = [OFFERED[key] for key, value in asked.poprun.items() if is_given(value)]
        notes += filter(None, (deprecation(option.name, sdk) for option in used))
        shown = asked.poprun.get("only_output_from_instance")
        found = about_output(shown, solution.plan.instances) if shown is not None else []
        notes += [f"{finding.message}: {finding.hint}" for finding in found]
        if asked.openmpi_version is not None:
            notes.append("for rehearsals only, without effect on a POD: --openmpi-version")
        for_hosts = [option.key for option in used if option.for_hosts]
        if for_hosts and solution.plan.hosts == ("localhost",):
            notes.append(f"for several hosts, without effect on one: {_flags(for_hosts)}")
    elif engine.name == "direct":
        from ipulaunch.launcher.engines.direct import direct_environment, require_one_process, unused

        require_one_process(solution.plan.instances, solution.plan.ipus)
        argv = tuple(program)
        env = direct_environment(asked.poprun, env, os.environ if engine.is_here else {})
        of_mpi = [name for name in _OF_MPI if is_given(getattr(asked, name))]
        useless = [*unused(asked.poprun), *of_mpi, *(["tag_output"] if asked.tag_output else [])]
        useless += ["num_ilds"] if asked.ilds else []
        if useless:
            notes.append(f"for poprun and MPI, without effect in one process: {_flags(useless)}")
    else:
        from ipulaunch.launcher.engines.openmpi import LOST_AFTER_S, OpenMpiOptions, openmpi_argv

        major, mpirun = asked.openmpi_version or 5, "mpirun"
        if engine.is_here:
            here = discovery.open_mpi()
            major, mpirun = asked.openmpi_version or here.major, here.path
        lost_after_s = min(LOST_AFTER_S, job.settings.survival.stall_timeout_s) if job else LOST_AFTER_S
        about = OpenMpiOptions(major=major, mpirun=mpirun, lost_after_s=lost_after_s, **common)
        argv = openmpi_argv(solution.plan, about, program)
        if os.environ.get("OMP_NUM_THREADS"):
            notes.append(f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']} is set: kept, instead of a thread per core")
        useless = sorted(key for key, value in asked.poprun.items() if is_given(value))
        useless += ["poprun_args"] if asked.poprun_args else []
        useless += ["sdk_version"] if asked.sdk else []
        if useless:
            notes.append(f"for poprun only, without effect in a rehearsal: {_flags(useless)}")
    if job is not None and job.settings.survival.elastic_hosts and not job.settings.survival.max_restarts:
        notes.append("for restarts, without effect as there are none: --elastic-hosts; see --max-restarts")
    return Launch(engine, solution, Command(argv, env), job, tuple(notes), asked=asked)


def _flags(names: List[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _python(asked: Asked, engine: Engine) -> str:
    # A path of this machine means nothing on another one.
    if asked.python is not None:
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
            how = f"export {name} first" if is_secret(name) else f"export it first, or give --env {name}=VALUE"
            raise UsageError(f"--env {name}: it is not set here", hint=how)
        forward.append(name)
        if equals:
            refuse_secret(value, f"--env {name}=...")
            env[name] = value
    return tuple(forward), env


def _about_secrets(asked: Asked, engine: Engine, program: List[str], forward: Tuple[str, ...]) -> List[str]:
    notes = []
    if redact(program, secret_values(os.environ)) != program:
        notes.append("a secret among the program's arguments is in the list of processes; see --env NAME")
    away = withheld(os.environ, forward) if engine.is_here else []
    if away:
        notes.append(f"not given to the instances, as --env does not name them: {', '.join(away)}")
    return notes


def _as_root(asked: Asked, engine: Engine) -> Tuple[bool, List[str]]:
    if asked.allow_run_as_root is not None:
        return asked.allow_run_as_root, []
    if engine.is_here and os.geteuid() == 0:
        return True, ["running as root: MPI is told to allow it"]
    return False, []
