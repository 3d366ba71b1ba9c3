"""Runs that lie here already, and the one that a new run continues."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from pathlib import Path
from typing import Iterable, List, Optional

from ipulaunch.configs.errors import DataError, SettingsError, UsageError
from ipulaunch.configs.messages import Message, note
from ipulaunch.configs.runs.checkpoints import checkpoints_in, checkpoints_of
from ipulaunch.configs.runs.directory import RUNS, RunDirectory, is_file, records_of
from ipulaunch.configs.runs.job import job_of
from ipulaunch.configs.settings.schema import Leaf, leaves, plain_value, value_of, with_value
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.topology.networks import computed_by

AUTO = "auto"
FRESH_S = 30.0  # instances give a sign of life every second; a network disk may show it late


def all_runs(runs_dir: Path) -> List[Path]:
    """The runs of a directory, the newest first."""
    try:
        found = [path for path in runs_dir.iterdir() if is_file(RunDirectory(path).plan)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{runs_dir} cannot be read: {error.strerror}") from error
    return newest_first(found)


def newest_first(runs: Iterable[Path]) -> List[Path]:
    """Runs in the order in which they were planned last."""
    return sorted(runs, key=lambda path: (started(path), path.name), reverse=True)


def started(path: Path) -> float:
    """When a run was planned last, to be started or submitted then; 0 where it is not known."""
    return modified(RunDirectory(path).plan)


def modified(path: Path) -> float:
    """When a file was written last; 0 where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def last_sign(run: RunDirectory) -> float:
    """When an instance of a run gave its last sign of life; 0 where none has."""
    return max((modified(run.heartbeat(instance)) for instance in run.instances()), default=0.0)


def with_resume(resolved: Resolved, *, elsewhere: bool = False) -> Resolved:
    """The settings with the run to resume as a path; `auto` with no run to resume starts anew.

    Refuses runs of another network, also those whose checkpoints are only to be evaluated; `auto` passes them over.
    What runs `elsewhere`, in a Pod, has its runs on a volume: only a whole path means something there.
    """
    resume, evaluated = resolved.settings.training.resume, resolved.settings.training.checkpoint_input_dir
    if elsewhere:
        _require_whole_path(resume)
        return resolved
    if evaluated is not None:
        require_same_network(Path(evaluated), resolved)
    if resume is None:
        return resolved
    found = newest_run(resolved.workload, resolved.settings) if resume == AUTO else _named(resume, resolved)
    given = resolved.given if found else resolved.given - {"training.resume"}
    training = dataclasses.replace(resolved.settings.training, resume=str(found.absolute()) if found else None)
    return resolved._replace(settings=dataclasses.replace(resolved.settings, training=training), given=given)


def _require_whole_path(resume: Optional[str]) -> None:
    hint = "name the run on the volume: --resume /data/runs/NAME"
    if resume == AUTO:
        raise UsageError("--resume auto looks for runs here, and a Pod has its own", hint=hint)
    if resume is not None and not Path(resume).is_absolute():
        raise UsageError(f"--resume {resume} is relative to the directory here, which a Pod does not see", hint=hint)


def about_resume(given: Resolved, found: Resolved) -> List[Message]:
    """Which run `--resume auto` continues: the one that with_resume() has found."""
    if given.settings.training.resume != AUTO:
        return []
    path = found.settings.training.resume
    nothing = f"no run of {given.workload} with this network has a checkpoint here; a new training starts"
    return [note(f"--resume auto: {f'continues {path}' if path else nothing}")]


def newest_run(workload: str, settings: Optional[WorkloadSettings] = None) -> Optional[Path]:
    """The newest run of a workload here that has written a checkpoint; whether it is whole, only a reader can tell.

    With settings, the newest that has trained their network.
    """

    def can_be_meant(path: Path) -> bool:
        run = records_of(path)
        job = job_of(run)
        if job is None or job.workload != workload or not checkpoints_in(checkpoints_of(run, job)):
            return False
        return settings is None or is_same(settings, job.settings)

    return next(filter(can_be_meant, all_runs(Path(RUNS))), None)


def _named(text: str, resolved: Resolved) -> Path:
    """A run or a checkpoint by its path, or a run by its name; a run of another workload or network is refused."""
    for path in (Path(text), Path(RUNS, text)):
        if os.path.isdir(path):  # noqa: PTH112 - is_dir() raises on names that are too long
            job = job_of(records_of(path))
            if job is not None and job.workload != resolved.workload:
                raise DataError(
                    f"{path} is a run of {job.workload}, and cannot be continued by {resolved.workload}",
                    hint=f"ipulaunch resume {shlex.quote(str(path))} continues it;"
                    f" --resume auto finds the newest of {resolved.workload}",
                )
            require_same_network(path, resolved)
            return path
    raise DataError(f"there is no run or checkpoint {text}", hint="name a run, or use --resume auto")


def require_same_network(path: Path, resolved: Resolved) -> None:
    """Refuse a run of the same workload that has trained another network."""
    job = job_of(records_of(path))
    if job is not None and job.workload == resolved.workload:
        require_same(resolved.settings, job.settings, str(path))


def is_same(settings: WorkloadSettings, earlier: WorkloadSettings) -> bool:
    """Whether both describe the same network."""
    try:
        return computed_by(settings) == computed_by(earlier)
    except SettingsError:  # they describe no network; the worker that builds it says so
        return True


def require_same(settings: WorkloadSettings, earlier: WorkloadSettings, where: str) -> None:
    """Refuse to take the weights of an earlier run into another network."""
    if is_same(settings, earlier):
        return
    differing = _differing(settings, earlier)
    theirs, ours = (
        " and ".join(f"{leaf.key} {shown(value_of(one, leaf.key))}" for leaf in differing)
        for one in (earlier, settings)
    )
    raise SettingsError(
        f"{where} was trained with {theirs or 'another network'}, and this job has {ours or 'its own'}",
        hint=f"add {' '.join(option(leaf, value_of(earlier, leaf.key)) for leaf in differing)}, as in that run"
        if differing
        else "",
    )


def _differing(settings: WorkloadSettings, earlier: WorkloadSettings) -> List[Leaf]:
    """The settings that would each make another network, if they were as in the earlier run."""
    found, ours = [], computed_by(settings)
    for leaf in leaves(type(settings)):
        value = value_of(earlier, leaf.key)
        if value != value_of(settings, leaf.key):
            with contextlib.suppress(SettingsError):  # it goes only with another one
                if computed_by(with_value(settings, leaf.key, value)) == ours:
                    continue
            if leaf.key.startswith(("model.", "data.")):
                found.append(leaf)
    return found


def option(leaf: Leaf, value: object) -> str:
    """The option that gives a setting a value."""
    flag = leaf.about.flag
    return f"{flag} {shown(value)}" if flag and "/" not in flag else f"--set {leaf.key}={shown(value)}"


def shown(value: object) -> str:
    """A value of a setting, as the user writes it."""
    plain = plain_value(value)
    return "null" if plain is None else str(plain).lower() if isinstance(plain, bool) else str(plain)
