from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import pytest

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.launcher.doctor.world import Output, Space, World
from ipulaunch.launcher.engines import OpenMpi

GIB = 1 << 30

# A small machine as the kernel shows it: two NUMA nodes of two cores, no cgroup limits.
FILES = {
    "proc/self/status": "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nCpus_allowed_list:\t0-3\n",
    "proc/self/cgroup": "0::/\n",
    "proc/self/limits": (
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max processes             96343                96343                processes\n"
        "Max open files            1024                 1048576              files\n"
        "Max locked memory         unlimited            unlimited            bytes\n"
    ),
    "proc/meminfo": "MemTotal:       32000000 kB\nMemAvailable:   24000000 kB\n",
    "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/devices/system/node/node0/cpulist": "0-1\n",
    "sys/devices/system/node/node1/cpulist": "2-3\n",
}


@pytest.fixture()
def make_world(tmp_path: Path) -> Callable[..., World]:
    """A machine that is as a test says: its files, its variables, its programs and what they answer."""

    def make(
        *,
        files: Optional[Mapping[str, str]] = None,
        environ: Optional[Mapping[str, str]] = None,
        says: Optional[Mapping[str, Output]] = None,  # by the name of a program; these programs are on the PATH
        mpi: str = "5.0.8",
        calls: Optional[List[List[str]]] = None,
        **more: Any,
    ) -> World:
        root = tmp_path / "machine"
        for name, text in {**FILES, **(files or {})}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        programs: Dict[str, Output] = dict(says or {})

        def run(argv: Sequence[str], timeout_s: float, text: str = "") -> Output:
            assert 0 < timeout_s < 1000
            if calls is not None:
                calls.append(list(argv))
            return programs.get(Path(argv[0]).name, Output(None, "", "does not start: No such file or directory"))

        def open_mpi() -> OpenMpi:
            if not mpi:
                raise NotReadyError("there is no mpirun here", hint="install one")
            return OpenMpi("/opt/bin/mpirun", mpi)

        given: Dict[str, Any] = {
            "environ": dict(environ or {}),
            "directory": tmp_path,
            "root": root,
            "run": run,
            "find": lambda name: f"/opt/bin/{name}" if name in programs else None,
            "open_mpi": open_mpi,
            "reach": lambda host, port, timeout_s: "",
            "talk_to_self": lambda: "",
            "space": lambda path: Space(20 * GIB, 10 * GIB, 1_000_000),
            "clock": lambda: 4e9,
        }
        return World(**{**given, **more})

    return make
