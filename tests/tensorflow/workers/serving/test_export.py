"""Exported models answer as the network of the training does, for inputs as they are stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np
import pytest
import tensorflow as tf
from fixtures.exports import (
    BATCH,
    SMALL_VOLUMES,
    answers_of,
    exported,
    request_of,
    samples,
    save,
    trained_model,
)

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.exports import read_export
from ipulaunch.data_pipeline.sources.normalise import conversion
from ipulaunch.topology.planning.identity import network_of_training


class Case(NamedTuple):
    workload: str
    settings: Tuple[str, ...]
    dtype: str  # of the input


CASES = [
    pytest.param(Case("cifar10", (), "uint8"), id="batch norm", marks=pytest.mark.core),
    pytest.param(Case("cifar10", ("training.precision=16.32",), "uint8"), id="mixed precision"),
    pytest.param(
        Case("cifar10", ("training.precision=16.16", "data.eight_bit_transfer=false"), "float16"), id="16-bit pixels"
    ),
    pytest.param(Case("cifar10", ("model.norm_layer=group_norm",), "uint8"), id="group norm"),
    pytest.param(Case("mnist", ("data.host_preprocess=true",), "float32"), id="the host normalises in training"),
    pytest.param(Case("mnist", (), "uint8"), id="MNIST"),
    pytest.param(Case("cosmoflow", SMALL_VOLUMES, "int16"), id="CosmoFlow"),
    pytest.param(
        Case("cosmoflow", (*SMALL_VOLUMES, "data.normalise=log", "data.host_preprocess=true"), "int16"),
        id="CosmoFlow that the host normalises",
    ),
    pytest.param(Case("imagenet", ("data.side=32", "model.name=toy_model", "data.classes=7"), "uint8"), id="ImageNet"),
]


@pytest.mark.parametrize("case", CASES)
def test_an_exported_model_answers_as_the_network_of_the_training(case: Case, tmp_path: Path) -> None:
    words = ["--checkpoint-input-dir", str(tmp_path / "trained")]
    request = request_of(case.workload, case.settings, tmp_path / "models", *words)
    model = trained_model(request)
    path = save(model, request, tmp_path / "trained")
    record, warnings = exported(request)
    assert (warnings, record.weights) == ([], (str(path), 7, 0.5, "/there"))
    assert (record.input.dtype, record.input.shape) == (case.dtype, (BATCH, *request.job.settings.shape))

    taken = samples(record.input.shape, case.dtype)
    answers = answers_of(tmp_path / "models" / "1", taken)
    stored = tf.constant(taken.astype("int16" if case.workload == "cosmoflow" else "uint8"))
    convert = conversion(request.job.settings.data)
    expected = model.predict(convert(stored) if convert else stored, batch_size=BATCH, verbose=0)
    assert (answers.dtype.name, answers.shape) == (record.output.dtype, record.output.shape)
    np.testing.assert_allclose(answers, expected.astype(np.float32), rtol=1e-5, atol=1e-5)
    assert np.ptp(answers, axis=0).min() > 0  # each sample has an answer of its own


def test_weights_without_a_checkpoint_are_random_and_follow_the_seed(tmp_path: Path) -> None:
    found = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        request = request_of("mnist", [f"training.seed={seed}"], tmp_path / name)
        record, warnings = exported(request)
        assert record.weights == (None, None, None, None)
        assert warnings == ["no checkpoint is given: the weights are random (see --checkpoint-input-dir)"]
        found.append(answers_of(tmp_path / name / "1", samples(record.input.shape, "uint8")))
    assert np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])


def test_the_newest_whole_checkpoint_is_exported(tmp_path: Path) -> None:
    request = request_of("mnist", (), tmp_path / "models", "--checkpoint-input-dir", str(tmp_path / "trained"))
    model = trained_model(request)
    older = save(model, request, tmp_path / "trained", update=1)
    newer = save(model, request, tmp_path / "trained", update=2)
    (newer / "state.npz").write_bytes(b"cut off")
    record, (warning,) = exported(request)
    assert (record.weights.checkpoint, record.weights.update) == (str(older), 1)
    assert warning.startswith(f"{newer} is not a complete checkpoint") and "update-00000001 is taken" in warning
    assert read_export(tmp_path / "models" / "1") == record._replace(settings=json.loads(json.dumps(record.settings)))


@pytest.mark.parametrize(
    ("facts", "error", "words"),
    [
        ({"model": "mnist_cnn_2"}, SettingsError, ["model mnist_cnn_2", "mnist_cnn"]),
        ({"network": "0123456789ab"}, SettingsError, ["other layers"]),
        ({"workload": "cifar10"}, SettingsError, ["workload cifar10", "mnist"]),
    ],
    ids=["another model", "other layers", "another workload"],
)
def test_another_network_is_refused_and_leaves_nothing(
    facts: Dict[str, Any], error: Any, words: List[str], tmp_path: Path
) -> None:
    request = request_of("mnist", (), tmp_path / "models", "--checkpoint-input-dir", str(tmp_path / "trained"))
    save(trained_model(request), request, tmp_path / "trained", **facts)
    with pytest.raises(error) as found:
        exported(request)
    assert all(word in found.value.message for word in words)
    assert "ipulaunch export RUN" in found.value.hint
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("is_there", [False, True], ids=["no directory", "an empty directory"])
def test_weights_that_are_named_have_to_be_there(is_there: bool, tmp_path: Path) -> None:
    request = request_of("mnist", (), tmp_path / "models", "--checkpoint-input-dir", str(tmp_path / "trained"))
    if is_there:
        (tmp_path / "trained").mkdir()
    with pytest.raises(DataError, match="no complete checkpoint" if is_there else "no directory"):
        exported(request)
    assert not (tmp_path / "models").exists()


def test_weights_of_an_estimator_are_found_by_their_names(tmp_path: Path) -> None:
    request = request_of("mnist", (), tmp_path / "models", "--checkpoint-input-dir", str(tmp_path / "trained"))
    model = trained_model(request)
    values = {weight.name.partition(":")[0]: weight.numpy() for weight in model.weights[::-1]}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in values.items():
            tf.compat.v1.get_variable(name, initializer=value)
        tf.compat.v1.get_variable("global_step", initializer=np.int64(12))
        session.run(tf.compat.v1.global_variables_initializer())
        (tmp_path / "trained").mkdir()
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "trained" / "model.ckpt"), global_step=12)
    with pytest.raises(DataError, match="not known to be of this network"):
        exported(request)
    notes = {"accumulation": 4, "run": "/there", **network_of_training(request.job.settings)}
    (tmp_path / "trained" / "ipulaunch.json").write_text(json.dumps(notes))
    record, warnings = exported(request)
    assert warnings == []
    assert record.weights == (str(tmp_path / "trained" / "model.ckpt-12"), 3, None, "/there")
    taken = samples(record.input.shape, "uint8")
    expected = model.predict(taken, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(answers_of(tmp_path / "models" / "1", taken), expected, rtol=1e-5, atol=1e-5)


def test_an_export_that_fails_takes_nothing_from_the_versions_that_are_there(tmp_path: Path) -> None:
    request = request_of("mnist", (), tmp_path / "models", "--model-version", "1")
    exported(request)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    (tmp_path / "models" / ".2.1234").mkdir()  # of an export that was killed
    with pytest.raises(DataError):
        words = ["--model-version", "2", "--checkpoint-input-dir", str(tmp_path / "nothing")]
        exported(request_of("mnist", (), tmp_path / "models", *words))
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
