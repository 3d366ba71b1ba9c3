"""What a SavedModel takes and gives, as the launcher asks before it starts TensorFlow Serving's own server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.exports import SIGNATURE, servable_versions
from ipulaunch.workers.server.saved_model import signatures


def run(options: Mapping[str, Any], report: Any) -> Dict[str, Any]:
    """The newest version in a directory, and its batch: null where it takes any."""
    found = servable_versions(Path(options["path"]))
    if not found:
        raise DataError(
            f"{options['path']} has no version: a directory with a number for a name and a SavedModel in it"
        )
    number, directory = found[-1]
    every = signatures(directory)
    batch = every[SIGNATURE].batch if SIGNATURE in every else None
    return {"version": number, "batch_size": batch, "signatures": sorted(every)}
