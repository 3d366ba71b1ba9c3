"""A job on stdout: its script, or the id that it got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import click

from ipulaunch.launcher.cli.launch_output import solution_data
from ipulaunch.launcher.runs.run_files import new_run_path, run_path
from ipulaunch.launcher.schedulers.hand_over import hand_over
from ipulaunch.launcher.schedulers.submission import Submission
from ipulaunch.launcher.show.messages import messages_data, show_messages


def submit_or_print(
    prepared: Callable[[Path], Submission], name: str, run_dir: Optional[Path], *, dry_run: bool, as_json: bool
) -> None:
    """Submit the job that a function prepares for the directory of its run; with `dry_run`, only print it."""
    if dry_run:
        _print(prepared(new_run_path(name, run_dir)), as_json)
        return
    with run_path(name, run_dir) as path:
        _hand_over(prepared(path), as_json, is_made=run_dir is None)


def _print(submission: Submission, as_json: bool) -> None:
    """The script, on stdout alone; the rest is talk."""
    if as_json:
        data = {**_data(submission), "script": submission.text, **solution_data(submission.launch.solution)}
        click.echo(json.dumps(data, indent=1))
        return
    show_messages(submission.messages)
    click.echo(submission.text, nl=False)


def _hand_over(submission: Submission, as_json: bool, *, is_made: bool) -> None:
    """Submit the job, with its id on stdout alone."""
    if not as_json:
        show_messages(submission.messages)
    job = hand_over(submission, is_made=is_made)
    if as_json:
        click.echo(json.dumps({**_data(submission), "id": job.id, "submitted": job.submitted}, indent=1))
        return
    click.echo(f"submitted to {job.scheduler}; see ipulaunch status {submission.path}", err=True)
    click.echo(job.id)


def _data(submission: Submission) -> Dict[str, Any]:
    return {"scheduler": submission.scheduler, "run": str(submission.path), **messages_data(submission.messages)}
