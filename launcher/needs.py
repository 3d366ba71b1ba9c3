"""What a launch needs of the machine that it starts on: its data, and its Python."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ipulaunch.configs.errors import DataError, NotReadyError
from ipulaunch.configs.estimators import KERAS


def require_data(workload: str, settings: Any) -> None:
    """Refuse directories that are not there, and images that nobody has named."""
    data, training = settings.data, settings.training
    named = [(data, "data_dir"), (data, "dataset_path"), (training, "checkpoint_input_dir")]
    if settings.api != KERAS and not training.training:
        named.append((settings.estimator, "model_dir"))
    for section, name in named:
        path = getattr(section, name, None)
        if path and not Path(path).is_dir():
            raise DataError(f"there is no directory {path}", hint=f"check --{name.replace('_', '-')}")
    require_images(workload, settings)


def require_images(workload: str, settings: Any) -> None:
    """Refuse a training on images that does not say where they are, wherever it is to run."""
    if lacks_images(settings):
        raise DataError(
            f"{workload} needs its images", hint="give --dataset-path, or --synthetic-data cpu for synthetic ones"
        )


def lacks_images(settings: Any) -> bool:
    """Whether images are neither named nor to be generated."""
    return getattr(settings.data, "dataset_path", "") is None and settings.data.synthetic_data is None


def require_python(python: str) -> None:
    """Refuse a Python that is not on this machine."""
    if shutil.which(python) is None:
        raise NotReadyError(f"there is no program {python} here", hint="check --python")
