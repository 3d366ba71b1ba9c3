"""Which differences between runs can explain which effects."""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

from ipulaunch.configs.text import some
from ipulaunch.launcher.report.comparison import ENVIRONMENT, PLAN, SETTINGS, Comparison, Difference
from ipulaunch.launcher.report.how_it_went import wait_of

_CLEAR = 0.05  # of a throughput; less is noise on most machines
_CLOSE = 0.01  # of a measure, relative to the larger one
THROUGHPUT, LEARNING = "throughput", "learning"

# What a setting, a group of settings or a fact can change. The first row that fits a name is the one that counts.
_CAN_CHANGE: Tuple[Tuple[str, str, Tuple[str, ...]], ...] = (
    (SETTINGS, "training.deterministic", (THROUGHPUT,)),
    (SETTINGS, "training.trace_samples", (THROUGHPUT,)),
    (SETTINGS, "training.logs_per_epoch", (THROUGHPUT,)),
    (SETTINGS, "training.ckpt", (THROUGHPUT,)),
    (SETTINGS, "training.first_ckpt_epoch", (THROUGHPUT,)),
    (SETTINGS, "training.keep_checkpoints", ()),
    (SETTINGS, "training.checkpoint", ()),
    (SETTINGS, "training.clean_dir", ()),
    (SETTINGS, "training.target_accuracy", ()),
    (SETTINGS, "training.validation", ()),
    (SETTINGS, "training.seed", (LEARNING,)),
    (SETTINGS, "training.num_epochs", (LEARNING,)),
    (SETTINGS, "training.remainder", (LEARNING,)),
    (SETTINGS, "training.resume", (LEARNING,)),
    (SETTINGS, "training.", (THROUGHPUT, LEARNING)),
    (SETTINGS, "optimizer.", (LEARNING,)),
    (SETTINGS, "schedule.", (LEARNING,)),
    (SETTINGS, "model.", (THROUGHPUT, LEARNING)),
    (SETTINGS, "data.", (THROUGHPUT, LEARNING)),
    (SETTINGS, "device.", (THROUGHPUT,)),
    (SETTINGS, "pipeline.", (THROUGHPUT,)),
    (SETTINGS, "launch.", (THROUGHPUT,)),
    (SETTINGS, "estimator.", (THROUGHPUT, LEARNING)),
    (PLAN, "workload", (THROUGHPUT, LEARNING)),
    (PLAN, "accumulation", (THROUGHPUT, LEARNING)),
    (PLAN, "global batch", (THROUGHPUT, LEARNING)),
    (PLAN, "", (THROUGHPUT,)),
    (ENVIRONMENT, "TensorFlow", (THROUGHPUT, LEARNING)),
    (ENVIRONMENT, "backend", (THROUGHPUT, LEARNING)),
    (ENVIRONMENT, "", (THROUGHPUT,)),
)


class Effect(NamedTuple):
    """Something that came out differently, and what can explain it."""

    run: str
    what: str  # THROUGHPUT or LEARNING
    text: str
    explained_by: Tuple[str, ...]
    advice: str = ""


def effects_of(comparison: Comparison) -> List[Effect]:
    """What came out differently in each run than in the first one."""
    return [
        effect
        for number in range(1, len(comparison.stories))
        for effect in (*_throughput(comparison, number), *_learning(comparison, number))
    ]


def can_change(difference: Difference) -> Tuple[str, ...]:
    """What a difference can change."""
    rows = (row for row in _CAN_CHANGE if row[0] == difference.kind and difference.name.startswith(row[1]))
    return next((effects for _, _, effects in rows), ())


def _causes(comparison: Comparison, number: int, what: str) -> Tuple[str, ...]:
    """The differences between the first run and another one that can change something."""
    return tuple(
        f"{each.name} ({each.texts[0]} and {each.texts[number]})"
        for each in comparison.differences
        if each.texts[0] != each.texts[number] and what in can_change(each)
    )


def _throughput(comparison: Comparison, number: int) -> List[Effect]:
    ratio = comparison.ratio(number)
    if ratio is None or abs(ratio - 1) < _CLEAR:
        return []
    causes = _causes(comparison, number, THROUGHPUT)
    word = "faster" if ratio > 1 else "slower"
    text = f"{abs(ratio - 1):.0%} {word} than {comparison.names[0]}"
    own, first = (wait_of(comparison.stories[each]) for each in (number, 0))
    if own is not None and first is not None and abs(own - first) > _CLEAR:
        text += f"; it waits for data {own:.0%} of the time, and {comparison.names[0]} {first:.0%}"
    advice = (
        "" if causes else "nothing that is recorded explains it: look for other load on the machines, and run again"
    )
    return [Effect(comparison.names[number], THROUGHPUT, text, causes, advice)]


def _learning(comparison: Comparison, number: int) -> List[Effect]:
    apart = []
    for outcome in comparison.outcomes:
        first, own = outcome.best[0], outcome.best[number]
        if first is None or own is None:
            continue
        if abs(own - first) > _CLOSE * max(abs(own), abs(first)):
            is_better = (own > first) == outcome.higher_is_better
            apart.append(f"best {outcome.measure} {own:.4g}, {'better' if is_better else 'worse'} than {first:.4g}")
    if not apart:
        return []
    causes = _causes(comparison, number, LEARNING)
    advice = ""
    if any(cause.startswith("global batch ") for cause in causes):
        advice = "the batch differs, so its curves are comparable by sample, not by update"
    elif not causes:
        advice = "no setting explains it: the same job makes the same updates, up to rounding between machines"
    return [Effect(comparison.names[number], LEARNING, some(apart, 6, "; "), causes, advice)]
