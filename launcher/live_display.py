"""The display on a terminal: one picture of the run, drawn in place."""

from __future__ import annotations

import shutil
import time
from typing import Any, Dict, List, Optional, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.launcher.display import MOST_ROWS, Display, metrics_text
from ipulaunch.launcher.events import Progress
from ipulaunch.launcher.launch import Launch


class LiveDisplay(Display):
    """One picture, drawn in place by rich."""

    def __init__(self, stream: TextIO, output: TextIO, verbose: bool = False) -> None:
        super().__init__(stream, output, verbose)
        self.console = Console(file=stream, highlight=False, emoji=False, soft_wrap=True)
        self.live: Optional[Live] = None

    def start(self, launch: Launch, run: RunDirectory) -> None:
        super().start(launch, run)
        if launch.job is None:
            return
        self.live = Live(console=self.console, refresh_per_second=8, transient=True)
        self.live.start()

    def show(self, progress: Progress, records: List[Dict[str, Any]]) -> None:
        self.milestones(progress, records)
        if self.live is not None:
            self.live.update(self._picture(progress))

    def stop(self) -> None:
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

    def _picture(self, progress: Progress) -> RenderableType:
        seconds = time.monotonic() - self.started
        if not progress.total_updates:
            waiting = f"{len(progress.started)} of {progress.instances} instances have started"
            return Text(f"{waiting} · {seconds:.0f} s", style="cyan")
        table = Table.grid(padding=(0, 2))
        for index in range(min(progress.instances, MOST_ROWS)):
            host = progress.started.get(index, {}).get("host", "")
            rate = f"{progress.rates.get(index, 0):.1f} samples/s"
            cpus = progress.started.get(index, {}).get("binding", {}).get("cpus", "")
            update = f"update {progress.updates.get(index, 0)}"
            table.add_row(f"instance {index}", host, f"cpus {cpus}", update, rate)
        if progress.instances > MOST_ROWS:
            table.add_row(f"+ {progress.instances - MOST_ROWS} more", "", "", "", "")
        width = min(40, shutil.get_terminal_size().columns // 2)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=progress.total_updates, completed=progress.update, width=width),
            f"{progress.update}/{progress.total_updates} updates",
            f"{progress.samples_per_s:.1f} samples/s",
            metrics_text({name: value for name, value in progress.metrics.items() if not name.startswith("val_")}),
            f"{seconds:.0f} s",
        )
        return Group(table, bar)
