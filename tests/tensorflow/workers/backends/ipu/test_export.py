"""Exports through the SDK: what each version gets, and that its program answers as the one for CPUs does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Tuple

import numpy as np
import pytest
import tensorflow as tf
from fixtures.exports import BATCH, SMALL_VOLUMES, answers_of, exported, request_of, samples, save, trained_model

from ipulaunch.configs.errors import SettingsError

Install = Callable[..., Any]
SPLITS = ("pipeline.splits=[flatten]",)
CASES = [
    ("2.6", "cifar10", ()),
    ("3.0", "cosmoflow", SMALL_VOLUMES),
    ("3.1", "mnist", ("data.host_preprocess=true",)),
    ("3.4", "cosmoflow", (*SMALL_VOLUMES, "estimator.use=true", "data.normalise=log")),
]


def on_both(
    workload: str, settings: Tuple[str, ...], standin: Install, sdk: str, path: Path, *words: str
) -> Tuple[Any, Any, np.ndarray, np.ndarray]:
    """The records and the answers of the same weights, exported for CPUs and for IPUs."""
    words = (*words, "--checkpoint-input-dir", str(path / "trained"))
    request = request_of(workload, settings, path / "cpu", *words)
    save(trained_model(request), request, path / "trained")
    record, _ = exported(request)
    taken = samples(record.input.shape, record.input.dtype)
    answers = answers_of(path / "cpu" / "1", taken)
    standin(sdk)
    on_ipus, _ = exported(request_of(workload, settings, path / "ipu", *words, backend="ipu"))
    return record, on_ipus, answers, answers_of(path / "ipu" / "1", taken.astype(on_ipus.input.dtype))


@pytest.mark.parametrize(("sdk", "workload", "settings"), CASES, ids=[f"{row[0]} {row[1]}" for row in CASES])
def test_an_export_for_ipus_answers_as_the_one_for_cpus(
    sdk: str, workload: str, settings: Tuple[str, ...], standin: Install, tmp_path: Path
) -> None:
    record, on_ipus, expected, answers = on_both(workload, settings, standin, sdk, tmp_path)
    np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-5)
    signature = tf.saved_model.load(str(tmp_path / "ipu" / "1")).signatures["serving_default"]
    (given,), (made,) = signature.structured_input_signature[1].values(), signature.structured_outputs.values()
    assert (given.name, given.shape, given.dtype.name) == ("input", on_ipus.input.shape, on_ipus.input.dtype)
    assert (list(signature.structured_outputs), made.dtype) == (["output"], tf.float32)
    assert on_ipus.input.dtype == {"int16": "int32"}.get(record.input.dtype, record.input.dtype)
    assert on_ipus.weights == record.weights
    (executable,) = (tmp_path / "ipu" / "1" / "assets").iterdir()
    assert executable.suffix == ".popef"


def test_an_exported_pipeline_has_the_stages_of_the_training(standin: Install, tmp_path: Path) -> None:
    words = ["--pipeline-serving-model"]
    _, on_ipus, expected, answers = on_both("mnist", SPLITS, standin, "3.4", tmp_path, *words)
    np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-5)
    assert (on_ipus.pipeline_splits, on_ipus.iterations) == (("flatten",), 2)  # a turn of two stages
    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    arguments = {call["call"]: call["arguments"] for call in calls}
    assert arguments["Model.set_pipelining_options"]["device_mapping"] == [0, 1]
    assert arguments["Model.compile"]["steps_per_execution"] == 2
    stages = arguments["Model.set_pipeline_stage_assignment"]["pipeline_stage_assignment"]
    assert stages[0] == "normalise: 0" and stages[-1] == "output: 1"


def test_a_pipeline_is_undivided_unless_it_is_asked_for(standin: Install, tmp_path: Path) -> None:
    standin("3.1")
    request = request_of("mnist", SPLITS, tmp_path / "models", "--iterations", "3", backend="ipu")
    record, warnings = exported(request)
    assert (record.pipeline_splits, record.iterations) == ((), 3)
    assert [text for text in warnings if "random" not in text] == []


def test_a_pipeline_takes_whole_turns(standin: Install, tmp_path: Path) -> None:
    standin("3.4")
    words = ["--pipeline-serving-model", "--iterations", "3"]
    with pytest.raises(SettingsError, match=r"--iterations is 3, and 2 pipeline stages.*multiple of 2") as found:
        exported(request_of("mnist", SPLITS, tmp_path / "models", *words, backend="ipu"))
    assert "--iterations 4" in found.value.hint
    assert not (tmp_path / "models").exists()


def test_what_cannot_be_divided_is_exported_whole_with_a_warning(standin: Install, tmp_path: Path) -> None:
    standin("2.6")
    request = request_of("mnist", (), tmp_path / "models", "--pipeline-serving-model", backend="ipu")
    record, warnings = exported(request)
    assert (record.pipeline_splits, record.iterations, record.batch_size) == ((), 1, BATCH)
    assert "no pipeline splits" in warnings[0]
