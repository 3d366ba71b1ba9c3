"""The display on a terminal: one picture of the run, drawn in place."""

from __future__ import annotations

import contextlib
import itertools
import textwrap
import time
from typing import Any, List, Optional, Sequence, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ipulaunch.configs.runs.events import Started
from ipulaunch.configs.text import duration
from ipulaunch.launcher.show.display import MOST_ROWS, Display
from ipulaunch.launcher.supervise.progress import TRAINING, Recorded, RunProgress

_BETWEEN = " · "
_CTRL_C = "^C"  # what a terminal writes behind the picture; a line that it breaks would stay when the picture goes
_WIDE = 72  # columns that a row for each instance needs


class LastingStream:
    """A terminal that may vanish while rich draws on it, also from a thread of its own; the run goes on."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.flush()


class LiveDisplay(Display):
    """One picture, drawn in place by rich."""

    def __init__(self, stream: TextIO, output: TextIO, verbose: bool = False) -> None:
        super().__init__(stream, output, verbose)
        lasting = cast(TextIO, LastingStream(stream))
        self.console = Console(file=lasting, highlight=False, emoji=False, soft_wrap=True)
        self.live: Optional[Live] = None

    def begin(self) -> None:
        super().begin()
        if self.trains:
            self.live = Live(console=self.console, refresh_per_second=8, transient=True)
            self.live.start()

    def show(self, progress: RunProgress, recorded: Sequence[Recorded]) -> None:
        self.milestones(progress, recorded)
        if self.live is not None:
            self.live.update(self._picture(progress))

    def end(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def echo(self, who: str, line: str) -> None:
        if self.live is not None and self.output.isatty():
            self.line(f"{who}| {line}")  # above the picture, not through it
        else:
            super().echo(who, line)

    def row(self, label: str, text: str) -> None:
        self.console.print(Text.assemble((f"  {label:<11} ", "cyan"), text))

    def line(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style, markup=False)

    def _picture(self, progress: RunProgress) -> RenderableType:
        parts, seconds = self.status(progress), time.monotonic() - self.started
        width = self.console.width
        below = Text(fill([*parts, f"{duration(seconds)} in all"], width), style="cyan")
        if progress.phase.name != TRAINING:
            return below
        bar = Table.grid()  # a line of its own, which the bar alone does not end
        bar.add_row(ProgressBar(total=progress.total_updates, completed=progress.position, width=min(40, width - 1)))
        return Group(*([_table(progress)] if width >= _WIDE else []), bar, below)


def fill(parts: Sequence[str], width: int) -> str:
    """The parts in lines that fit this width. Lines break between parts, and inside of one only if it is longer."""
    lines: List[str] = []
    most = max(1, width - 1 - len(_CTRL_C))
    for part in itertools.chain.from_iterable(textwrap.wrap(text, most) for text in parts):
        if lines and len(lines[-1]) + len(_BETWEEN) + len(part) <= most:
            lines[-1] += _BETWEEN + part
        else:
            lines.append(part)
    return "\n".join(lines)


def _table(progress: RunProgress) -> Table:
    """A row for each of the first instances."""
    table = Table.grid(padding=(0, 2))
    for index in range(min(progress.instances, MOST_ROWS)):
        started = progress.started.get(index, Started(""))
        rate = f"{progress.rates.get(index, 0):.1f} samples/s"
        update = f"update {progress.updates.get(index, progress.resumed)}"
        table.add_row(f"instance {index}", started.host, f"cpus {started.cpus}", update, rate)
    if progress.instances > MOST_ROWS:
        table.add_row(f"+ {progress.instances - MOST_ROWS} more", "", "", "", "")
    return table
