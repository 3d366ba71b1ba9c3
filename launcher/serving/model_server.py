"""TensorFlow Serving's own server: where it is, and the command that starts it with the published parameters."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import List, Mapping, Optional

from ipulaunch.configs.errors import NotReadyError

BINARY = "tensorflow_model_server"
_VARIABLE = "TF_SERVING_PATH"
_SDK_VARIABLES = ("POPLAR_SDK_PATH", "TF_POPLAR_BASE", "POPLAR_SDK_ENABLED")
_OF_THE_SDK = f"{BINARY}-r2*"  # lies beside what these variables name


def find_model_server(given: Optional[Path], environ: Mapping[str, str]) -> Optional[Path]:
    """The server of this machine, if there is one. One that is named and is not there is an error."""
    if given is not None:
        return _named(given, "--serving-bin-path")
    if environ.get(_VARIABLE):
        return _named(Path(environ[_VARIABLE]), _VARIABLE)
    for variable in _SDK_VARIABLES:
        if environ.get(variable):
            found = sorted(filter(_is_program, Path(environ[variable]).absolute().parent.glob(_OF_THE_SDK)))
            if found:
                return found[-1]
    path = shutil.which(BINARY, path=environ.get("PATH", os.defpath))
    return Path(path) if path else None


def model_server_argv(
    server: Path, base: Path, name: str, port: int, rest_port: int, batching: Optional[Path]
) -> List[str]:
    """The command that serves the newest version in a directory."""
    words = [str(server), f"--model_base_path={base}", f"--model_name={name}", f"--port={port}"]
    words.append(f"--rest_api_port={rest_port}")
    if batching is not None:
        words += ["--enable_batching=true", f"--batching_parameters_file={batching}"]
    return words


def batching_parameters(batch_size: int) -> str:
    """The published parameters for a model that takes batches of this size."""
    return (
        f"max_batch_size {{ value: {batch_size} }}\n"
        "batch_timeout_micros { value: 500 }\n"
        "max_enqueued_batches { value: 1000 }\n"
        "num_batch_threads { value: 4 }\n"
        f"allowed_batch_sizes : {batch_size}\n"
    )


def _named(path: Path, by: str) -> Path:
    if not _is_program(path):
        why = "is not a program" if path.exists() else "does not exist"
        raise NotReadyError(
            f"{by}: {path} {why}", hint=f"name a {BINARY}, or leave {by} out for ipulaunch's own server"
        )
    return path.absolute()


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
