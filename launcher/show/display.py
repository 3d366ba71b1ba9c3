"""What the user sees of a run, on stderr. Only the output of instances goes to stdout."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import Any, List, Mapping, Optional, Sequence, Set, TextIO, Tuple

from ipulaunch.configs.errors import JobError
from ipulaunch.configs.messages import WARNING, in_order
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import (
    Event,
    Log,
    Resumed,
    Training,
    Validation,
    WarningEvent,
    measured,
    metrics_text,
)
from ipulaunch.configs.runs.times import longest_wait, times_in, waiting_text
from ipulaunch.configs.text import counted, duration
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.supervise.endings import Restart
from ipulaunch.launcher.supervise.progress import TRAINING, Recorded, RunProgress
from ipulaunch.launcher.supervise.verdict import Verdict
from ipulaunch.topology import Plan

_PLAIN_INTERVAL_S = 5.0
_SILENT_S = 30.0  # in one phase: TensorFlow may take minutes to build a large first update
MOST_ROWS = 8  # instances shown one by one


class Display:
    """Plain lines, one below the other.

    A run is announced and concluded once; each of its attempts begins and ends.
    """

    def __init__(self, stream: TextIO, output: TextIO, verbose: bool = False) -> None:
        self.stream, self.output, self.verbose = stream, output, verbose
        self.started = self.begun = time.monotonic()
        self.last_line, self.last_update, self.last_phase = 0.0, 0, ""
        self.phase, self.phase_began = "", self.started
        self.warned: Set[str] = set()
        self.trains = False

    def announce(self, launch: Launch, run: RunDirectory) -> None:
        """What will run, and where."""
        plan = launch.solution.plan
        self.line(f"{plan.workload} on {plan.system}: {launch.engine.about}", "bold")
        for message in in_order(launch.messages):
            self.warn(message.text) if message.kind == WARNING else self.line(str(message), "dim")
        cores = sorted({placement.cores for placement in plan.placements})
        self.row("IPUs", f"{plan.ipus} = {counted(plan.replicas, 'replica')} x {plan.ipus_per_replica}")
        self.row(
            "instances",
            f"{plan.instances} with {counted(plan.replicas_per_instance, 'replica')} and"
            f" {counted(cores[-1], 'core')}{' each' if plan.instances > 1 else ''},"
            f" on {', '.join(plan.hosts[:4])}{' ...' if len(plan.hosts) > 4 else ''}",
        )
        self.trains = launch.job is not None
        if self.trains:
            self.row("batch", plan.batch.division)
        for fact in launch.solution.training:
            if not fact.in_plan_only:
                self.row(fact.name, fact.text)
        self.row("run", self.short(run.path))

    def begin(self) -> None:
        """An attempt begins, perhaps with an earlier update than the last one that was shown."""
        self.begun = time.monotonic()
        self.last_update, self.last_phase = 0, ""
        self.phase, self.phase_began = "", self.begun

    def show(self, progress: RunProgress, recorded: Sequence[Recorded]) -> None:
        """Show new events, or that some time has passed."""
        self.milestones(progress, recorded)
        phase, parts, now = progress.phase, self.status(progress), time.monotonic()
        silent_s = now - max(self.last_line, self.phase_began)
        if now - self.last_line <= _PLAIN_INTERVAL_S:
            return
        if phase.name == TRAINING:
            is_news = progress.update > self.last_update
        else:
            interval_s = _PLAIN_INTERVAL_S if phase.text != self.last_phase else _SILENT_S
            is_news = self.trains and silent_s > interval_s  # a program of the user tells nothing
        if is_news:
            self.last_line, self.last_update, self.last_phase = now, progress.update, phase.text
            self.line(", ".join(parts))

    def status(self, progress: RunProgress) -> List[str]:
        """What the run does now, in the words of both displays: how far it is, or for how long it has done it."""
        phase, now = progress.phase, time.monotonic()
        if phase.name != self.phase:
            self.phase, self.phase_began = phase.name, now
        if phase.name != TRAINING:
            return [phase.text, duration(now - self.phase_began)]
        values = {name: value for name, value in progress.metrics.items() if not name.startswith("val_")}
        left, waiting = progress.left_s, waiting_text(progress.waiting)
        return [
            phase.text,
            f"{progress.samples_per_s:.1f} samples/s",
            *([waiting] if waiting else []),
            *([metrics_text(values)] if values else []),
            *([f"about {duration(left)} left"] if left is not None else []),
        ]

    def milestones(self, progress: RunProgress, recorded: Sequence[Recorded]) -> None:
        for instance, _, event in recorded:
            if instance == 0 and isinstance(event, (Training, Log, Validation, WarningEvent, Resumed)):
                self.milestone(progress, event)

    def milestone(self, progress: RunProgress, event: Event) -> None:
        self.last_line, self.last_update = time.monotonic(), progress.update
        if isinstance(event, WarningEvent):
            self.warn(event.message)
        elif isinstance(event, Resumed):
            self.line(dataclasses.replace(event, path=self.short(Path(event.path))).text)
        else:
            self.line(event.text)

    def stopping(self, name: str, after: str, grace_s: float) -> None:
        """The run was asked to stop."""
        self.line(
            f"{name}: stopping after {after}, then writing a checkpoint (at most {grace_s:g} s);"
            " send it again to end at once"
        )

    def passing_on(self, name: str, grace_s: float) -> None:
        """The program was asked to stop."""
        self.line(f"{name}: passed on to the program (it has {grace_s:g} s to end); send it again to end at once")

    def restarting(self, verdict: Verdict, restart: Restart, where_from: str) -> None:
        """The run failed, or asks to be continued, and will be started again."""
        failed = verdict.exit_code == JobError.exit_code
        self.line(f"failed: {verdict.headline}" if failed else verdict.headline, "bold red" if failed else "bold")
        for detail in details(dataclasses.replace(verdict, resume="")):  # we do that ourselves
            self.line(detail)
        when = f"in {restart.wait_s:g} s" if restart.wait_s else "now"
        self.line(f"restart {restart.number} of {restart.most} {when}, {where_from}")

    def going_on(self, missing: Mapping[str, str], plan: Plan) -> None:
        """The run continues without some of its hosts."""
        wrong = "; ".join(f"host {host} {what}" for host, what in missing.items())
        self.line(f"{wrong}: going on with {', '.join(plan.hosts)}", "bold")
        self.row("instances", f"{plan.instances} with {counted(plan.replicas_per_instance, 'replica')}")

    def echo(self, who: str, line: str) -> None:
        """A line of an instance's own output, which is what the command produces."""
        self.output.write(f"{who}| {line}\n")
        self.output.flush()

    def end(self) -> None:
        """The attempt has ended; nothing is drawn any more."""

    def conclude(self, verdict: Verdict, run: RunDirectory, summary: Mapping[str, Any]) -> None:
        seconds = time.monotonic() - self.started
        if verdict.exit_code:
            self.line(f"exit code {verdict.exit_code} after {seconds:.0f} s: {verdict.headline}", "bold red")
            for detail in details(verdict):
                self.line(detail)
        else:
            self.line(f"done in {seconds:.0f} s", "bold green")
        if summary and not verdict.exit_code:
            self.summarise(summary)
        self.row("run", self.short(run.path))

    def summarise(self, summary: Mapping[str, Any]) -> None:
        if "samples_per_s" in summary:
            rates = [f"{index}: {rate:.1f}" for index, rate in enumerate(summary["samples_per_s_by_instance"])]
            self.row("throughput", f"{summary['samples_per_s']:.1f} samples/s in total")
            for first in range(0, len(rates), MOST_ROWS):
                self.row("" if first else "by instance", "  ".join(rates[first : first + MOST_ROWS]))
        waiting = waiting_text(longest_wait(times_in(summary)))
        if waiting:
            self.row("time", waiting)
        if "energy" in summary:
            self.row("energy", str(summary["energy"]["text"]))
        if "compiled" in summary:
            self.row("compiled", " and ".join(summary["compiled"]))
            return
        self.row("final", metrics_text(summary["metrics"]))
        if summary.get("best", {}).get("checkpoint"):
            best = summary["best"]
            epoch = "" if best["epoch"] is None else f", epoch {best['epoch']:g}"
            by = f" (by {summary['judged_by']})" if "judged_by" in summary else ""
            self.row("best", f"{best['checkpoint']}{epoch}{by}: {metrics_text(measured(best))}")
        if "target" in summary:
            reached = summary["target"]["reached_by"]
            by = f"reached by {reached.get('checkpoint', 'the weights')}" if reached else "not reached"
            measure = f"{summary['judged_by']} " if "judged_by" in summary else ""
            self.row("target", f"{measure}{summary['target']['value']:g}: {by}")
        for key, label, noun in (("replaced_samples", "replaced", "sample"), ("damaged_files", "damaged", "file")):
            if summary.get(key):
                self.row(label, f"{counted(summary[key], noun)} that could not be read whole; see events.jsonl")
        if summary.get("checkpoint"):
            self.row("checkpoint", summary["checkpoint"])

    def warn(self, message: str) -> None:
        """Show a warning once: the launcher and the instances often find the same."""
        if message not in self.warned:
            self.warned.add(message)
            self.line(f"warning: {message}", "yellow")

    def row(self, label: str, text: str) -> None:
        self.line(f"  {label:<11} {text}")

    @staticmethod
    def short(path: Path) -> str:
        """A path as a user here writes it."""
        try:
            return str(path.relative_to(Path.cwd()))
        except ValueError:
            return str(path)

    def line(self, text: str, style: str = "") -> None:
        """One line; the style is for terminals."""
        with contextlib.suppress(OSError):  # nobody listens any more; the run goes on
            self.stream.write(text + "\n")
            self.stream.flush()


def make_display(verbose: bool) -> Display:
    """The display for this terminal or file: a picture on a terminal, plain lines elsewhere."""
    talk, output = (_usable(stream) for stream in (sys.stderr, sys.stdout))
    if not talk.isatty():
        return Display(talk, output, verbose)
    from ipulaunch.launcher.show.live_display import LiveDisplay

    return LiveDisplay(talk, output, verbose)


def details(verdict: Verdict) -> Tuple[str, ...]:
    """What a verdict knows beside its headline, line by line."""
    restarts = f"restarts: {verdict.restarts} of {verdict.max_restarts} (--max-restarts)"
    return (
        *([restarts] if verdict.restarts else []),
        *([f"hint: {verdict.hint}"] if verdict.hint else []),
        *(f"engine: {line}" for line in verdict.engine_lines),
        *verdict.unkept_lines,
        *(f"  | {line}" for line in verdict.log_lines),
        *([f"log: {verdict.log}"] if verdict.log else []),
        *([f"resume: {verdict.resume}"] if verdict.resume else []),
    )


def _usable(stream: Optional[TextIO]) -> TextIO:
    """The stream, or /dev/null if it was closed before we started."""
    return Path(os.devnull).open("w", encoding="utf-8") if stream is None else stream
