from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipulaunch.workers.server.messages import ModelSpec, SavedModel
from ipulaunch.workers.server.prediction import predict
from ipulaunch.workers.server.saved_model import Signature, Tensor, signatures
from ipulaunch.workers.server.status import ServingError
from ipulaunch.workers.server.versions import Versions

FLOAT, STRING = 1, 7
LIMIT_S = 60.0


def definition(method: str = "tensorflow/serving/predict") -> Any:
    graph = SavedModel().meta_graphs.add()
    graph.signature_def["s"].method_name = method
    return graph.signature_def["s"]


class Model:
    """Doubles what it gets; made for batches of four."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_closed = False
        inputs = {"a": Tensor("a:0", FLOAT, (4, 2)), "b": Tensor("b:0", FLOAT, (4,))}
        outputs = {"x": Tensor("x:0", FLOAT, (4, 2)), "y": Tensor("y:0", FLOAT, (4,))}
        any_batch = {"a": Tensor("a:0", FLOAT, (-1, 2))}
        self.signatures = {
            "serving_default": Signature(inputs, outputs, definition()),
            "any": Signature(any_batch, {"x": outputs["x"]}, definition()),
            "init": Signature({}, {"x": outputs["x"]}, definition("")),
        }

    def run(self, name: str, inputs: Dict[str, Any]) -> Dict[str, Any]:
        return {"x": inputs["a"] * 2, "y": inputs.get("b", inputs["a"][:, 0]) * 2}

    def close(self) -> None:
        self.is_closed = True


class Directory:
    """A directory of versions, and what was made of them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.models: Dict[str, Model] = {}
        self.events: List[Tuple[int, str]] = []
        self.versions = Versions(
            base, "m", self._load, lambda event: self.events.append((event["version"], event["state"]))
        )

    def add(self, name: str, text: str = "good") -> None:
        (self.base / name).mkdir()
        (self.base / name / "saved_model.pb").write_text(text)

    def _load(self, directory: Path) -> Model:
        if (directory / "saved_model.pb").read_text() != "good":
            raise ValueError("it is damaged")
        self.models[directory.name] = Model(int(directory.name))
        return self.models[directory.name]


@pytest.fixture()
def directory(tmp_path: Path) -> Any:
    made = Directory(tmp_path)
    yield made
    made.versions.close()


@pytest.fixture()
def served(directory: Directory) -> Versions:
    directory.add("3")
    directory.versions.refresh()
    return directory.versions


def ask(versions: Versions, spec: Dict[str, Any], inputs: Dict[str, Any], wanted: Any = ()) -> Dict[str, Any]:
    message = ModelSpec(name=spec.get("name", "m"), signature_name=spec.get("signature", ""))
    if "version" in spec:
        message.version.value = spec["version"]
    if "label" in spec:
        message.version_label = spec["label"]
    answer = predict(versions, message, list(inputs), inputs.__getitem__, wanted)
    return answer.of(answer.outputs.result(LIMIT_S))


A, B = np.float32([[1, 2]]), np.float32([3])


def test_a_request_gets_all_outputs_or_those_that_it_asks_for(served: Versions) -> None:
    assert {alias: array.tolist() for alias, array in ask(served, {}, {"a": A, "b": B}).items()} == {
        "x": [[2, 4]],
        "y": [6],
    }
    assert list(ask(served, {"version": 3}, {"a": A, "b": B}, ["y"])) == ["y"]
    assert ask(served, {"signature": "any"}, {"a": A})["x"].tolist() == [[2, 4]]


@pytest.mark.parametrize(
    ("spec", "inputs", "wanted", "code", "text"),
    [
        ({"name": ""}, {}, (), "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ({"name": "dummy_model"}, {}, (), "NOT_FOUND", "Servable not found for request: Latest(dummy_model)"),
        ({"version": 7}, {}, (), "NOT_FOUND", "Servable not found for request: Specific(m, 7)"),
        ({"label": "stable"}, {}, (), "INVALID_ARGUMENT", "Unrecognized servable version label: stable"),
        ({"signature": "s"}, {}, (), "FAILED_PRECONDITION", 'Serving signature key "s" not found.'),
        (
            *({"signature": "init"}, {}, (), "INTERNAL"),
            "Expected prediction signature method_name to be one of {tensorflow/serving/predict,"
            " tensorflow/serving/classify, tensorflow/serving/regress}. Was: ",
        ),
        (
            *({}, {"a": A}, (), "INVALID_ARGUMENT"),
            "input size does not match signature: 1!=2 len({a}) != len({a,b})."
            " Sent extra: {}. Missing but required: {b}.",
        ),
        (
            *({}, {"a": A, "c": B}, (), "INVALID_ARGUMENT"),
            "input tensor alias not found in signature: c. Inputs expected to be in the set {a,b}.",
        ),
        (
            *({}, {"a": A, "b": B}, ["z"], "INVALID_ARGUMENT"),
            "output tensor alias not found in signature: z Outputs expected to be in the set {x,y}.",
        ),
        ({}, {"a": A, "b": B}, ["y", "y"], "INVALID_ARGUMENT", "duplicate output tensor alias: y"),
        (
            *({}, {"a": A.astype(np.uint8), "b": B}, (), "INVALID_ARGUMENT"),
            "Expects arg[0] to be float but uint8 is provided",
        ),
        (
            *({}, {"a": A, "b": np.array([b"b"], object)}, (), "INVALID_ARGUMENT"),
            "Expects arg[1] to be float but string is provided",
        ),
        (
            *({}, {"a": A, "b": B.reshape(1, 1)}, (), "INVALID_ARGUMENT"),
            "signature serving_default input shape is wrong, expected : [4], actual: [1,1]",
        ),
        (
            *({}, {"a": A.reshape(2, 1), "b": B}, (), "INVALID_ARGUMENT"),
            "signature serving_default input shape is wrong, expected : [4,2], actual: [2,1]",
        ),
        (
            *({}, {"a": A, "b": B[0]}, (), "INVALID_ARGUMENT"),
            "Batching Run() input tensors must have at least one dimension",
        ),
        (
            *({}, {"a": A, "b": np.float32([1, 2])}, (), "INVALID_ARGUMENT"),
            "Batching Run() input tensors must have equal 0th-dimension size",
        ),
        (
            *({"signature": "any"}, {"a": B}, (), "INVALID_ARGUMENT"),
            "signature any input shape is wrong, expected : [?,2], actual: [1]",
        ),
    ],
)
def test_what_is_wrong_is_said_as_tensorflow_serving_says_it(
    spec: Any, inputs: Any, wanted: Any, code: str, text: str, served: Versions
) -> None:
    with pytest.raises(ServingError) as caught:
        ask(served, spec, inputs, wanted)
    assert (caught.value.code, caught.value.message) == (code, text)


def test_the_newest_version_is_served_and_the_one_before_unloaded(directory: Directory) -> None:
    directory.add("2")
    directory.versions.refresh()
    directory.add("010")
    directory.add("9")
    directory.versions.refresh()
    assert directory.versions.find("m", None).number == 10
    assert directory.models["2"].is_closed
    assert not directory.models["010"].is_closed
    assert directory.events == [
        *((2, "LOADING"), (2, "AVAILABLE")),
        *((10, "LOADING"), (10, "AVAILABLE"), (2, "UNLOADING"), (2, "END")),
    ]
    assert [(number, status.state) for number, status in directory.versions.statuses("m", None)] == [(10, 30), (2, 50)]
    with pytest.raises(ServingError, match=r"Specific\(m, 2\)"):
        directory.versions.find("m", 2)


def test_a_version_that_cannot_be_loaded_leaves_the_one_before(directory: Directory) -> None:
    directory.add("1")
    directory.versions.refresh()
    directory.add("2", "bad")
    for _ in range(3):
        directory.versions.refresh()
    assert directory.versions.find("m", None).number == 1
    ((_, status),) = directory.versions.statuses("m", 2)
    assert (status.code, status.message) == ("INTERNAL", "it is damaged")
    assert directory.events.count((2, "LOADING")) == 1  # not again before it changes
    (directory.base / "2" / "saved_model.pb").write_text("good")
    directory.versions.refresh()
    assert directory.versions.find("m", None).number == 2


def test_without_any_version_left_the_last_one_stays(directory: Directory) -> None:
    directory.add("1")
    directory.versions.refresh()
    (directory.base / "1" / "saved_model.pb").unlink()
    directory.versions.refresh()
    assert directory.versions.find("m", None).number == 1


def test_what_is_not_complete_is_no_version(directory: Directory) -> None:
    for name in ("1", ".2.tmp", "x", "-3", "4.5"):
        (directory.base / name).mkdir()
    directory.versions.refresh()
    assert not directory.versions.is_available
    with pytest.raises(ServingError, match="Could not find any versions of model m"):
        directory.versions.statuses("m", None)


def test_states_of_versions_and_models_that_are_not_there(served: Versions) -> None:
    for name, number, text in (("m", 7, "Could not find version 7 of model m"), ("x", None, "any versions of model x")):
        with pytest.raises(ServingError, match=text) as caught:
            served.statuses(name, number)
        assert caught.value.code == "NOT_FOUND"


def test_signatures_are_read_from_the_file(tmp_path: Path) -> None:
    model = SavedModel()
    model.meta_graphs.add().meta_info_def.tags.append("train")
    graph = model.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    info = graph.signature_def["serving_default"].inputs["input"]
    info.name, info.dtype = "in:0", 4
    for size in (8, 32, -1):
        info.tensor_shape.dim.add(size=size)
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    found = signatures(tmp_path)["serving_default"]
    assert found.inputs == {"input": Tensor("in:0", 4, (8, 32, -1))}
    assert found.batch == 8
