"""What a launch needs of the machine that it starts on: its data, its Python, and the user's program."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Sequence

from ipulaunch.configs.errors import DataError, NotReadyError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.settings.data import Data
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.launcher.launch.volumes import looks, volumes_of


def require_data(workload: str, settings: WorkloadSettings) -> None:
    """Refuse directories that are not there, and images without a directory."""
    data, training = settings.data, settings.training
    published = f": {PUBLISHED_SETS[workload].hint}"
    named = [(data.directory, f"{data.option}{published}")]
    if not training.training:  # a training writes there first
        named.append((training.checkpoint_input_dir, "--checkpoint-input-dir"))
        named.append((settings.estimator_run.model_dir, "--model-dir"))
    for path, option in named:
        if path and not Path(path).is_dir():
            raise DataError(f"there is no directory {path}", hint=f"check {option}")
    require_images(workload, data)
    _require_volumes(workload, settings)


def _require_volumes(workload: str, settings: WorkloadSettings) -> None:
    """Refuse volumes of another size. The instances report other defects."""
    volumes = volumes_of(workload, settings)
    if volumes is None or settings.data.bad_records != "fail":
        return
    for look in looks(volumes):
        if look.is_of_another_side:
            raise DataError(f"{look.file}: {look.wrong}", hint=look.fix)


def require_images(workload: str, data: Data) -> None:
    """Refuse a training on images that does not say where they are, wherever it is to run."""
    if data.is_unnamed:
        raise DataError(
            f"{workload} needs its images", hint=f"give {data.option}, or --synthetic-data cpu for synthetic ones"
        )


def require_python(python: str) -> None:
    """Refuse a Python that is not on this machine."""
    _require_executable(python, "check --python")


def require_program(program: str, env: Sequence[str]) -> None:
    """Refuse a program that is not on this machine, in the PATH that its instances get."""
    paths = [value for name, equals, value in (each.partition("=") for each in env) if name == "PATH" and equals]
    _require_executable(program, "check its name, its path and whether it is executable", *paths[-1:])


def _require_executable(name: str, hint: str, path: Optional[str] = None) -> None:
    import shutil  # here, because a dry run starts nothing

    if shutil.which(name, path=path) is None:
        raise NotReadyError(f"there is no program {name} here", hint=hint)
