"""Exports of the stand-in: it refuses what the SDK refuses, and what it writes computes what the model does."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

Install = Callable[..., Any]
OPS = "tensorflow.python.ipu.ops.pipelining_ops"


def make(
    stages: Sequence[int] = (), *, batch: Any = 2, dtype: str = "float32", steps: int = 1, schedule: str = ""
) -> Any:
    """Two layers, of which each may have a pipeline stage, compiled with these steps of an execution."""
    ipu = importlib.import_module("tensorflow.python.ipu")
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2 if stages else 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,), batch_size=batch, dtype=dtype, name="taken")
        outputs = tf.keras.layers.Lambda(lambda values: tf.cast(values, tf.float32))(inputs)
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(outputs))
        if stages:
            assignment = model.get_pipeline_stage_assignment()
            for layer, stage in zip(assignment, stages):
                layer.pipeline_stage = stage
            model.set_pipeline_stage_assignment(assignment)
            schedules = importlib.import_module(OPS).PipelineSchedule
            chosen = {"pipeline_schedule": schedules[schedule]} if schedule else {}
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=steps, **chosen)
        if steps:
            model.compile(steps_per_execution=steps)
    return model


def export(directory: Path, model: Any, **options: Any) -> Any:
    """The signature of an exported model."""
    model.export_for_ipu_serving(str(directory / "model"), **options)
    return tf.saved_model.load(str(directory / "model")).signatures["serving_default"]


def into_something(directory: Path) -> Any:
    (directory / "model").mkdir()
    (directory / "model" / "file").touch()
    return export(directory, make())


def beside_the_sdk(directory: Path) -> Any:
    model = make()
    outside = tf.keras.Model(*(tf.keras.Input((1,), batch_size=1),) * 2)
    del model
    return outside.export_for_ipu_serving(str(directory / "model"))


REFUSED = [
    ("2.6", "a directory that holds something", into_something, ValueError),
    ("3.4", "a directory that holds something", into_something, ValueError),
    ("3.4", "a batch that is not known", lambda path: export(path, make(batch=None)), ValueError),
    ("3.4", "a model that is not compiled", lambda path: export(path, make(steps=0)), ValueError),
    ("2.6", "purging, which comes later", lambda path: export(path, make(), purge_export_dir=True), TypeError),
    ("3.4", "a number of 16 bits", lambda path: export(path, make(dtype="int16")), KeyError),
    ("3.4", "a number of 64 bits", lambda path: export(path, make(dtype="int64")), KeyError),
    ("3.4", "names in a tuple", lambda path: export(path, make(), output_names=("a",)), TypeError),
    ("3.4", "two names for one output", lambda path: export(path, make(), output_names=["a", "b"]), ValueError),
    ("3.4", "a model of another strategy", beside_the_sdk, AttributeError),
    ("3.4", "half a turn of a pipeline", lambda path: export(path, make((0, 1))), tf.errors.FailedPreconditionError),
    (
        *("3.4", "half a turn, interleaved"),
        lambda path: export(path, make((0, 1), steps=3, schedule="Interleaved")),
        tf.errors.FailedPreconditionError,
    ),
]


@pytest.mark.parametrize(("sdk", "what", "act", "error"), REFUSED, ids=[f"{row[0]} {row[1]}" for row in REFUSED])
def test_the_stand_in_refuses(
    sdk: str, what: str, act: Callable[[Path], Any], error: Any, standin: Install, tmp_path: Path
) -> None:
    standin(sdk)
    with pytest.raises(error):
        act(tmp_path)
    assert not (tmp_path / "model" / "saved_model.pb").exists()


def test_an_export_can_empty_its_directory(standin: Install, tmp_path: Path) -> None:
    standin("3.0")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").touch()
    export(tmp_path, make(), purge_export_dir=True)
    assert not (tmp_path / "model" / "file").exists()
    (executable,) = (tmp_path / "model" / "assets").iterdir()
    assert executable.suffix == ".popef"


def test_an_export_has_the_names_of_the_model(standin: Install, tmp_path: Path) -> None:
    standin("2.6")
    plain, named = make(), make(batch=None)
    found = export(tmp_path / "a", plain)
    assert (list(found.structured_input_signature[1]), list(found.structured_outputs)) == (["taken"], ["output_0"])
    found = export(tmp_path / "b", named, batch_size=3, output_names="given")
    assert found.structured_outputs["given"].shape == (3, 1)


@pytest.mark.parametrize(
    ("stages", "steps", "schedule"), [((), 5, ""), ((0, 1), 4, ""), ((0, 1), 1, "Sequential")], ids=str
)
def test_an_export_has_the_weights_of_that_moment(
    stages: Sequence[int], steps: int, schedule: str, standin: Install, tmp_path: Path
) -> None:
    standin("3.1")
    model = make(stages, steps=steps, schedule=schedule)
    kernel, bias = model.weights
    kernel.assign([[3.0]])
    bias.assign([1.0])
    served = export(tmp_path, model)
    kernel.assign([[0.0]])
    (answers,) = served(taken=tf.constant([[1.0], [2.0]])).values()
    assert np.array_equal(answers, [[4.0], [7.0]])
