from __future__ import annotations

import os

from ipulaunch.workers.threads import use_keras_2

# Before any test imports TensorFlow, as the entry point of a worker does.
use_keras_2(os.environ)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
