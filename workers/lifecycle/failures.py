"""What an exception says, in the words of whoever raised it first."""

from __future__ import annotations

import errno
import os
import re
import resource
from pathlib import Path
from typing import Dict, NamedTuple

from ipulaunch.configs.errors import IpulaunchError

# TensorFlow puts an exception that one of our functions raised into the middle of a report of its own, between the
# lines that say where the graph was made and those that say which node it was.
_RAISED = re.compile(r"^ ?(?:[A-Za-z_]+: )?([A-Za-z_.]*(?:Error|Exception))(?:: ?(.*))?$", re.MULTILINE)
_NODE = re.compile(r"\[\[(?:\{\{)?node ")
_ABOUT_THE_GRAPH = ("Graph execution error", "Detected at node", "Errors may have originated", "Function call stack")
_NO_MEMORY = re.compile(
    r"\bMemoryError\b|\bResourceExhaustedError\b|std::bad_alloc|OOM when allocating|[Cc]annot allocate memory"
    r"|failed to map segment from shared object"
)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Failure(NamedTuple):
    """The kind of a failure, what happened in one line, and what to do next."""

    kind: str
    message: str
    hint: str = ""


def failure_of(error: BaseException, directory: Path) -> Failure:
    """The failure of an instance that writes into a directory."""
    kind = type(error).__name__
    if isinstance(error, IpulaunchError):
        return Failure(kind, error.message, error.hint)
    text = str(error)
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        place = Path(os.fsdecode(error.filename)).parent if isinstance(error.filename, (str, bytes)) else directory
        return Failure(kind, f"no space left: {room_in(place)}", "make room there, then resume")
    if any(os.strerror(number) in text for number in NO_SPACE):  # TensorFlow's own writers raise errors of its own
        return Failure(kind, f"no space left: {room_in(directory)}", "make room there, then resume")
    if isinstance(error, MemoryError) or _NO_MEMORY.search(f"{kind}: {text}"):
        return Failure(kind, f"out of memory: {_memory()}", "a smaller micro-batch, fewer instances, or a higher limit")
    if _is_graph_report(text):
        return _from_graph_report(kind, text)
    return Failure(kind, text)


def room_in(directory: Path) -> str:
    """How much room the disk of a directory has."""
    try:
        found = os.statvfs(directory)
    except OSError as error:
        return f"the disk of {directory} does not tell how much ({error.strerror})"
    free, size = (blocks * found.f_frsize / 2**20 for blocks in (found.f_bavail, found.f_blocks))
    return f"the disk of {directory} has {free:.3f} of {size:.3f} MiB free"


def _is_graph_report(text: str) -> bool:
    return _NODE.search(text) is not None or text.startswith("Graph execution error")


def _from_graph_report(kind: str, text: str) -> Failure:
    raised = _RAISED.search(text)
    if raised is not None:
        return Failure(raised.group(1), (raised.group(2) or "").strip())
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t")))
    return Failure(kind, next((line for line in lines if not line.startswith(_ABOUT_THE_GRAPH)), text))


def _memory() -> str:
    """What this process has, what it may have, and what there is."""
    own, host = _amounts(Path("/proc/self/status")), _amounts(Path("/proc/meminfo"))
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    said = [f"this instance has {own.get('VmRSS', 0.0):.2f} GiB in {own.get('VmSize', 0.0):.2f} GiB of address space"]
    if limit != resource.RLIM_INFINITY:
        said.append(f"which is limited to {limit / 2**30:.2f} GiB")
    return ", ".join([*said, f"and its host {host.get('MemAvailable', 0.0):.2f} GiB available"])


def _amounts(path: Path) -> Dict[str, float]:
    """The kernel's table of `name: number kB`, in GiB."""
    try:
        rows = (line.split() for line in path.read_text().splitlines())
    except OSError:
        return {}
    return {row[0].rstrip(":"): int(row[1]) / 2**20 for row in rows if len(row) == 3 and row[2] == "kB"}
