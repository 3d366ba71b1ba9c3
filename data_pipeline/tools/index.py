"""Builds the record index of a set ahead of its first use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

from ipulaunch.data_pipeline.parallel import Progress, Report, cores
from ipulaunch.data_pipeline.records.index import open_index
from ipulaunch.data_pipeline.records.kept_index import kept_at
from ipulaunch.data_pipeline.sources.imagenet_contents import PictureContents
from ipulaunch.data_pipeline.tools.sets import find_arrays, find_set, holds_records


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Index every split; returns the counts and the place of the index."""
    directory = Path(options["directory"])
    if not holds_records(directory):
        arrays = find_arrays(directory)
        if arrays is not None:
            return {"kind": arrays.kind, "splits": {}}
    found = find_set(directory)
    splits: Dict[str, Any] = {}
    for split, paths in found.splits.items():
        progress = Progress(report, f"{split} files", len(paths))
        contents = PictureContents() if found.kind == "imagenet" else None
        index = open_index(paths, threads=cores(), progress=progress.reach, contents=contents)
        place = kept_at(paths[0].parent)
        splits[split] = {"files": len(paths), "records": index.records, "index": str(place) if place else None}
    return {"kind": found.kind, "splits": splits}
