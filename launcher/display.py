"""What a run shows while it runs and when it ends: talk, on stderr. Only the output of instances goes to stdout."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Set, TextIO

from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.wording import counted
from ipulaunch.launcher.attempts import Restart
from ipulaunch.launcher.events import Progress, measured
from ipulaunch.launcher.launch import Launch
from ipulaunch.launcher.verdict import Verdict

_PLAIN_INTERVAL_S = 5.0
MOST_ROWS = 8  # instances shown one by one


class Display:
    """Plain lines, one below the other."""

    def __init__(self, stream: TextIO, output: TextIO, verbose: bool = False) -> None:
        self.stream, self.output, self.verbose = stream, output, verbose
        self.started = time.monotonic()
        self.last_line, self.last_update = 0.0, 0
        self.warned: Set[str] = set()

    def start(self, launch: Launch, run: RunDirectory) -> None:
        plan = launch.solution.plan
        self.line(f"{plan.workload} on {plan.system}: {launch.engine.about}", "bold")
        for note in launch.notes:
            self.line(f"note: {note}", "dim")
        for warning in launch.solution.warnings:
            self.warn(warning)
        cores = sorted({placement.cores for placement in plan.placements})
        self.row("IPUs", f"{plan.ipus} = {counted(plan.replicas, 'replica')} x {plan.ipus_per_replica}")
        self.row(
            "instances",
            f"{plan.instances} with {counted(plan.replicas_per_instance, 'replica')} and"
            f" {counted(cores[-1], 'core')}{' each' if plan.instances > 1 else ''},"
            f" on {', '.join(plan.hosts[:4])}{' ...' if len(plan.hosts) > 4 else ''}",
        )
        if launch.job is not None:
            self.row("batch", plan.batch.formula.split(" ", 2)[2])
        for name, text in launch.training:
            if name != "IPU only":  # a note has it
                self.row(name, text)
        self.row("run", _short(run.path))

    def show(self, progress: Progress, records: List[Dict[str, Any]]) -> None:
        """New records have arrived, or some time has passed."""
        self.milestones(progress, records)
        now = time.monotonic()
        if progress.update > self.last_update and now - self.last_line > _PLAIN_INTERVAL_S:
            self.last_line, self.last_update = now, progress.update
            self.line(_position(progress))

    def milestones(self, progress: Progress, records: List[Dict[str, Any]]) -> None:
        for record in records:
            if record["instance"] == 0 and record["event"] in ("training", "log", "validation", "warning", "resumed"):
                self.milestone(progress, record)

    def milestone(self, progress: Progress, record: Mapping[str, Any]) -> None:
        self.last_line, self.last_update = time.monotonic(), progress.update
        kind = record["event"]
        if kind == "warning":
            self.warn(record["message"])
        elif kind == "resumed":
            self.line(f"resumed after update {record['update']}: {_short(Path(record['path']))}")
        elif kind == "validation":
            what = record.get("checkpoint", "the weights")
            self.line(f"validation of {what}: {metrics_text(measured(record))}")
        elif kind == "training":
            left_out = f"; {counted(record['left_out'], 'sample')} left out per epoch" if record["left_out"] else ""
            updates = counted(record["updates_per_epoch"], "weight update")
            self.line(f"training: {counted(record['epochs'], 'epoch')} of {updates}{left_out}")
        else:
            self.line(f"epoch {record['epoch']}/{progress.epochs}: {metrics_text(measured(record))}")

    def stopping(self, name: str, grace_s: float) -> None:
        """The run was asked to stop."""
        self.line(f"{name}: stopping after this update, with a checkpoint; {grace_s:g} s, or again to end at once")

    def restarting(self, verdict: Verdict, restart: Restart) -> None:
        """The run failed and will be started again."""
        self.line(f"failed: {verdict.headline}", "bold red")
        for detail in verdict.details:
            self.line(detail)
        self.line(f"restart {restart.number} of {restart.most} in {restart.wait_s:g} s, from the newest checkpoint")

    def echo(self, who: str, line: str) -> None:
        """A line of an instance's own output, which is what the command produces."""
        self.output.write(f"{who}| {line}\n")
        self.output.flush()

    def stop(self) -> None:
        """The run has ended; nothing is drawn any more."""

    def conclude(self, verdict: Verdict, run: RunDirectory, summary: Mapping[str, Any]) -> None:
        seconds = time.monotonic() - self.started
        if verdict.exit_code:
            self.line(f"exit code {verdict.exit_code} after {seconds:.0f} s: {verdict.headline}", "bold red")
            for detail in verdict.details:
                self.line(detail)
        else:
            self.line(f"done in {seconds:.0f} s", "bold green")
        if summary and not verdict.exit_code:
            self.summarise(summary)
        self.row("run", _short(run.path))

    def summarise(self, summary: Mapping[str, Any]) -> None:
        if "samples_per_s" in summary:
            rates = [f"{index}: {rate:.1f}" for index, rate in enumerate(summary["samples_per_s_by_instance"])]
            self.row("throughput", f"{summary['samples_per_s']:.1f} samples/s in total")
            for first in range(0, len(rates), MOST_ROWS):
                self.row("" if first else "by instance", "  ".join(rates[first : first + MOST_ROWS]))
        self.row("final", metrics_text(summary["metrics"]))
        if summary.get("best", {}).get("checkpoint"):
            best = summary["best"]
            self.row("best", f"{best['checkpoint']}, epoch {best['epoch']}: {metrics_text(measured(best))}")
        if "target" in summary:
            reached = summary["target"]["reached_by"]
            by = f"reached by {reached.get('checkpoint', 'the weights')}" if reached else "not reached"
            self.row("target", f"{summary['target']['value']:g}: {by}")
        if summary.get("replaced_samples"):
            replaced = counted(summary["replaced_samples"], "sample")
            self.row("replaced", f"{replaced} that could not be read; see events.jsonl")
        if summary.get("checkpoint"):
            self.row("checkpoint", summary["checkpoint"])

    def warn(self, message: str) -> None:
        """A warning, once: the launcher and the instances often see the same."""
        if message not in self.warned:
            self.warned.add(message)
            self.line(f"warning: {message}", "yellow")

    def row(self, label: str, text: str) -> None:
        self.line(f"  {label:<11} {text}")

    def line(self, text: str, style: str = "") -> None:
        """One line; the style is for terminals."""
        with contextlib.suppress(OSError):  # nobody listens any more; the run goes on
            self.stream.write(text + "\n")
            self.stream.flush()


def make_display(verbose: bool) -> Display:
    """A picture on a terminal, plain lines elsewhere."""
    talk, output = (_usable(stream) for stream in (sys.stderr, sys.stdout))
    if not talk.isatty():
        return Display(talk, output, verbose)
    from ipulaunch.launcher.live_display import LiveDisplay

    return LiveDisplay(talk, output, verbose)


def _usable(stream: Optional[TextIO]) -> TextIO:
    """The stream, in which no character is an error; a place for nothing where it was closed before we started."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def _position(progress: Progress) -> str:
    rate = f"{progress.samples_per_s:.1f} samples/s"
    metrics = [metrics_text(progress.metrics)] if progress.metrics else []
    return ", ".join([f"update {progress.update}/{progress.total_updates}", rate, *metrics])


def metrics_text(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
