"""What an exported model takes and gives, and the record that says so."""

from __future__ import annotations

import platform

import tensorflow as tf

from ipulaunch.configs.exports import (
    COUNTS,
    INPUT,
    LOGITS,
    OUTPUT,
    PIXELS,
    TARGETS,
    ExportedWeights,
    ExportRecord,
    Tensor,
)
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.configs.settings.schema import plain
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.workers.serving.arguments import ExportRequest


def input_of(settings: WorkloadSettings, *, on_ipus: bool) -> Tensor:
    """A batch of samples as they are stored. Images that do not go as bytes go in the precision of the computation."""
    shape = (settings.training.micro_batch_size, *settings.shape)
    if not isinstance(settings.data, ImageData):
        # The runtime of an exported program on IPUs takes whole numbers of 8 and 32 bits.
        return Tensor(INPUT, "int32" if on_ipus else "int16", shape, COUNTS)
    in_half = settings.training.precision.startswith("16")
    dtype = "uint8" if settings.data.sends_bytes else "float16" if in_half else "float32"
    return Tensor(INPUT, dtype, shape, PIXELS)


def record_of(
    request: ExportRequest,
    settings: WorkloadSettings,
    taken: Tensor,
    outputs: int,
    weights: ExportedWeights,
    iterations: int,
) -> ExportRecord:
    classes = settings.data.classes if isinstance(settings.data, ImageData) else None
    values = TARGETS if classes is None else LOGITS
    return ExportRecord(
        workload=request.job.workload,
        config=request.config,
        model=settings.model.name,
        version=request.version,
        backend=request.job.backend,
        tensorflow=tf.__version__,
        python=platform.python_version(),
        input=taken,
        output=Tensor(OUTPUT, "float32", (taken.shape[0], int(outputs)), values),
        classes=classes,
        precision=settings.training.precision,
        iterations=iterations,
        pipeline_splits=settings.pipeline.splits if not request.job.is_rehearsal else (),
        weights=weights,
        settings=plain(request.job.settings),
    )
