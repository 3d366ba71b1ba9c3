"""An export, read from top to bottom: the network, its weights, the program, and the record beside it."""

from __future__ import annotations

from typing import Any, List, Tuple

import tensorflow as tf

from ipulaunch.configs.exports import INPUT, ExportRecord, record_path, to_json
from ipulaunch.configs.runs.directory import write_whole
from ipulaunch.data_pipeline.reported import Report
from ipulaunch.topology.networks import network_of
from ipulaunch.workers.backends.interface import Backend
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.precision import precision
from ipulaunch.workers.models.seeds import seed_generators
from ipulaunch.workers.serving.arguments import ExportRequest
from ipulaunch.workers.serving.record import input_of, record_of
from ipulaunch.workers.serving.version_directory import new_version
from ipulaunch.workers.serving.weights import load_weights


def export(
    request: ExportRequest, backend: Backend[Any], iterations: int, report: Report
) -> Tuple[ExportRecord, List[str]]:
    """Write a version of the model; returns its record, and warnings. The backend has the settings of serving."""
    settings, on_ipus = backend.settings, not request.job.is_rehearsal
    taken = input_of(settings, on_ipus=on_ipus)
    spec = tf.TensorSpec(taken.shape, taken.dtype, INPUT)
    with new_version(request.directory, request.version, report, adds=request.adds) as directory:
        seed_generators(settings.training.seed)
        with backend.scope(), precision(settings.training.precision):
            model = build_model(network_of(settings), backend.dropout, native_half=on_ipus)
        weights, warnings = load_weights(model, request.job, request.weights)
        backend.export(model, spec, directory, iterations)
        record = record_of(request, settings, taken, model.output.shape[-1], weights, iterations)
        path = record_path(directory)
        path.parent.mkdir()
        write_whole(path, to_json(record))
    return record, warnings
