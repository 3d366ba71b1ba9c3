"""Lets an instance fail at a chosen moment. The tests put this directory on PYTHONPATH; Python imports it by itself.

FAULTS in the environment is a list of {"instance", "at", "count", "do", "record", ...}: at the count-th such moment
in that instance, do. A fault leaves the time in its record, and is not repeated where there is one already.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

IGNORE = ctypes.c_void_p(1)  # SIG_IGN; Python's own signal() works in the main thread alone
FOREVER_S = 3600.0  # longer than any test waits, and still an end
LOOK_INTERVAL_S = 0.1  # between two looks of instance 0 for a request to stop


class Fault:
    """One fault of this instance, and how often its moment has come."""

    def __init__(self, fields: Dict[str, Any]) -> None:
        self.fields, self.seen = fields, 0
        self.record = Path(fields["record"])
        self.run = Path(fields["run"])

    def moment(self) -> None:
        self.seen += 1
        if self.is_due():
            self.act()

    def is_due(self) -> bool:
        return self.seen == self.fields.get("count", 1) and not self.record.exists()

    def act(self) -> None:
        self.record.write_text(str(time.time_ns()))
        getattr(self, self.fields["do"])()

    def kill(self) -> None:
        victim = self.fields.get("victim", self.fields["instance"])
        if victim == self.fields["instance"]:
            os.kill(os.getpid(), signal.SIGKILL)
        lines = (self.run / f"instance-{victim:03}" / "events.jsonl").read_text().splitlines()
        os.kill(next(line["pid"] for line in map(json.loads, lines) if line["event"] == "started"), signal.SIGKILL)
        time.sleep(FOREVER_S)  # in the midst of what we do, until the engine ends us

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def leave(self) -> None:
        os._exit(0)

    def fail(self) -> None:
        raise ValueError("a fault that was asked for")

    def damage(self) -> None:
        """Spoil the volumes of a file; their checksums stay."""
        path = Path(self.fields["file"])
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 3)
            file.write(b"\xff" * (path.stat().st_size // 3))

    def starve(self) -> None:
        """Leave hardly more memory than we have, and need much."""
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        bytearray(1 << 30)

    def fill(self) -> None:
        """Leave no room on the disk of a directory."""
        with (Path(self.fields["directory"]) / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def remove(self) -> None:
        # At once: the launcher ends whoever would still be at it.
        shutil.rmtree(Path(self.run).rename(f"{self.run}.removed"))

    def kill_engine(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)

    def kill_launcher(self) -> None:
        os.kill(parent_of(os.getppid()), signal.SIGKILL)

    def hold(self) -> None:
        """Go on when somebody has asked the run to stop, and every instance will hear of it at its next look.

        Or when there is another file, if one is named.
        """
        awaited = Path(self.fields.get("until", self.run / "stop"))
        deadline = time.monotonic() + FOREVER_S
        while not awaited.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"there is no {awaited}")
            time.sleep(0.02)
        time.sleep(LOOK_INTERVAL_S)

    def ask(self) -> None:
        """Ask the launcher to stop, and wait until it has heard of it."""
        os.kill(parent_of(os.getppid()), self.fields["number"])
        self.hold()

    def fill_and_ask(self) -> None:
        self.fill()
        os.kill(parent_of(os.getppid()), signal.SIGTERM)
        self.hold()

    def ask_and_be_deaf(self) -> None:
        os.kill(parent_of(os.getppid()), signal.SIGTERM)
        self.be_deaf()

    def be_deaf(self) -> None:
        ctypes.CDLL(None).signal(int(signal.SIGTERM), IGNORE)
        time.sleep(FOREVER_S)

    def leave_a_child(self) -> None:
        """Start a deaf process in a session of its own, which keeps our output open, and be killed."""
        words = ["sh", "-c", f"trap '' TERM HUP; echo deaf; sleep {FOREVER_S:g}"]
        child = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        os.kill(os.getpid(), signal.SIGKILL)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class WhenImported(importlib.abc.MetaPathFinder):
    """Calls a function with a module as soon as it has been imported, or before that."""

    def __init__(self, name: str, then: Callable[[Any], None], *, before: bool = False) -> None:
        self.name, self.then, self.before = name, then, before

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        if self.before:
            self.then(None)
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            self.then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def around(owner: Any, name: str, before: Callable[[], None], after: Callable[[], None] = lambda: None) -> None:
    real = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        before()
        try:
            return real(*arguments, **named)
        finally:
            after()

    setattr(owner, name, call)


def within(fault: Fault, module: str, owner: str, begin: str, end: str) -> None:
    """The moment is in the sum over all instances that comes between two calls."""
    inside: List[bool] = []

    def enter() -> None:
        fault.seen += 1
        inside.append(True)

    def sum_up() -> None:
        if inside and fault.is_due():
            fault.act()

    def watch(module: Any) -> None:
        if begin == end:
            around(getattr(module, owner), begin, enter, inside.clear)
        else:
            around(getattr(module, owner), begin, enter)
            around(getattr(module, owner), end, inside.clear)

    watch_for(module, watch)
    watch_for("ipulaunch.workers.backends.collective", lambda module: around(module.OverMpi, "sum", sum_up))


def watch_for(name: str, then: Callable[[Any], None], *, before: bool = False) -> None:
    sys.meta_path.insert(0, WhenImported(name, then, before=before))


def in_a_checkpoint(fault: Fault, module: Any) -> None:
    real = module.np.savez

    def savez(file: Any, **arrays: Any) -> None:
        file.write(b"half a file")
        file.flush()
        fault.moment()
        file.seek(0)
        file.truncate()
        real(file, **arrays)

    module.np.savez = savez


def lie_in_wait(fault: Fault) -> None:
    at = fault.fields["at"]
    if at == "start":
        fault.moment()
    elif at == "import":
        for name in ("tensorflow.python.framework.ops", "tensorflow.light_keras"):  # in the midst of either TensorFlow
            watch_for(name, lambda _: fault.moment(), before=True)
    elif at == "step":
        within(fault, "ipulaunch.workers.progress", "Progress", "on_train_batch_begin", "on_train_batch_end")
    elif at == "validation":
        within(fault, "ipulaunch.workers.backends.cpu.backend", "CpuBackend", "validate", "validate")
    elif at == "checkpoint":
        watch_for("ipulaunch.workers.state.checkpoints", lambda module: in_a_checkpoint(fault, module))
    elif at == "load":
        load = "ipulaunch.data_pipeline.sources.cosmoflow"
        watch_for(load, lambda module: around(module.CosmoflowRecords, "load", fault.moment))


for fields in json.loads(os.environ.get("FAULTS", "[]")):
    if os.environ.get("OMPI_COMM_WORLD_RANK") == str(fields["instance"]):
        lie_in_wait(Fault(fields))
