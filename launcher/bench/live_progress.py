"""Progress of benchmarks on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Collection, Optional, Sequence, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ipulaunch.configs.benchmarks import Benchmark
from ipulaunch.configs.runs.secrets import masked
from ipulaunch.launcher.bench.progress import PlainProgress, last_line
from ipulaunch.launcher.bench.results import OK, Round
from ipulaunch.launcher.show.live_display import LastingStream


class LiveProgress(PlainProgress):
    """The same on a terminal, with a line that shows the time and the last output."""

    def __init__(self, stream: TextIO, secrets: Collection[str] = ()) -> None:
        super().__init__(stream, secrets)
        self.console = Console(file=cast(TextIO, LastingStream(stream)), highlight=False, emoji=False)
        self.live: Optional[Live] = None

    def begin(self, what: str, command: str) -> None:
        super().begin(what, command)
        self.live = Live(console=self.console, refresh_per_second=8, transient=True)
        self.live.start()

    def look(self, seconds: float, logs: Sequence[Path]) -> None:
        if self.live is not None:
            text = masked(f"{seconds:5.0f} s  {last_line(logs)}", self.secrets)
            self.live.update(Text(text, style="cyan", no_wrap=True, overflow="ellipsis"))

    def end(self, benchmark: Benchmark, done: Round) -> None:
        self.close()
        super().end(benchmark, done)

    def line(self, text: str, outcome: str = "") -> None:
        style = "" if not outcome else "green" if outcome == OK else "bold red"
        self.console.print(masked(text, self.secrets), style=style, markup=False, soft_wrap=True)

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None
