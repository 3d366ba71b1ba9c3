"""What serving makes of the settings of a training: one replica that predicts only, and normalises by itself."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.configs.settings.sections import Launch, Pipeline
from ipulaunch.configs.settings.workload import WithEstimators, WorkloadSettings

_NO_TRAINING: Dict[str, Any] = {
    "training": False,
    "validation": True,
    "gradient_accumulation_count": None,
    "global_batch_size": None,
    "checkpoint_input_dir": None,
    "resume": None,
    "clean_dir": False,
}
_NO_TRAINING_ON_DEVICE: Dict[str, Any] = {
    "optimizer_state_offloading": False,
    "distributed_norm_replicas": 1,
    "stochastic_rounding": "off",
    "io_tiles": None,
    "compile_only": False,
    "profile": False,
}


def serving_settings(settings: WorkloadSettings, *, is_pipelined: bool) -> WorkloadSettings:
    """The settings of the exported model. Its layers and weights are those of the training."""
    data, device = settings.data, settings.device
    # Clients send samples as they are stored, whoever normalises them in training.
    sent: Dict[str, Any] = {"synthetic_data": None, "host_preprocess": False}
    if isinstance(data, ImageData):
        sent["eight_bit_transfer"] = data.sends_bytes
    shares = device.available_memory_proportion
    changed: Dict[str, Any] = {
        "launch": Launch(),
        "data": dataclasses.replace(data, **sent),
        "pipeline": settings.pipeline if is_pipelined else Pipeline(),
        "training": dataclasses.replace(settings.training, **_NO_TRAINING),
        "device": dataclasses.replace(
            device,
            available_memory_proportion=shares if is_pipelined or len(shares) == 1 else (),
            recomputation=device.recomputation and is_pipelined,
            **_NO_TRAINING_ON_DEVICE,
        ),
    }
    if isinstance(settings, WithEstimators):
        changed["estimator"] = type(settings.estimator)()
    return dataclasses.replace(settings, **changed)


def choose_pipeline(settings: WorkloadSettings, divided: bool) -> Tuple[bool, List[str]]:
    """Whether the exported model is divided as in training, and a warning where there is nothing to divide it by."""
    if divided and not settings.pipeline.splits:
        return False, ["--pipeline-serving-model: the model has no pipeline splits in training, so it is not divided"]
    return divided, []


def choose_iterations(pipeline: Pipeline, iterations: int) -> int:
    """How often the program runs in a call: a pipeline takes whole turns of its schedule."""
    turn = _turn(pipeline)
    if not iterations:
        return turn
    if iterations % turn:
        raise SettingsError(
            f"--iterations is {iterations}, and {pipeline.stages} pipeline stages in the {pipeline.schedule} schedule"
            f" take a multiple of {turn}",
            hint=f"use --iterations {-(-iterations // turn) * turn}, or leave it out",
        )
    return iterations


def _turn(pipeline: Pipeline) -> int:
    """The micro-batches that fill a schedule which goes forward only."""
    if not pipeline.splits or pipeline.schedule == "Sequential":
        return 1
    shares_ipus = pipeline.schedule == "Interleaved" and pipeline.ipus < pipeline.stages
    return 2 * pipeline.stages if shares_ipus else pipeline.stages
