"""Results and specifications as rows of text."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ipulaunch.configs.benchmarks import COMPILE_TIME, Benchmark
from ipulaunch.launcher.bench.comparing import Change, Earlier, change
from ipulaunch.launcher.bench.progress import shown_metrics
from ipulaunch.launcher.bench.results import DURATION, OK, VariantResult, summary
from ipulaunch.launcher.bench.variants import variants_of

Row = Tuple[str, ...]
_ALWAYS = (("run time, s", DURATION), ("compile time, s", COMPILE_TIME))
_TIMES = [name for _, name in _ALWAYS]
_NONE = "-"


def result_rows(results: Sequence[VariantResult], rounds: int, earlier: Optional[Earlier]) -> List[Row]:
    """A row for each metric of each variant, below a row of titles."""
    titles = ["variant", "result", "metric", "mean" if rounds > 1 else "value"]
    titles += ["spread"] if rounds > 1 else []
    titles += ["earlier", "ratio", "difference"] if earlier is not None else []
    rows = [tuple(titles)]
    for result in results:
        first = (result.variant.name, result.outcome)
        for label, name in _shown(result):
            rows.append((*first, label, *_cells(result, name, rounds, earlier)))
            first = ("", "")
    return rows


def _shown(result: VariantResult) -> List[Tuple[str, str]]:
    """What to show of a variant: what was measured, or what should have been."""
    if not result.rounds:
        return [("", "")]
    benchmark = result.variant.benchmark
    wanted = list(shown_metrics(benchmark)) if result.outcome == OK else []
    shown = [name for _, name in wanted]
    found = [*wanted, *(row for row in _ALWAYS if row[1] not in shown)]
    return [row for row in found if row[1] != COMPILE_TIME or result.values(COMPILE_TIME)]


def _cells(result: VariantResult, name: str, rounds: int, earlier: Optional[Earlier]) -> List[str]:
    if name in result.variant.parameters and name not in result.metrics:
        return [result.variant.parameters[name], *[""] * ((rounds > 1) + 3 * (earlier is not None))]
    values = result.values(name)
    found = summary(values)
    form = ".2f" if name in _TIMES else ".6g"
    cells = [_number(found["mean"], form) if name else ""]
    if rounds > 1:
        cells.append(f"{_number(found['min'], form)} to {_number(found['max'], form)}" if values else "")
    if earlier is not None:
        was = earlier.values.get(result.variant.name, {}).get(name, [])
        cells += _change_cells(change(values, was) if result.outcome == OK else None, form)
    return cells


def _change_cells(found: Optional[Change], form: str) -> List[str]:
    if found is None:
        return ["", "", ""]
    return [_number(found.earlier, form), _number(found.ratio, ".3f"), found.verdict]


def _number(value: Optional[float], form: str) -> str:
    return _NONE if value is None else format(value, form)


def changes(results: Sequence[VariantResult], earlier: Earlier) -> Dict[str, Dict[str, Any]]:
    """Every metric that both have, by variant."""
    found: Dict[str, Dict[str, Any]] = {}
    for result in results:
        was = earlier.values.get(result.variant.name, {})
        both = {name: change(result.values(name), was.get(name, [])) for name in result.metrics}
        found[result.variant.name] = {name: each.to_json() for name, each in both.items() if each is not None}
    return found


def listed(benchmarks: Sequence[Benchmark]) -> List[Dict[str, Any]]:
    """The benchmarks of a specification, as data."""
    return [
        {
            "name": benchmark.name,
            "description": benchmark.description,
            "origin": benchmark.origin,
            "convergence": benchmark.is_convergence,
            "command": " ".join(benchmark.cmd.split()),
            "timeout": benchmark.timeout_s,
            "metrics": [*(metric.name for metric in benchmark.metrics), *benchmark.derived],
            "variants": [{"name": each.name, "params": each.parameters} for each in variants_of(benchmark)],
        }
        for benchmark in benchmarks
    ]


def listed_lines(found: Sequence[Mapping[str, Any]]) -> List[str]:
    """The same as lines: each benchmark, what it is, and its variants if it has more than one."""
    lines: List[str] = []
    for each in found:
        lines.append(f"{each['name']}{'  (--include-convergence)' if each['convergence'] else ''}")
        lines += [f"    {each['description']}"] if each["description"] else []
        if len(each["variants"]) > 1:
            lines += [f"    variant {variant['name']}" for variant in each["variants"]]
    return lines
