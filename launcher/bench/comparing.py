"""Comparing results with earlier ones: ratios, and whether they lie outside the spread of repeated rounds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.launcher.bench.results import FORMAT, JSON_FILE, OK

OUTSIDE, WITHIN, UNKNOWN = "outside the spread", "within the spread", "no spread: 1 round"


class Change(NamedTuple):
    """A metric now and earlier."""

    earlier: float
    now: float
    ratio: Optional[float]  # now / earlier; None where the earlier one is 0
    verdict: str

    def to_json(self) -> Dict[str, Any]:
        return self._asdict()


class Earlier(NamedTuple):
    """The results of an earlier file: the values of each round, by variant and metric."""

    values: Dict[str, Dict[str, List[float]]]
    commands: Dict[str, str]
    rounds: Optional[int]
    machine: Mapping[str, Any]
    is_complete: bool


def change(now: Sequence[float], earlier: Sequence[float]) -> Optional[Change]:
    """The means of both, their ratio, and whether the rounds of one lie wholly above or below those of the other."""
    if not now or not earlier:
        return None
    means = [sum(values) / len(values) for values in (now, earlier)]
    ratio = means[0] / means[1] if means[1] else None
    if len(now) < 2 and len(earlier) < 2:
        verdict = UNKNOWN
    else:
        verdict = OUTSIDE if min(now) > max(earlier) or max(now) < min(earlier) else WITHIN
    return Change(means[1], means[0], ratio, verdict)


def read_earlier(path: Path) -> Earlier:
    """The results in a file that an earlier call has written, or somebody else; or in the directory of the file."""
    path = path / JSON_FILE if path.is_dir() else path
    hint = "give the benchmark_results.json of an earlier call"
    try:
        found = parse_json(read_text(path))
    except FileNotFoundError:
        raise UsageError(f"--against: there is no file {path}", hint=hint) from None
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"--against: {path} cannot be read: {text}", hint=hint) from error
    if not isinstance(found, dict) or not isinstance(found.get("variants"), list) or found.get("format") != FORMAT:
        raise UsageError(f"--against: {path} does not hold results of ipulaunch bench", hint=hint)
    values: Dict[str, Dict[str, List[float]]] = {}
    commands: Dict[str, str] = {}
    for variant in found["variants"]:
        if isinstance(variant, dict) and isinstance(variant.get("variant_name"), str):
            values[variant["variant_name"]] = _values(variant.get("rounds"))
            commands[variant["variant_name"]] = str(variant.get("command", ""))
    machine, rounds = found.get("machine"), found.get("rounds")
    return Earlier(
        values,
        commands,
        rounds if isinstance(rounds, int) else None,
        machine if isinstance(machine, dict) else {},
        found.get("complete") is True,
    )


def _values(rounds: Any) -> Dict[str, List[float]]:
    values: Dict[str, List[float]] = {}
    for each in rounds if isinstance(rounds, list) else []:
        if not isinstance(each, dict) or each.get("outcome") != OK or not isinstance(each.get("values"), dict):
            continue
        for name, value in each["values"].items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                values.setdefault(name, []).append(float(value))
    return values


def differences(earlier: Earlier, now: Mapping[str, Any]) -> List[str]:
    """What else differs between two sets of results, so that their ratios may mean little."""
    found: List[str] = []
    machine: Mapping[str, Any] = now["machine"]
    other = [
        f"{key} {earlier.machine.get(key)}, now {machine[key]}"
        for key in machine
        if earlier.machine.get(key) != machine[key]
    ]
    if other:
        found.append(f"the earlier results are from another machine: {'; '.join(other)}")
    if earlier.rounds != now["rounds"]:
        found.append(f"the earlier results have {earlier.rounds} rounds, these {now['rounds']}")
    if not earlier.is_complete:
        found.append("the earlier results are not complete: their call was interrupted")
    for variant in now["variants"]:
        name = variant["variant_name"]
        if name not in earlier.values:
            found.append(f"the earlier results do not have {name}")
        elif earlier.commands[name] != variant["command"]:
            found.append(f"the command of {name} was another: {earlier.commands[name]}")
    return found
