"""Exported models answer as the network of the training does, for inputs as they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, NamedTuple, Tuple

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import plan_of

from ipulaunch.configs.exports import ExportRecord
from ipulaunch.data_pipeline.sources.normalise import conversion
from ipulaunch.topology import Batch
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.planning.identity import network_of_training
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.precision import precision
from ipulaunch.workers.serving.arguments import ExportRequest, read_request
from ipulaunch.workers.serving.export import export
from ipulaunch.workers.serving.serving_settings import serving_settings
from ipulaunch.workers.state import checkpoints

BATCH = 3


class Case(NamedTuple):
    workload: str
    settings: Tuple[str, ...]
    dtype: str  # of the input
    tolerance: float = 0.0


SMALL_VOLUMES = ("data.side=8", "model.n_conv_layers=2", "model.conv_size=2", "model.fc1_size=8", "model.fc2_size=4")
CASES = [
    pytest.param(Case("cifar10", (), "uint8"), id="batch norm", marks=pytest.mark.core),
    pytest.param(Case("cifar10", ("training.precision=16.32",), "uint8"), id="mixed precision"),
    pytest.param(
        Case("cifar10", ("training.precision=16.16", "data.eight_bit_transfer=false"), "float16"), id="16-bit pixels"
    ),
    pytest.param(Case("cifar10", ("model.norm_layer=group_norm",), "uint8"), id="group norm"),
    pytest.param(Case("cifar100", ("data.host_preprocess=true",), "float32"), id="the host normalises in training"),
    pytest.param(Case("mnist", (), "uint8"), id="MNIST"),
    pytest.param(Case("cosmoflow", SMALL_VOLUMES, "int16"), id="CosmoFlow"),
    pytest.param(
        Case("cosmoflow", (*SMALL_VOLUMES, "data.normalise=log", "data.host_preprocess=true"), "int16"),
        id="CosmoFlow that the host normalises",
    ),
    pytest.param(
        Case("imagenet", ("data.side=32", "model.name=resnet18", "data.classes=7"), "uint8"), id="residual network"
    ),
]


def request_of(case: Case, directory: Path, *words: str) -> ExportRequest:
    given = [word for text in (*case.settings, f"training.micro_batch_size={BATCH}") for word in ("--set", text)]
    line = [case.workload, "--backend", "cpu", "--rehearsal", *given, "--export-dir", str(directory), *words]
    return read_request(line)


def exported(request: ExportRequest) -> Tuple[ExportRecord, List[str]]:
    settings = serving_settings(request.job.settings, is_pipelined=False)
    backend = CpuBackend(settings, plan_of(Batch(BATCH, 1, 1)), 0, Alone())
    return export(request, backend, 1, lambda event: None)


def trained_model(request: ExportRequest) -> tf.keras.Model:
    """The network as a training has it, with weights and statistics that are not those of the beginning."""
    settings = request.job.settings
    with precision(settings.training.precision):
        model = build_model(network_of(settings), lambda rate, name: tf.keras.layers.Dropout(rate), False)
    draw = np.random.default_rng(0)
    for weight in model.weights:
        is_kernel, fan_in = len(weight.shape) > 1, np.prod(weight.shape[:-1])
        spread = draw.normal(0, fan_in**-0.5, weight.shape) if is_kernel else draw.uniform(0.1, 1.0, weight.shape)
        weight.assign(spread)
    return model


def save(model: tf.keras.Model, request: ExportRequest, directory: Path, **facts: Any) -> Path:
    """A checkpoint as a training writes it."""
    job = request.job
    known = {"update": 7, "epoch": 0.5, "run": "/there", "workload": job.workload, "model": job.settings.model.name}
    names = [weight.name for weight in model.weights]
    weights = [weight.numpy() for weight in model.weights]
    return checkpoints.save(
        directory, {**known, **network_of_training(job.settings), **facts}, weights=weights, names=names
    )


def samples(shape: Tuple[int, ...], dtype: str) -> np.ndarray:
    """Samples as they are stored, in the type that the model takes."""
    most = 2000 if dtype == "int16" else 256
    return np.random.default_rng(1).integers(0, most, shape).astype(dtype)


@pytest.mark.parametrize("case", CASES)
def test_an_exported_model_answers_as_the_network_of_the_training(case: Case, tmp_path: Path) -> None:
    request = request_of(case, tmp_path / "models", "--checkpoint-input-dir", str(tmp_path / "trained"))
    model = trained_model(request)
    path = save(model, request, tmp_path / "trained")
    record, warnings = exported(request)
    assert (warnings, record.weights) == ([], (str(path), 7, 0.5, "/there"))
    assert (record.input.dtype, record.input.shape) == (case.dtype, (BATCH, *request.job.settings.shape))

    served = tf.saved_model.load(str(tmp_path / "models" / "1")).signatures["serving_default"]
    taken = samples(record.input.shape, case.dtype)
    (answers,) = served(input=tf.constant(taken)).values()
    stored = tf.constant(taken.astype("int16" if case.workload == "cosmoflow" else "uint8"))
    convert = conversion(request.job.settings.data)
    expected = model.predict(convert(stored) if convert else stored, batch_size=BATCH, verbose=0)
    assert (answers.dtype.name, tuple(answers.shape)) == (record.output.dtype, record.output.shape)
    np.testing.assert_allclose(answers.numpy(), expected.astype(np.float32), rtol=1e-5, atol=1e-5)
    assert np.ptp(answers.numpy(), axis=0).min() > 0  # each sample has an answer of its own
