"""Numbers out of the logs of a benchmark, by the rules of its specification."""

from __future__ import annotations

import math
import re
from typing import BinaryIO, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.benchmarks import Benchmark, Metric
from ipulaunch.launcher.bench.expressions import evaluate

_LONGEST_LINE = 1 << 20  # bytes that are looked at as one


class Numbers(NamedTuple):
    """What the logs of one round gave, and what they lacked."""

    values: Dict[str, Optional[float]]
    problems: Tuple[str, ...]


def lines_of(logs: Iterable[BinaryIO]) -> Iterator[str]:
    """The lines of several logs, one after the other. What a progress line overwrites is a line too."""
    for log in logs:
        for line in iter(lambda: log.readline(_LONGEST_LINE), b""):  # noqa: B023 - it ends before the next log
            yield from filter(None, re.split("[\r\n]", line.decode("utf-8", "backslashreplace")))


def extract(benchmark: Benchmark, parameters: Mapping[str, str], lines: Iterable[str], processes: int = 1) -> Numbers:
    """The metrics of a benchmark in these lines, and those that its expressions derive from them.

    `processes` of mpirun each print a throughput of their own: that of all is so many times as much.
    """
    texts: Dict[str, List[str]] = {metric.name: [] for metric in benchmark.metrics}
    for line in lines:
        for metric in benchmark.metrics:
            texts[metric.name] += metric.pattern.findall(line)
    values: Dict[str, Optional[float]] = {}
    problems: List[str] = []
    for metric in benchmark.metrics:
        try:
            values[metric.name] = reduced(metric, texts[metric.name])
            if metric.name == "throughput" and processes > 1:
                values[metric.name] = reduced(metric, texts[metric.name]) * processes
        except ValueError as error:
            values[metric.name] = None
            problems.append(f"{metric.name}: {error}")
    known: Dict[str, object] = {**parameters}
    for name, expression in benchmark.derived.items():
        known.update({name: value for name, value in values.items() if value is not None})
        try:
            values[name] = evaluate(expression, known)
        except ValueError as error:
            values[name] = None
            problems.append(f"{name}: {error}")
    return Numbers(values, tuple(problems))


def reduced(metric: Metric, texts: Sequence[str]) -> float:
    """One number out of all matches of a metric. ValueError says why there is none.

    A mean leaves out the `skip` lowest numbers, or the highest if it is a latency: those of the first, slow steps. The
    other reductions leave out none, and still need more matches than `skip`.
    """
    if not texts:
        raise ValueError(f"nothing in the logs matches {metric.pattern.pattern}")
    numbers = [_number(text) for text in texts]
    strange = next((text for text, number in zip(texts, numbers) if not math.isfinite(number)), None)
    if strange is not None:
        raise ValueError(f"the logs have {strange.strip()}")
    if len(numbers) <= metric.skip:
        raise ValueError(f"{len(numbers)} matches in the logs, and skip leaves out {metric.skip}")
    if metric.reduction == "mean":
        kept = sorted(numbers, reverse=metric.name == "latency")[metric.skip :]
        return sum(kept) / len(kept)
    if metric.reduction == "final":
        return numbers[-1]
    if metric.reduction == "value":
        return numbers[0]
    return min(numbers) if metric.reduction == "min" else max(numbers)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} in the logs is no number") from None
