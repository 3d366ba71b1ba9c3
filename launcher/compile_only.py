"""Compiling for a POD on a machine without IPUs: what poprun is told then."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Tuple

from ipulaunch.configs.errors import SettingsError

_OF_IPUS = ("vipu_", "update_partition", "reset_partition", "remove_partition")


def offline(poprun: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[str]]:
    """poprun's options for a run that attaches no IPU, and notes on those that it has no use for."""
    if not poprun.get("executable_cache_path") and "--executable_cache_path" not in os.environ.get(
        "TF_POPLAR_FLAGS", ""
    ):
        raise SettingsError(
            "--compile-only has no place to keep what it compiles",
            hint="give --executable-cache-path, the same as in the training that follows",
        )
    useless = [name for name, value in poprun.items() if value is not None and name.startswith(_OF_IPUS)]
    kept = {name: value for name, value in poprun.items() if name not in useless}
    flags = ", ".join("--" + name.replace("_", "-") for name in useless)
    return {**kept, "offline_mode": True}, [f"no IPU is attached, so without effect: {flags}"] if flags else []
