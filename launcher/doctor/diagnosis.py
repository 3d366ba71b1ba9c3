"""What the doctor measures a machine against: a plan, its engine, and the directories and hosts it needs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Tuple

from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.runs.directory import RUNS
from ipulaunch.configs.runs.secrets import MASK, is_secret
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.launcher.engines.registry import ENGINES, default_engine, engine_class
from ipulaunch.launcher.launch.needs import Volumes, volumes_of
from ipulaunch.launcher.launch.redaction import redact
from ipulaunch.topology import Plan

OK, WARNING, MISSING = "ok", "warning", "missing"
DEFAULT_ENGINES = (default_engine("ipu"), default_engine("cpu"))

_LONGEST = 300  # characters of a finding; the output of other programs can be pages long
_STYLE = r"\x1b\[[0-9;?]*[A-Za-z]"  # colours of a terminal
_VALUE = r"([\w.-]+)=([^\s,;'\")]+)"
_USER = r"://[^\s/@]+@"
SYNTHETIC, NOT_NAMED = "synthetic", "not named"

VIPU_PORT = 8090  # poprun's own default


class Check(NamedTuple):
    """One check: what the doctor found, and what to do if that is not enough."""

    group: str
    name: str
    state: str  # OK, WARNING or MISSING
    found: str
    fix: str = ""
    stops: Tuple[str, ...] = ()  # the engines that cannot work while this is missing


def clean(check: Check) -> Check:
    """The same finding without secrets, control characters and lines of its own."""
    return check._replace(found=_plain(check.found)[:_LONGEST], fix=_plain(check.fix))


def amount(size: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.0f} GiB" if size >= 100 else f"{size:.3g} GiB"


def _plain(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in re.sub(_STYLE, "", text))
    words = " ".join(redact(printable.split()))
    # Output of other programs also has secrets in brackets and in addresses.
    words = re.sub(_VALUE, lambda match: f"{match[1]}={MASK}" if is_secret(match[1]) else match[0], words)
    return re.sub(_USER, f"://{MASK}@", words)


class Vipu(NamedTuple):
    """The V-IPU controller and the partition that the user names."""

    host: Optional[str] = None
    port: int = VIPU_PORT
    partition: Optional[str] = None
    may_create: bool = False  # the options let poprun make or change the partition


class UsedDirectory(NamedTuple):
    """A directory that a run reads or writes."""

    name: str
    path: Path
    flag: str
    stops: Tuple[str, ...] = ENGINES  # the engines that cannot work without it
    holds: Tuple[str, ...] = ()  # patterns of files, each of which must match
    holds_any: Tuple[str, ...] = ()  # patterns of files, one of which must match


class Diagnosis(NamedTuple):
    """One diagnosis: a plan and what it needs; without a plan, whatever this machine might be asked for."""

    engines: Tuple[str, ...] = DEFAULT_ENGINES  # to examine
    engine: Optional[str] = None  # that the plan uses
    plan: Optional[Plan] = None
    python: str = sys.executable
    run_dir: Optional[Path] = None  # None: a new one below runs/
    writes: Tuple[UsedDirectory, ...] = ()
    reads: Tuple[UsedDirectory, ...] = ()
    volumes: Optional[Volumes] = None
    samples: str = ""  # SYNTHETIC or NOT_NAMED, if no directory has them
    hosts: Tuple[str, ...] = ()  # beside this machine
    vipu: Optional[Vipu] = None
    directory: Path = Path()  # where runs/ is
    is_own_program: bool = False  # the user's program, which brings its own libraries
    needs_estimators: bool = False

    @property
    def runs(self) -> Path:
        """The directory of the runs, this one included."""
        return self.run_dir.parent if self.run_dir else self.directory / RUNS

    @property
    def instances(self) -> int:
        """Instances of one host."""
        return self.plan.instances_per_host if self.plan else 1

    @property
    def cores(self) -> int:
        """Cores of the largest instance."""
        return max(placement.cores for placement in self.plan.placements) if self.plan else 1

    def examines(self, need: str) -> bool:
        """Whether one of the engines needs this of a machine."""
        return any(need in engine_class(engine).needs for engine in self.engines)

    def for_workloads(self, engines: Tuple[str, ...] = ENGINES) -> Tuple[str, ...]:
        """Those of the engines that cannot run without something that our own workloads use."""
        return () if self.is_own_program else engines

    @property
    def through_ours(self) -> Tuple[str, ...]:
        """The engines that start instances through our package."""
        return tuple(name for name in ENGINES if not self.is_own_program or engine_class(name).wraps_programs)

    @property
    def talks_over_mpi(self) -> bool:
        """A single instance has nobody to talk to."""
        return self.plan is None or self.plan.instances > 1


def with_places(diagnosis: Diagnosis, workload: str, settings: WorkloadSettings) -> Diagnosis:
    """The diagnosis with the directories that the settings of a workload name."""
    data, training = settings.data, settings.training
    reads: List[UsedDirectory] = []
    if data.directory:
        place = _place("data", data.directory, data.option)
        if workload == "cosmoflow":
            reads.append(place._replace(holds=_record_files(training)))
        else:
            reads.append(place._replace(holds_any=PUBLISHED_SETS[workload].signs))
    if training.checkpoint_input_dir and not training.training:  # a training writes it first
        reads.append(_place("checkpoints to evaluate", training.checkpoint_input_dir, "--checkpoint-input-dir"))
    if training.resume:
        reads.append(_place("run to resume", training.resume, "--resume"))
    writes: List[UsedDirectory] = []
    if training.checkpoint_output_dir:
        writes.append(_place("checkpoints", training.checkpoint_output_dir, "--checkpoint-output-dir"))
    if data.stage_dir:
        writes.append(_place("staged records", data.stage_dir, "--stage-dir"))
    if settings.estimator_run.model_dir:
        # Training makes it, or continues from it; testing an Estimator only reads it.
        model = _place("model directory", settings.estimator_run.model_dir, "--model-dir")
        (writes if training.training else reads).append(model)
    samples = ""
    if not data.directory:
        samples = NOT_NAMED if data.is_unnamed else SYNTHETIC
    return diagnosis._replace(
        reads=tuple(reads),
        volumes=volumes_of(workload, settings),
        writes=(*diagnosis.writes, *writes),
        samples=samples,
        needs_estimators=settings.api != KERAS,
    )


def _place(name: str, path: str, flag: str) -> UsedDirectory:
    return UsedDirectory(name, Path(path).absolute(), flag)


def _record_files(training: Any) -> Tuple[str, ...]:
    """The files of CosmoFlow that a job reads."""
    splits = {"train": training.training, "validation": training.validation}
    return tuple(f"{split}/*.tfrecord" for split, is_read in splits.items() if is_read)
