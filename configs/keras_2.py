"""Keras 2, the generation that IPUs have, also where TensorFlow has a newer one."""

from __future__ import annotations

import importlib.util
from typing import MutableMapping


def use_keras_2(environ: MutableMapping[str, str]) -> None:
    """Let TensorFlow 2.16 and later take Keras 2 where it is installed; it looks when it is imported."""
    if importlib.util.find_spec("tf_keras"):
        environ["TF_USE_LEGACY_KERAS"] = "1"
