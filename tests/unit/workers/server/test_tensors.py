from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipulaunch.workers.server.messages import PredictRequest, TensorProto
from ipulaunch.workers.server.status import ServingError
from ipulaunch.workers.server.tensors import to_array, to_content, to_proto

TYPES = ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


def proto(**fields: Any) -> Any:
    shape = fields.pop("shape", ())
    made = TensorProto(**fields)
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    return made


@pytest.mark.parametrize("write", [to_proto, to_content])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)])
@pytest.mark.parametrize("kind", TYPES)
def test_arrays_come_back_through_the_wire(kind: str, shape: Any, write: Any) -> None:
    array = (np.random.default_rng(1).normal(size=shape) * 100).astype(kind)
    made = TensorProto()
    write(array, made)
    back = to_array(TensorProto.FromString(made.SerializeToString()), "x")
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()


def test_texts_come_back_through_the_wire() -> None:
    made = TensorProto()
    to_proto(np.array([b"a", "ä"], object), made)
    assert to_array(made, "x").tolist() == [b"a", "ä".encode()]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (proto(dtype=1, float_val=[7], shape=(2, 2)), [[7, 7], [7, 7]]),
        (proto(dtype=1, float_val=[1, 2], shape=(4,)), [1, 2, 2, 2]),
        (proto(dtype=1, shape=(2,)), [0, 0]),
        (proto(dtype=7, shape=(1,)), [b""]),
        (proto(dtype=9, int64_val=[1, 2, 3], shape=(2,)), [1, 2]),
    ],
    ids=["one value for all", "the last value for the rest", "no value", "no text", "too many values"],
)
def test_values_that_are_left_out_are_filled_in_as_in_tensorflow(message: Any, expected: Any) -> None:
    assert to_array(message, "x").tolist() == expected


@pytest.mark.parametrize(
    "message",
    [
        proto(dtype=1, tensor_content=b"123", shape=(1,)),
        proto(dtype=1, shape=(-1,)),
        proto(dtype=1, shape=(2**40,)),
        proto(dtype=0),
        proto(dtype=20),
        proto(dtype=7, tensor_content=b"a", shape=(1,)),
    ],
    ids=["bytes that do not fit", "no size", "more than a message holds", "no type", "a resource", "texts as bytes"],
)
def test_what_is_not_a_tensor_is_refused(message: Any) -> None:
    with pytest.raises(ServingError, match=r"^tensor parsing error: x$") as caught:
        to_array(message, "x")
    assert caught.value.code == "INVALID_ARGUMENT"


def test_a_type_that_is_not_known_cannot_be_sent() -> None:
    with pytest.raises(ServingError, match="complex64"):
        to_proto(np.zeros(1, np.complex64), TensorProto())


def test_a_version_and_a_label_exclude_each_other() -> None:
    spec = PredictRequest().model_spec
    spec.version.value = 3
    assert spec.WhichOneof("choice") == "version"
    spec.version_label = "stable"
    assert spec.WhichOneof("choice") == "version_label"
    assert not spec.HasField("version")


def test_fields_that_are_not_described_are_kept() -> None:
    unknown = b"\x3a\x00"  # field 7 of a request: its options, in newer versions of TensorFlow Serving
    assert PredictRequest.FromString(unknown).SerializeToString() == unknown
