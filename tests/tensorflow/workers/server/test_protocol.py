"""Our server against the official client of TensorFlow Serving and its messages, in one process with both."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import json_format

from ipulaunch.workers.server import messages, tensors

grpc = pytest.importorskip("grpc", reason="the extra [serving] is not installed")
_WHY = "the official client is not installed: make installs what tests/official-client.txt names, where it can be had"
predict_pb2 = pytest.importorskip("tensorflow_serving.apis.predict_pb2", reason=_WHY)

from tensorflow_serving.apis import (  # noqa: E402 - only where it is installed
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

LIMIT_S = 120.0


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, write_model: Callable[..., Path]) -> Path:
    base = tmp_path_factory.mktemp("models")
    write_model(base / "1")
    return base


@pytest.fixture()
def address(base: Path, serve_here: Callable[[Path], Any]) -> Any:
    return serve_here(base)


@pytest.fixture()
def channel(address: Any) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{address.port}") as channel:
        yield channel


@pytest.fixture()
def prediction(channel: Any) -> Any:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def samples(count: int, first: int = 0) -> Any:
    return np.arange(first, first + 6 * count, dtype=np.uint8).reshape(count, 6)


def request(values: Any, **spec: Any) -> Any:
    made = predict_pb2.PredictRequest()
    made.model_spec.name = spec.get("name", "m")
    made.model_spec.signature_name = spec.get("signature_name", "")
    if "version" in spec:
        made.model_spec.version.value = spec["version"]
    for alias, value in values.items():
        made.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return made


def expected(base: Path, values: Any) -> Any:
    """What the model itself says, in batches of its size."""
    loaded = tf.saved_model.load(str(base / "1"))  # its variables live as long as it does
    answer = loaded.signatures["serving_default"]
    padded = np.concatenate([values, np.zeros((-len(values) % 4, 6), np.uint8)])
    parts = [answer(input=tf.constant(padded[at : at + 4]))["output"] for at in range(0, len(padded), 4)]
    return np.concatenate(parts)[: len(values)]


@pytest.mark.core
@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_the_official_client_gets_what_the_model_says(count: int, base: Path, prediction: Any, address: Any) -> None:
    values = samples(count)
    answer = prediction.Predict(request({"input": values}), LIMIT_S)
    assert list(answer.outputs) == ["output"]
    wanted = expected(base, values)
    np.testing.assert_allclose(tf.make_ndarray(answer.outputs["output"]), wanted, rtol=1e-5)
    assert len(answer.outputs["output"].float_val) == count  # many clients read this field
    spec = answer.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("m", 1, "serving_default")
    for body, key in (({"instances": values.tolist()}, "predictions"), ({"inputs": values.tolist()}, "outputs")):
        status, found = address.rest("/v1/models/m:predict", body)
        assert status == 200
        np.testing.assert_allclose(found[key], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "spec", "code", "text"),
    [
        (
            {"input": samples(1)},
            {"name": "dummy_model"},
            "NOT_FOUND",
            "Servable not found for request: Latest(dummy_model)",
        ),
        ({"input": samples(1)}, {"version": 9}, "NOT_FOUND", "Servable not found for request: Specific(m, 9)"),
        (
            *({"image": samples(1)}, {}, "INVALID_ARGUMENT"),
            "input tensor alias not found in signature: image. Inputs expected to be in the set {input}.",
        ),
        ({"input": np.float32(samples(1))}, {}, "INVALID_ARGUMENT", "Expects arg[0] to be uint8 but float is provided"),
        (
            *({"input": samples(1)[:, :5]}, {}, "INVALID_ARGUMENT"),
            "signature serving_default input shape is wrong, expected : [4,6], actual: [1,5]",
        ),
        (
            *({"input": np.zeros((1025, 6), np.uint8)}, {}, "INVALID_ARGUMENT"),
            "Task size 1025 is larger than maximum input batch size 1024",
        ),
        (
            *({"input": samples(1)}, {"signature_name": "other"}, "FAILED_PRECONDITION"),
            'Serving signature key "other" not found.',
        ),
    ],
)
def test_a_wrong_request_gets_its_error_and_the_server_goes_on(
    values: Any, spec: Dict[str, Any], code: str, text: str, prediction: Any
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        prediction.Predict(request(values, **spec), LIMIT_S)
    assert (caught.value.code().name, caught.value.details()) == (code, text)
    assert prediction.Predict(request({"input": samples(1)}), LIMIT_S).outputs


def test_a_request_without_a_model_is_refused(channel: Any, prediction: Any) -> None:
    model = model_service_pb2_grpc.ModelServiceStub(channel)
    for call, message in (
        (prediction.Predict, predict_pb2.PredictRequest()),
        (prediction.GetModelMetadata, get_model_metadata_pb2.GetModelMetadataRequest()),
        (model.GetModelStatus, get_model_status_pb2.GetModelStatusRequest()),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(message, LIMIT_S)
        assert (caught.value.code().name, caught.value.details()) == ("INVALID_ARGUMENT", "Missing ModelSpec")


def test_what_is_not_served_is_unimplemented(channel: Any, prediction: Any) -> None:
    model = model_service_pb2_grpc.ModelServiceStub(channel)
    for call, message in (
        (prediction.Classify, classification_pb2.ClassificationRequest()),
        (model.HandleReloadConfigRequest, model_management_pb2.ReloadConfigRequest()),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(message, LIMIT_S)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_the_state_over_grpc_and_rest(channel: Any, address: Any) -> None:
    asked = get_model_status_pb2.GetModelStatusRequest()
    asked.model_spec.name = "m"
    answer = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(asked, LIMIT_S)
    (status,) = answer.model_version_status
    assert (status.version, status.state) == (1, get_model_status_pb2.ModelVersionStatus.AVAILABLE)
    shown = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    for path in ("/v1/models/m", "/v1/models/m/versions/1"):
        assert address.rest(path) == (200, {"model_version_status": [shown]})


def test_the_signatures_over_grpc_and_rest(prediction: Any, address: Any) -> None:
    asked = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    asked.model_spec.name = "m"
    answer = prediction.GetModelMetadata(asked, LIMIT_S)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(found)
    info = found.signature_def["serving_default"].inputs["input"]
    assert (info.dtype, [dim.size for dim in info.tensor_shape.dim]) == (tf.uint8.as_datatype_enum, [4, 6])
    status, shown = address.rest("/v1/models/m/metadata")
    assert (status, shown["model_spec"]) == (200, {"name": "m", "signature_name": "", "version": "1"})
    defaults = json_format.MessageToDict(found.signature_def["serving_default"].inputs["input"], True)
    ours = shown["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]["input"]
    assert (ours["name"], ours["dtype"]) == (info.name, "DT_UINT8")
    assert [dim["size"] for dim in ours["tensor_shape"]["dim"]] == ["4", "6"]
    assert {"name", "dtype"} <= set(defaults)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/v1/models/x", None, 404, "Could not find any versions of model x"),
        ("/v1/models/m/versions/7", None, 404, "Could not find version 7 of model m"),
        ("/v1/models/x:predict", {"instances": [1]}, 404, "Servable not found for request: Latest(x)"),
        ("/v1/models/m/versions/7:predict", {"instances": [1]}, 404, "Servable not found for request: Specific(m, 7)"),
        ("/v1/models/m:predict", {"instances": [[1]]}, 400, "input shape is wrong, expected : [4,6], actual: [1,1]"),
        ("/v1/models/m:predict", {}, 400, "Missing 'inputs' or 'instances' key"),
        (
            *("/v1/models/m:predict", {"signature_name": "s", "instances": [1]}, 400),
            'Serving signature name: "s" not found in signature def',
        ),
        ("/v1/models/m:explain", {}, 400, "Malformed request: POST /v1/models/m:explain"),
        ("/v1/other", None, 400, "Malformed request: GET /v1/other"),
        ("/v1/models/m:classify", {}, 501, "classify is not served here"),
        ("/elsewhere", None, 404, "see /v1/models/m"),
    ],
)
def test_errors_of_rest(path: str, body: Any, status: int, text: str, address: Any) -> None:
    got, answer = address.rest(path, body)
    assert got == status
    assert list(answer) == ["error"]
    assert text in answer["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD"])
def test_another_method_is_a_malformed_request(method: str, address: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", address.rest_port, timeout=LIMIT_S)
    connection.request(method, "/v1/models/m", b"{}")
    response = connection.getresponse()
    body = response.read()
    assert (response.status, response.getheader("Content-Type")) == (400, "application/json")
    if method != "HEAD":
        assert json.loads(body) == {"error": f"Malformed request: {method} /v1/models/m"}
    connection.request("GET", "/v1/models/m")  # on the same connection
    assert connection.getresponse().status == 200
    connection.close()


def test_a_new_version_takes_over(
    tmp_path: Path, write_model: Callable[..., Path], serve_here: Callable[[Path], Any]
) -> None:
    write_model(tmp_path / "1", batch=None)
    address = serve_here(tmp_path)
    ask = {"instances": samples(3).tolist()}
    _, before = address.rest("/v1/models/m:predict", ask)
    write_model(tmp_path / "2", factor=2.0)
    address.versions.refresh()
    status, after = address.rest("/v1/models/m:predict", ask)
    assert status == 200
    np.testing.assert_allclose(after["predictions"], 2 * np.array(before["predictions"]))
    _, states = address.rest("/v1/models/m")
    assert [(each["version"], each["state"]) for each in states["model_version_status"]] == [
        ("2", "AVAILABLE"),
        ("1", "END"),
    ]


def _official() -> Dict[str, Any]:
    """Messages with every field that we describe, as the official package makes them."""
    spec = {"name": "m", "signature_name": "s", "version": {"value": 3}}
    made: Dict[str, Any] = {
        "PredictRequest": request({"input": samples(2), "more": np.float32([[1.5]])}, version=3, signature_name="s"),
        "PredictResponse": predict_pb2.PredictResponse(model_spec=spec),
        "GetModelStatusRequest": get_model_status_pb2.GetModelStatusRequest(model_spec=spec),
        "GetModelMetadataRequest": get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec={"name": "m", "version_label": "stable"}, metadata_field=["signature_def"]
        ),
        "GetModelMetadataResponse": get_model_metadata_pb2.GetModelMetadataResponse(model_spec=spec),
        "GetModelStatusResponse": get_model_status_pb2.GetModelStatusResponse(),
        "SignatureDefMap": get_model_metadata_pb2.SignatureDefMap(),
    }
    made["PredictRequest"].output_filter.extend(["output", "other"])
    made["PredictResponse"].outputs["output"].CopyFrom(tf.make_tensor_proto(np.float64([[0.1, -2]])))
    status = made["GetModelStatusResponse"].model_version_status.add(version=2, state=50)
    status.status.error_code, status.status.error_message = 13, "it is damaged"
    signature = made["SignatureDefMap"].signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    for infos in (signature.inputs, signature.outputs):
        infos["x"].name, infos["x"].dtype = "x:0", 1
        infos["x"].tensor_shape.dim.add(size=-1, name="batch")
    made["GetModelMetadataResponse"].metadata["signature_def"].Pack(made["SignatureDefMap"])
    return made


@pytest.mark.core
@pytest.mark.parametrize("name", sorted(_official()))
def test_messages_are_those_of_the_official_package_byte_for_byte(name: str) -> None:
    official = _official()[name]
    data = official.SerializeToString(deterministic=True)
    ours = getattr(messages, name).FromString(data)
    assert ours.SerializeToString(deterministic=True) == data

    def values(message: Any) -> Dict[str, Any]:
        """The fields by their names; enumerations as numbers, which is what ours are."""
        return {
            field.name: getattr(message, field.name)
            for field in message.DESCRIPTOR.fields
            if field.message_type is None and field.name in {each.name for each in ours.DESCRIPTOR.fields}
        }

    assert values(ours) == values(official)
    assert {field.name: field.number for field in ours.DESCRIPTOR.fields}.items() <= {
        field.name: field.number for field in official.DESCRIPTOR.fields
    }.items()


@pytest.mark.parametrize(
    "kind", ["float32", "float64", "float16", "uint8", "int16", "int32", "int64", "uint64", "bool"]
)
def test_tensors_are_those_of_tensorflow(kind: str) -> None:
    array = (np.random.default_rng(3).normal(size=(3, 5)) * 9).astype(kind)
    theirs = tf.make_tensor_proto(array)
    assert tensors.to_array(messages.TensorProto.FromString(theirs.SerializeToString()), "x").tolist() == array.tolist()
    ours = messages.TensorProto()
    for write in (tensors.to_proto, tensors.to_content):
        write(array, ours)
        back = tf.make_ndarray(type(theirs).FromString(ours.SerializeToString()))
        assert back.dtype == array.dtype
        assert back.tolist() == array.tolist()
