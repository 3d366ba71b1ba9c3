"""What Poplar reads from the environment: flags when its TensorFlow starts, engine options when it compiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, Mapping

from ipulaunch.configs.errors import NotReadyError, SettingsError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.planning.popdist import has_place

_FLAGS, _ENGINE = "TF_POPLAR_FLAGS", "POPLAR_ENGINE_OPTIONS"
_MODEL_FLAG = "--use_ipu_model"
_CACHE_FLAG, _CACHE_OF_POPRUN = "--executable_cache_path", "POPDIST_EXECUTABLE_CACHE_PATH"


def flags(settings: WorkloadSettings, environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables to set before the first use of an IPU: the user's flags, and those that the settings ask for."""
    given = environ.get(_FLAGS, "")
    if _MODEL_FLAG in given and has_place(environ):
        raise NotReadyError(
            f"{_FLAGS} has {_MODEL_FLAG}, and under poprun the SDK runs on hardware only",
            hint=f"take {_MODEL_FLAG} out of {_FLAGS}, or run one process without poprun: --engine direct",
        )
    if settings.device.compile_only and _CACHE_FLAG not in given and not environ.get(_CACHE_OF_POPRUN):
        raise SettingsError(
            "--compile-only has no place to keep what it compiles",
            hint="give --executable-cache-path, the same as in the training that follows",
        )
    if settings.data.synthetic_data != "ipu":
        return {}
    wanted = ("--use_synthetic_data", "--synthetic_data_initializer=random")
    return {_FLAGS: " ".join([*given.split(), *(flag for flag in wanted if flag not in given.split())])}


def engine_options(reports: Path, environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables that make Poplar write all its reports into a directory; the user's own options win."""
    given = environ.get(_ENGINE, "")
    try:
        own = json.loads(given) if given else {}
    except ValueError as error:
        raise SettingsError(f"{_ENGINE} is not JSON: {error}", hint="unset it, or leave --profile out") from error
    ours = {"autoReport.all": "true", "autoReport.directory": str(reports)}
    return {_ENGINE: json.dumps({**ours, **own})}
