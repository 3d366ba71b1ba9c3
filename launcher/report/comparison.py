"""Runs beside each other: what differs in what was asked for, and in what came of it."""

from __future__ import annotations

import bisect
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.runs.secrets import MASK, is_secret
from ipulaunch.configs.settings.schema import leaves, value_of
from ipulaunch.launcher.report.curve import Curve
from ipulaunch.launcher.report.how_it_went import rates
from ipulaunch.launcher.report.measures import SECONDS, VALIDATION
from ipulaunch.launcher.report.run_page import setting_text
from ipulaunch.launcher.report.story import RunStory

UPDATE, SAMPLE = "update", "sample"
SETTINGS, PLAN, ENVIRONMENT = "settings", "plan", "environment"
NOTHING = "-"
_RESUME = "training.resume"
_HIGHER = ("accuracy", "auc", "precision", "recall", "top")  # is better; of all else, lower is


class Difference(NamedTuple):
    """One thing that is not the same in all runs, with its text in each."""

    kind: str
    name: str
    texts: Tuple[str, ...]


class Reached(NamedTuple):
    """When a run has reached a target; None where it has not."""

    update: Optional[float]
    seconds: Optional[float]  # of its updates


class Outcome(NamedTuple):
    """What came of one measure in each run."""

    measure: str
    higher_is_better: bool
    last: Tuple[Optional[float], ...]
    best: Tuple[Optional[float], ...]
    target: Optional[float]
    reached: Tuple[Reached, ...]


class Comparison(NamedTuple):
    """Runs beside each other; the first one is what the others are compared with."""

    stories: Tuple[RunStory, ...]
    differences: Tuple[Difference, ...]
    outcomes: Tuple[Outcome, ...]
    throughputs: Tuple[Optional[float], ...]
    axis: str  # what the curves of all can be compared by

    @property
    def names(self) -> Tuple[str, ...]:
        """The names of the runs; those that are the same have their directories."""
        names = [story.name for story in self.stories]
        return tuple(str(story.run.path) if names.count(story.name) > 1 else story.name for story in self.stories)

    def scale(self, number: int) -> float:
        """How many of the axis one update of a run is."""
        return float(batch_of(self.stories[number]) or 1) if self.axis == SAMPLE else 1.0

    def ratio(self, number: int) -> Optional[float]:
        """The throughput of a run as a multiple of the first one's."""
        first, own = self.throughputs[0], self.throughputs[number]
        return own / first if own is not None and first else None


def compared(stories: Sequence[RunStory], targets: Mapping[str, float]) -> Comparison:
    """The comparison of several runs, with the time to these targets and to those that all of them have reached."""
    differences = [*_settings(stories), *_facts(PLAN, list(map(_plan_of, stories)))]
    differences += _facts(ENVIRONMENT, list(map(_environment_of, stories)))
    batches = {batch_of(story) for story in stories}
    names = dict.fromkeys(name for story in stories for name in story.measures.names)
    outcomes = [outcome for name in names for outcome in _outcomes(name, stories, targets)]
    throughputs = tuple(sum(found.values()) or None for found in map(rates, stories))
    axis = SAMPLE if len(batches) > 1 and None not in batches else UPDATE
    return Comparison(tuple(stories), tuple(differences), tuple(outcomes), throughputs, axis)


def batch_of(story: RunStory) -> Optional[int]:
    """The samples of one update."""
    return story.plan.batch.global_size if story.plan else None


def _settings(stories: Sequence[RunStory]) -> List[Difference]:
    tables: List[Dict[str, str]] = []
    for story in stories:
        settings = story.job.settings if story.job else None
        keys = [leaf.key for leaf in leaves(type(settings))] if settings else []
        table = {key: setting_text(value_of(settings, key)) for key in keys}
        if table.get(_RESUME) == str(story.run.path):  # a restart, which the attempts tell
            table[_RESUME] = NOTHING
        tables.append(table)
    found = _facts(SETTINGS, tables)
    return [each._replace(texts=(MASK,) * len(each.texts)) if is_secret(each.name) else each for each in found]


def _facts(kind: str, tables: Sequence[Mapping[str, str]]) -> List[Difference]:
    """What is not the same in all tables."""
    keys = dict.fromkeys(key for each in tables for key in each)
    rows = [Difference(kind, key, tuple(each.get(key, NOTHING) for each in tables)) for key in keys]
    return [row for row in rows if len(set(row.texts)) > 1]


def _plan_of(story: RunStory) -> Dict[str, str]:
    plan = story.plan
    if plan is None:
        return {}
    cores = sorted({placement.cores for placement in plan.placements})
    return {
        "workload": plan.workload,
        "system": plan.system,
        "IPUs": str(plan.ipus),
        "replicas": str(plan.replicas),
        "IPUs per replica": str(plan.ipus_per_replica),
        "instances": str(plan.instances),
        "hosts": ", ".join(plan.hosts[:8]),
        "cores per instance": ", ".join(map(str, cores)),
        "accumulation": str(plan.batch.accumulation),
        "global batch": str(plan.batch.global_size),
        "shared cores": "yes" if plan.oversubscribed else "no",
    }


def _environment_of(story: RunStory) -> Dict[str, str]:
    started = [records.started for records in story.instances if records.started]
    leader = story.instances[0].started
    if leader is None:
        return {}
    return {
        "backend": leader.backend,
        "TensorFlow": leader.tensorflow,
        "Python": leader.python,
        "machines": ", ".join(sorted({event.host for event in started})[:8]),
        "CPUs of instance 0": leader.cpus,
        "memory of instance 0": str(leader.binding.get("memory", "")),
        "threads": ", ".join(f"{name} {value}" for name, value in list(leader.threads.items())[:8]),
        "attempts": str(story.attempts[-1].number),
    }


def _outcomes(name: str, stories: Sequence[RunStory], targets: Mapping[str, float]) -> List[Outcome]:
    """What came of a measure in training and in validation."""
    found = []
    for measure in (name, VALIDATION + name):
        curves = [story.measures.named(measure) for story in stories]
        if not any(curve.count for curve in curves):
            continue
        is_higher = any(word in measure for word in _HIGHER)
        best = tuple(_best(curve, is_higher) for curve in curves)
        reached_by_all = [value for value in best if value is not None]
        common = (min if is_higher else max)(reached_by_all) if len(reached_by_all) == len(curves) else None
        target = targets.get(measure, common)
        last = tuple(curve.values[-1] if curve.count else None for curve in curves)
        reached = tuple(_reached(story, curve, target, is_higher) for story, curve in zip(stories, curves))
        found.append(Outcome(measure, is_higher, last, best, target, reached))
    return found


def _best(curve: Curve, is_higher: bool) -> Optional[float]:
    return (max if is_higher else min)(curve.values) if curve.count else None


def _reached(story: RunStory, curve: Curve, target: Optional[float], is_higher: bool) -> Reached:
    if target is None:
        return Reached(None, None)
    sign = 1 if is_higher else -1
    reached = (update for update, value in zip(curve.updates, curve.values) if sign * value >= sign * target)
    update = next(reached, None)
    return Reached(update, None if update is None else _seconds_at(story, update))


def _seconds_at(story: RunStory, update: float) -> Optional[float]:
    """The seconds that the updates up to one took, by the first log that has it."""
    times = story.measures.named(SECONDS)
    place = bisect.bisect_left(times.updates, update)
    return times.values[place] if place < len(times.values) else None


def as_data(comparison: Comparison, effects: Sequence[Any]) -> Dict[str, Any]:
    """The comparison as plain data."""
    return {
        "runs": [
            {
                "name": name,
                "path": str(story.run.path),
                "state": story.state.word,
                "samples_per_s": throughput,
                "throughput_ratio": comparison.ratio(number),
                "global_batch": batch_of(story),
            }
            for number, (name, story, throughput) in enumerate(
                zip(comparison.names, comparison.stories, comparison.throughputs)
            )
        ],
        "compared_by": comparison.axis,
        "differences": [
            {"kind": each.kind, "name": each.name, "values": list(each.texts)} for each in comparison.differences
        ],
        "outcomes": [
            {
                "measure": each.measure,
                "last": list(each.last),
                "best": list(each.best),
                "target": each.target,
                "reached": [dict(reached._asdict()) for reached in each.reached],
            }
            for each in comparison.outcomes
        ],
        "effects": [dict(effect._asdict()) for effect in effects],
    }
