"""Compiling for a POD on a machine without IPUs: the options that poprun gets then."""

from __future__ import annotations

import os
from typing import List, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.messages import Message, note
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.poprun_table import OFFERED, is_given


def offline(options: LaunchOptions) -> Tuple[LaunchOptions, List[Message]]:
    """The options of a run that attaches no IPU, and a note about those that have no effect there."""
    poprun = options.poprun
    if not poprun.get("executable_cache_path") and "--executable_cache_path" not in os.environ.get(
        "TF_POPLAR_FLAGS", ""
    ):
        raise SettingsError(
            "--compile-only has no place to keep what it compiles",
            hint="give --executable-cache-path, the same as in the training that follows",
        )
    useless = [key for key, value in poprun.items() if is_given(value) and OFFERED[key].attaches]
    kept = {key: value for key, value in poprun.items() if key not in useless}
    names = ", ".join(f"--{OFFERED[key].flag}" for key in useless)
    messages = [note(f"no IPU is attached, so without effect: {names}")] if names else []
    return options._replace(poprun={**kept, "offline_mode": True}), messages
