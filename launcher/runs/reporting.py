"""The page about a run: on request, while it goes on, and at its end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Iterator, Optional

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import RunDirectory, records_of, write_whole
from ipulaunch.launcher.report.page import is_possible, require_templates
from ipulaunch.launcher.report.story import RunStory, read_story
from ipulaunch.launcher.runs.run_state import plan_of, state_from_records
from ipulaunch.launcher.runs.states import state_of
from ipulaunch.launcher.show.display import Display

_AT_THE_END_S = 15.0  # for an audit: nobody waits longer for a run that has ended
RENEWED_S = 5


def told(path: Path) -> RunStory:
    """The story of a run, with the state that its records and its scheduler give it."""
    run = records_of(path)
    plan = plan_of(run) or plan_of(RunDirectory(path))
    return read_story(run, plan, state_of(path), path.name)


def write_report(path: Path, to: Optional[Path], *, follows: bool = False) -> Iterator[Path]:
    """Write the page about a run, to its directory unless another file is named; gives where it is.

    On request again and again until the run has ended.
    """
    require_templates()
    target = to or records_of(path).report
    while True:
        began = time.monotonic()
        story = told(path)
        pause_s = max(float(RENEWED_S), 10 * (time.monotonic() - began))  # one large run need not fill a core
        _write(story, target, renewed_s=round(pause_s) if follows else None)
        yield target
        if not follows or not story.goes_on:
            return
        time.sleep(pause_s)


def report_at_end(run: RunDirectory, name: str, display: Display) -> None:
    """Write the page about a run that has ended, where the extra is installed. A failure is a note."""
    if not is_possible():
        return
    try:
        state = state_from_records(run, plan_of(run), frozenset(), is_here=True)
        _write(read_story(run, plan_of(run), state, name), run.report, audit_s=_AT_THE_END_S)
        display.row("report", display.short(run.report))
    except Exception as error:  # noqa: BLE001 - the run is over, and its exit code stands
        display.line(f"note: the report could not be written: {error}")


def _write(story: RunStory, to: Path, *, renewed_s: Optional[int] = None, audit_s: float = 60.0) -> Path:
    from ipulaunch.launcher.report.audit import audited
    from ipulaunch.launcher.report.run_page import run_page

    page = run_page(story, None if story.goes_on else audited(story.run, audit_s), renewed_s)
    try:
        write_whole(to, page)
    except OSError as error:
        hint = "give -o another place"
        raise UsageError(f"the report {to} cannot be written: {error.strerror}", hint=hint) from error
    return to
