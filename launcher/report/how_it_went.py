"""The part of a page that says how a run went: curves, rates, where the time went, attempts."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import INTERRUPTED, StoppedError
from ipulaunch.configs.runs.times import longest_wait, waiting_share
from ipulaunch.configs.text import counted, duration, utc
from ipulaunch.launcher.report.drawing import Panel, Series, Tick, draw, number_text
from ipulaunch.launcher.report.measures import LEARNING_RATE, SINCE_LAST, THROUGHPUT, VALIDATION, Measures
from ipulaunch.launcher.report.records import InstanceRecords
from ipulaunch.launcher.report.story import Attempt, RunStory

_MOST_PANELS = 16
_MOST_BARS = 12  # the slowest instances
_MOST_MARKS = 100  # of an attempt, in the picture
# Of what an update consists of, as instances record it.
_WORDS = {
    "data": "waiting for data",
    "device": "on the device",
    "reduction": "reducing over instances",
    "logging": "logging",
    "checkpoint": "writing checkpoints",
    "validation": "validating",
    "other": "other",
}
SILENT_S = 30.0  # a silence that is worth a word


class Share(NamedTuple):
    """A part of the whole, with its bar."""

    label: str
    texts: Tuple[str, ...]
    percent: float


class Bar(NamedTuple):
    """An attempt on the line of time."""

    label: str
    left: float
    width: float
    style: str
    marks: Sequence[Tuple[float, str]]  # of checkpoints and validations


class Timeline(NamedTuple):
    """The attempts on one line of time."""

    bars: Sequence[Bar]
    ticks: Sequence[Tick]


def panels(measures: Measures) -> List[Panel]:
    """A picture for each measure, for the learning rate and for the throughput."""
    found = []
    for name in measures.names[:_MOST_PANELS]:
        training, validation = measures.named(name), measures.named(VALIDATION + name)
        found.append(draw(name, [Series("training", 1, training), Series("validation", 2, validation)]))
    rates = [
        Series("from one log to the next", 1, measures.named(SINCE_LAST)),
        Series("mean so far, without the first call", 2, measures.named(THROUGHPUT)),
    ]
    found.append(draw("samples per second, all instances", rates, from_zero=True))
    found.append(draw("learning rate", [Series("learning rate", 1, measures.named(LEARNING_RATE))], from_zero=True))
    return [panel for panel in found if panel is not None]


def not_drawn(measures: Measures) -> str:
    """A sentence about measures that have no picture."""
    beyond = len(measures.names) - _MOST_PANELS
    if beyond > 0 or measures.left_out:
        return f"Only the first {_MOST_PANELS} measures are drawn."
    return ""


def times(story: RunStory) -> List[Share]:
    """Where the time of all instances went."""
    seconds = story.seconds
    total = sum(seconds.values())
    if not total:
        return []
    shares = []
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        most = max(story.instances, key=lambda records: _share(records, name))
        texts = (
            f"{100 * seconds[name] / total:.1f} %",
            duration(seconds[name] / len(story.instances)),
            f"{100 * _share(most, name):.1f} % (instance {most.instance})",
        )
        shares.append(Share(_WORDS.get(name, name), texts, 100 * seconds[name] / total))
    return shares


def waiting_for_data(records: InstanceRecords) -> Optional[float]:
    """The part of its time, validation apart, that an instance waits for data, where it records that."""
    return waiting_share(records.seconds) if records.seconds else None


def wait_of(story: RunStory) -> Optional[float]:
    """That of the instance that waits longest."""
    recorded = [records.seconds for records in story.instances if records.seconds]
    return longest_wait(recorded) if recorded else None


def _share(records: InstanceRecords, name: str) -> float:
    return records.seconds.get(name, 0.0) / (sum(records.seconds.values()) or 1.0)


def rates(story: RunStory) -> Dict[int, float]:
    """Samples per second of each instance: of the summary, or as last recorded."""
    said = story.summary.get("samples_per_s_by_instance")
    if isinstance(said, list) and said and all(type(rate) in (int, float) for rate in said):
        return {index: float(rate) for index, rate in enumerate(said)}
    found = ((records.instance, records.samples_per_s) for records in story.instances)
    return {instance: rate for instance, rate in found if rate is not None}


def slowest(story: RunStory) -> List[Share]:
    """The slowest instances, the slowest first."""
    found = rates(story)
    fastest = max(found.values(), default=0.0)
    if len(found) < 2 or not 0 < fastest < float("inf"):
        return []
    hosts = {records.instance: records.host for records in story.instances}
    order = sorted(found, key=lambda instance: (found[instance], instance))[:_MOST_BARS]
    return [
        Share(
            f"instance {instance}",
            (hosts.get(instance, ""), number_text(found[instance])),
            max(0.0, 100 * found[instance] / fastest),
        )
        for instance in order
    ]


def timeline(story: RunStory) -> Optional[Timeline]:
    """The attempts as bars on one line of time."""
    begun = [attempt for attempt in story.attempts if attempt.leader.first_s]
    if not begun:
        return None
    first, last = min(attempt.leader.first_s for attempt in begun), story.last_s
    whole = max(1.0, last - first)

    def at(seconds: float) -> float:
        return round(90 + 536 * min(1.0, max(0.0, (seconds - first) / whole)), 1)

    bars = []
    for attempt in begun:
        left, right = at(attempt.leader.first_s), at(_end_of(attempt, story))
        moments = attempt.leader.moments
        step = max(1, -(-len(moments) // _MOST_MARKS))
        marks = [(at(moment.time_s), moment.kind) for moment in moments[::step]]
        bars.append(Bar(f"attempt {attempt.number}", left, max(2.0, right - left), _style(attempt, story), marks))
    ticks = [Tick(at(first + whole * part / 4), duration(whole * part / 4)) for part in range(5)]
    return Timeline(bars, ticks)


def attempt_rows(story: RunStory) -> List[Tuple[Any, ...]]:
    """The attempts, row by row."""
    rows = []
    for attempt in story.attempts:
        leader = attempt.leader
        end = _end_of(attempt, story)
        is_silent = leader.silence_s >= SILENT_S
        rows.append(
            (
                attempt.number,
                utc(leader.first_s) if leader.first_s else "-",
                duration(max(0.0, end - leader.first_s)) if leader.first_s else "-",
                f"{leader.training.first_update if leader.training else 0} to {leader.update}",
                sum(moment.kind == "checkpoint" for moment in leader.moments),
                f"{duration(leader.silence_s)}, from {utc(leader.silent_from_s)}" if is_silent else "-",
                "; ".join(f"exit code {ending.exit_code}: {ending.headline}" for ending in attempt.endings)
                or ("it goes on" if story.goes_on and attempt is story.attempts[-1] else "no ending is recorded"),
            )
        )
    return rows


def warnings(story: RunStory) -> List[str]:
    """What instances warned about, each once."""
    found: Dict[str, List[int]] = {}
    for records in story.instances:
        for message in records.warnings:
            found.setdefault(message, []).append(records.instance)
    return [
        message if instances == [0] or len(instances) == len(story.instances) else f"{message} ({_who(instances)})"
        for message, instances in list(found.items())[:50]
    ]


def _who(instances: List[int]) -> str:
    if len(instances) == 1:
        return f"instance {instances[0]}"
    return f"{counted(len(instances), 'instance')}, the first is {instances[0]}"


def _end_of(attempt: Attempt, story: RunStory) -> float:
    if attempt is story.attempts[-1] and story.goes_on:
        return story.read_at_s
    return max(attempt.ended_s or 0.0, attempt.leader.last_s)


def _style(attempt: Attempt, story: RunStory) -> str:
    if not attempt.endings:
        return "f1" if attempt is story.attempts[-1] and story.goes_on else "f6"
    code = attempt.endings[0].exit_code
    return {0: "good", StoppedError.exit_code: "warn", INTERRUPTED: "warn"}.get(code, "bad")
