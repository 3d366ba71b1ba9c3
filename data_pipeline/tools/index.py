"""Builds the record index of a set ahead of its first use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

from ipulaunch.data_pipeline.index import kept_at, open_index
from ipulaunch.data_pipeline.tools.parallel import Progress, Report, cores
from ipulaunch.data_pipeline.tools.sets import find_set


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Index every split; says what there is and where the index is kept."""
    found = find_set(Path(options["directory"]))
    splits: Dict[str, Any] = {}
    for split, paths in found.splits.items():
        progress = Progress(report, f"{split} files", len(paths))
        index = open_index(paths, threads=cores(), progress=lambda done, total, p=progress: p.add(done - p.done))  # type: ignore[misc]
        place = kept_at(paths[0].parent)
        splits[split] = {"files": len(paths), "records": index.records, "index": str(place) if place else None}
    return {"kind": found.kind, "splits": splits}
