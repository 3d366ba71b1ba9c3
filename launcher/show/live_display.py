"""The display on a terminal: one picture of the run, drawn in place."""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import Any, Optional, Sequence, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ipulaunch.configs.runs.events import Started, metrics_text
from ipulaunch.launcher.show.display import MOST_ROWS, Display
from ipulaunch.launcher.supervise.progress import Recorded, RunProgress


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
        seconds = time.monotonic() - self.started
        if not progress.total_updates:
            parts = [progress.waiting, progress.preparing, f"{seconds:.0f} s"]
            return Text(" · ".join(filter(None, parts)), style="cyan")
        table = Table.grid(padding=(0, 2))
        for index in range(min(progress.instances, MOST_ROWS)):
            started = progress.started.get(index, Started(""))
            rate = f"{progress.rates.get(index, 0):.1f} samples/s"
            update = f"update {progress.updates.get(index, progress.resumed)}"
            table.add_row(f"instance {index}", started.host, f"cpus {started.cpus}", update, rate)
        if progress.instances > MOST_ROWS:
            table.add_row(f"+ {progress.instances - MOST_ROWS} more", "", "", "", "")
        width = min(40, shutil.get_terminal_size().columns // 2)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=progress.total_updates, completed=progress.position, width=width),
            f"{progress.position}/{progress.total_updates} updates",
            f"{progress.samples_per_s:.1f} samples/s",
            metrics_text({name: value for name, value in progress.metrics.items() if not name.startswith("val_")}),
            f"{seconds:.0f} s",
        )
        return Group(table, bar)
