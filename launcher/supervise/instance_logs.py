"""Separating the mixed output of all instances by the tags that Open MPI adds."""

from __future__ import annotations

import os
import re
from typing import BinaryIO, Callable, Dict, List, NamedTuple, Optional, Sequence

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.secrets import MASK
from ipulaunch.topology import Plan

# `[1,3]<stdout>:text`; Open MPI 5 puts a blank after the colon. Tags also stand within a line, where an instance
# wrote it in pieces.
_TAG = re.compile(rb"\[[^\[\],]*,(\d+)\]<(?:stdout|stderr|stddiag)>: ?")
_LONGEST_LINE = 1 << 16

_MOST_LINES = 20

Echo = Callable[[str, str], None]  # (who, line)


class Unkept(NamedTuple):
    """A line that is in no log: of an instance, or of the launcher, which says why."""

    instance: Optional[int]
    line: str


class InstanceLogs:
    """Writes each instance's lines to its own log.txt, and all other lines to engine.txt.

    The last lines for which there is no room are kept here, and so are the last of the engine: the verdict shows them.
    """

    def __init__(
        self,
        run: RunDirectory,
        plan: Plan,
        echo: Optional[Echo] = None,
        *,
        hidden: Sequence[str] = (),
        is_tagged: bool = True,
    ) -> None:
        self.run, self.plan, self.echo, self.is_tagged = run, plan, echo, is_tagged
        self.hidden = [os.fsencode(value) for value in hidden]  # secrets that an instance may print
        self.files: Dict[int, BinaryIO] = {}
        self.partial: Dict[int, bytes] = {}
        self.engine = run.engine_log.open("ab", buffering=0)
        self.engine_lines: List[str] = []
        self.unkept: List[Unkept] = []
        self.last = -1
        self.taken = 0  # lines

    def feed(self, line: bytes) -> None:
        """One line of output, as the engine wrote it; without an engine all lines are those of instance 0."""
        self.taken += 1
        if not self.is_tagged:
            self._take(0, line)
            return
        parts = _TAG.split(line)
        if parts[0]:
            self._take(self.last if len(parts) > 1 and not line.startswith(b"[") else -1, parts[0])
        for instance, text in zip(parts[1::2], parts[2::2]):
            self.last = int(instance)
            self._take(self.last, text)

    def close(self) -> None:
        for instance in list(self.partial):
            self._take(instance, b"\n")
        for file in (*self.files.values(), self.engine):
            file.close()

    def _take(self, instance: int, text: bytes) -> None:
        held = self.partial.pop(instance, b"") + text
        if not held.endswith(b"\n") and len(held) < _LONGEST_LINE:
            self.partial[instance] = held
            return
        if not held.strip(b"\n") and text == b"\n" and instance == -1:
            return
        self._write(instance, held)

    def _write(self, instance: int, text: bytes) -> None:
        for value in self.hidden:
            text = text.replace(value, MASK.encode())
        line = text.decode(errors="replace").rstrip("\n")
        if not 0 <= instance < self.plan.instances:
            self._keep(self.engine, text)
            self.engine_lines = [*self.engine_lines[-_MOST_LINES:], line]
            return
        who = f"{self.plan.placements[instance].host}:{instance}"
        if not self._keep(self._file(instance), text):
            why, *lines = self.unkept
            self.unkept = [why, *lines[-_MOST_LINES:], Unkept(instance, line)]
        if self.echo:
            try:
                self.echo(who, line)
            except OSError:  # whoever read our output has gone, as `| head` does; the logs go on
                self.echo = None

    def _file(self, instance: int) -> Optional[BinaryIO]:
        if instance not in self.files:
            try:
                self.run.instance(instance).mkdir(exist_ok=True)
                self.files[instance] = self.run.log(instance).open("ab", buffering=0)
            except OSError as error:
                self._tell(error)
        return self.files.get(instance)

    def _keep(self, file: Optional[BinaryIO], text: bytes) -> bool:
        """Whether the text is on disk."""
        if file is None:
            return False
        try:
            file.write(text)
        except OSError as error:
            self._tell(error)
            return False
        return True

    def _tell(self, error: OSError) -> None:
        if not self.unkept:
            self.unkept = [Unkept(None, f"output could not be kept in {self.run.path}: {error.strerror}")]
