"""Runs beside each other: as tables for the terminal, and as a page."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from ipulaunch.configs.text import counted, duration, utc
from ipulaunch.launcher.report.comparison import ENVIRONMENT, PLAN, SETTINGS, UPDATE, Comparison, Outcome, batch_of
from ipulaunch.launcher.report.drawing import Panel, Series, draw, number_text
from ipulaunch.launcher.report.effects import Effect
from ipulaunch.launcher.report.how_it_went import Share
from ipulaunch.launcher.report.measures import LEARNING_RATE, SINCE_LAST
from ipulaunch.launcher.report.page import rendered

_MOST_PANELS = 16
_KINDS = {SETTINGS: "Settings that differ", PLAN: "Plans", ENVIRONMENT: "Environments"}

Rows = List[Tuple[str, ...]]


def compare_page(comparison: Comparison, effects: Sequence[Effect]) -> str:
    """The page about several runs."""
    return rendered(
        "compare.html",
        renewed_s=None,
        written=utc(),
        names=comparison.names,
        runs=run_rows(comparison),
        throughputs=_bars(comparison),
        effects=effects,
        differences=[(title, difference_rows(comparison, kind)) for kind, title in _KINDS.items()],
        by_sample=comparison.axis != UPDATE,
        panels=_panels(comparison),
        outcomes=outcome_rows(comparison),
    )


def run_rows(comparison: Comparison) -> Rows:
    """Each run in one line, below a head."""
    rows: Rows = [("run", "state", "updates", "samples", "global batch", "samples/s", "of the first")]
    for number, (name, story) in enumerate(zip(comparison.names, comparison.stories)):
        batch, rate, ratio = batch_of(story), comparison.throughputs[number], comparison.ratio(number)
        update = story.instances[0].update
        rows.append(
            (
                *(name, story.state.word, f"{update:,}", f"{update * batch:,}" if batch else "-", str(batch or "-")),
                *(number_text(rate) if rate else "-", f"{ratio:.0%}" if ratio else "-"),
            )
        )
    return rows


def difference_rows(comparison: Comparison, kind: str) -> Rows:
    """What differs, with its text in each run, below a head; nothing if nothing does."""
    rows: Rows = [(each.name, *each.texts) for each in comparison.differences if each.kind == kind]
    return [("", *comparison.names), *rows] if rows else []


def outcome_rows(comparison: Comparison) -> Rows:
    """What came of each measure, and when its target was reached, below a head."""
    rows: Rows = [("measure", "target", "run", "last", "best", "reached at update", "at sample", "after")]
    for outcome in comparison.outcomes:
        for number, name in enumerate(comparison.names):
            rows.append(
                (
                    *(outcome.measure if number == 0 else "", _number(outcome.target) if number == 0 else "", name),
                    *(_number(outcome.last[number]), _number(outcome.best[number])),
                    *_reached(comparison, outcome, number),
                )
            )
    return rows


def _reached(comparison: Comparison, outcome: Outcome, number: int) -> Tuple[str, str, str]:
    update, seconds = outcome.reached[number]
    if update is None:
        return ("-" if outcome.target is None else "not reached", "-", "-")
    batch = batch_of(comparison.stories[number])
    sample = f"{update * batch:,.0f}" if batch else "-"
    return f"{update:,.0f}", sample, duration(seconds) if seconds is not None else "-"


def _number(value: Optional[float]) -> str:
    return "-" if value is None else number_text(value)


def _panels(comparison: Comparison) -> List[Panel]:
    """The curves of all runs over each other."""
    titles = {SINCE_LAST: "samples per second, from one log to the next", LEARNING_RATE: "learning rate"}
    measures = [outcome.measure for outcome in comparison.outcomes][:_MOST_PANELS]
    found = []
    for measure in (*measures, SINCE_LAST, LEARNING_RATE):
        series = [
            Series(name, number + 1, story.measures.named(measure), comparison.scale(number))
            for number, (name, story) in enumerate(zip(comparison.names, comparison.stories))
        ]
        is_rate = measure in titles
        found.append(draw(titles.get(measure, measure), series, x_label=comparison.axis, from_zero=is_rate))
    return [panel for panel in found if panel is not None]


def _bars(comparison: Comparison) -> List[Share]:
    fastest = max((rate for rate in comparison.throughputs if rate), default=0.0)
    if not 0 < fastest < float("inf"):
        return []
    return [
        Share(name, (number_text(rate), counted(len(story.instances), "instance")), max(0.0, 100 * rate / fastest))
        for name, story, rate in zip(comparison.names, comparison.stories, comparison.throughputs)
        if rate
    ]
