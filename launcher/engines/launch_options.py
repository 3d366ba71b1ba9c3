"""The options that say where and how to launch: what a command line has given, and what a run records of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional, Tuple

# Options that can only be switched on: False where they are not given. Others are None there.
FLAGS = ("oversubscribe", "tag_output")


class LaunchOptions(NamedTuple):
    """Where and how to launch. None is "not given"."""

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
    tag_output: bool = False
    mpi_global_args: Tuple[str, ...] = ()
    mpi_local_args: Tuple[str, ...] = ()
    allow_run_as_root: Optional[bool] = None
    poprun: Mapping[str, Any] = {}  # by the keys of poprun_table.OFFERED
    poprun_args: Tuple[str, ...] = ()
