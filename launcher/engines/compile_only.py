"""Compiling for a POD on a machine without IPUs: what poprun is told then."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.launcher.engines.poprun_table import OFFERED, is_given


def offline(poprun: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[str]]:
    """poprun's options for a run that attaches no IPU, and notes on those that it has no use for."""
    if not poprun.get("executable_cache_path") and "--executable_cache_path" not in os.environ.get(
        "TF_POPLAR_FLAGS", ""
    ):
        raise SettingsError(
            "--compile-only has no place to keep what it compiles",
            hint="give --executable-cache-path, the same as in the training that follows",
        )
    useless = [key for key, value in poprun.items() if is_given(value) and OFFERED[key].attaches]
    kept = {key: value for key, value in poprun.items() if key not in useless}
    flags = ", ".join(f"--{OFFERED[key].flag}" for key in useless)
    return {**kept, "offline_mode": True}, [f"no IPU is attached, so without effect: {flags}"] if flags else []
