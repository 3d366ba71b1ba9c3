"""Runs beside each other, on a terminal."""

from __future__ import annotations

import os
from typing import Any, Dict, Sequence

from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.launcher.report.compare_page import difference_rows, outcome_rows, run_rows
from ipulaunch.launcher.report.comparison import ENVIRONMENT, PLAN, SAMPLE, SETTINGS, Comparison
from ipulaunch.launcher.report.effects import Effect
from ipulaunch.launcher.report.page import plain_text
from ipulaunch.launcher.show.picture import table

_WIDEST = 60  # characters of a cell


def compare_text(comparison: Comparison, effects: Sequence[Effect]) -> str:
    """The comparison as tables and sentences."""
    parts = [run_rows(comparison)]
    for kind in (SETTINGS, PLAN, ENVIRONMENT):
        rows = difference_rows(comparison, kind)
        parts += [[(kind, *rows[0][1:]), *rows[1:]]] if rows else []
    parts += [outcome_rows(comparison)] if comparison.outcomes else []
    texts = [table([[_cell(cell) for cell in row] for row in rows]) for rows in parts]
    if comparison.axis == SAMPLE:
        texts.append("the batches differ: compare curves by sample, not by update")
    for effect in effects:
        lines = [f"{effect.run}, {effect.what}: {effect.text}"]
        lines += [f"  can explain it: {cause}" for cause in effect.explained_by]
        lines += [f"  {effect.advice}"] if effect.advice else []
        texts.append("\n".join(harmless(line) for line in lines))
    if not effects:
        texts.append("the throughputs are within 5 %, and the best values within 1 %")
    return "\n\n".join(texts)


def _cell(text: str) -> str:
    whole = str(harmless(text)).replace("\n", " ")
    return whole if len(whole) <= _WIDEST else whole[: _WIDEST - 1] + "…"


def harmless(value: Any) -> Any:
    """A value whose texts, at any depth, are without secrets and steer no terminal."""
    if isinstance(value, str):
        return plain_text(value, secret_values(os.environ))
    if isinstance(value, dict):
        found: Dict[Any, Any] = {harmless(key): harmless(each) for key, each in value.items()}
        return found
    return [harmless(each) for each in value] if isinstance(value, (list, tuple)) else value
