"""The time that Poplar or PopART took to compile, from the times in their log lines."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from typing import Dict, Iterable, List, Optional, Tuple

_TIME = r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{6})"
# What begins and what ends each phase: TensorFlow's words, then PopART's.
_PHASES = (
    ("Poplar version:|Popart version:", "Begin Poplar graph construction|Poplar graph initialised"),
    ("Begin Poplar graph construction|Poplar graph initialised", "End Poplar graph construction|Starting compilation"),
    ("Begin compiling Poplar engine|Starting compilation", "End compiling Poplar engine|Graph compiled"),
)
_PATTERNS = [tuple(re.compile(f"{_TIME}.* (?:{words})") for words in phase) for phase in _PHASES]
_INSTANCE = re.compile(r"\[([^,\]]*),([^\]]*)\]<std(?:err|out)>:")  # as poprun tags the lines of an instance
_MARKS = re.compile("oplar|opart|compil")

Times = Tuple[List[datetime], List[datetime]]


def compile_seconds(lines: Iterable[str]) -> Optional[float]:
    """Seconds from the first phase that began to the last that ended, over all instances; None if none is whole."""
    phases: Dict[Tuple[int, str], Times] = {}
    for line in lines:
        if not _MARKS.search(line):
            continue
        for phase, (begins, ends) in enumerate(_PATTERNS):
            for which, pattern in enumerate((begins, ends)):
                found = pattern.search(line)
                if found:
                    tag = _INSTANCE.search(line)
                    times = phases.setdefault((phase, tag[0] if tag else ""), ([], []))
                    with contextlib.suppress(ValueError):  # a month 13
                        times[which].append(datetime.fromisoformat(found[1]))
                    break
    whole = [times for times in phases.values() if times[0] and times[1]]
    if not whole:
        return None
    return (max(max(ends) for _, ends in whole) - min(min(begins) for begins, _ in whole)).total_seconds()
