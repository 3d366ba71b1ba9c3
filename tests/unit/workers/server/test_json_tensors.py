from __future__ import annotations

import json
from typing import Any, Dict

import numpy as np
import pytest

from ipulaunch.workers.server.json_tensors import COLUMN, ROW, answer, parse, read_inputs
from ipulaunch.workers.server.saved_model import Tensor
from ipulaunch.workers.server.status import ServingError

FLOAT, UINT8, STRING, INT64, BOOL = 1, 4, 7, 9, 10


def tensors(**types: int) -> Dict[str, Tensor]:
    return {alias: Tensor(f"{alias}:0", dtype, None) for alias, dtype in types.items()}


@pytest.mark.parametrize(
    ("body", "types", "expected"),
    [
        ({"instances": [[1, 2], [3, 4]]}, {"x": UINT8}, {"x": np.array([[1, 2], [3, 4]], np.uint8)}),
        ({"inputs": [[1, 2.5]]}, {"x": FLOAT}, {"x": np.array([[1, 2.5]], np.float32)}),
        ({"instances": [1, 2]}, {"x": INT64}, {"x": np.array([1, 2], np.int64)}),
        ({"inputs": True}, {"x": BOOL}, {"x": np.array(True)}),
        ({"inputs": {"x": [1], "y": [[2]]}}, {"x": UINT8, "y": FLOAT}, {"x": np.uint8([1]), "y": np.float32([[2]])}),
        (
            {"instances": [{"x": 1, "y": [2]}, {"x": 3, "y": [4]}]},
            {"x": UINT8, "y": FLOAT},
            {"x": np.uint8([1, 3]), "y": np.float32([[2], [4]])},
        ),
        ({"instances": [{"b64": "AP8="}]}, {"x": STRING}, {"x": np.array([b"\x00\xff"], object)}),
        ({"inputs": {"b64": "YQ=="}}, {"x": STRING}, {"x": np.array(b"a", object)}),
        ({"instances": ["ä"]}, {"x": STRING}, {"x": np.array(["ä".encode()], object)}),
        ({"instances": [[], []]}, {"x": FLOAT}, {"x": np.zeros((2, 0), np.float32)}),
    ],
)
def test_values_become_arrays(body: Any, types: Dict[str, int], expected: Dict[str, Any]) -> None:
    arrays, form = read_inputs(parse(json.dumps(body).encode()), tensors(**types))
    assert form == (ROW if "instances" in body else COLUMN)
    assert set(arrays) == set(expected)
    for alias, array in expected.items():
        assert arrays[alias].dtype == array.dtype
        assert arrays[alias].shape == array.shape
        assert arrays[alias].tolist() == array.tolist()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "JSON Parse error: The document is empty"),
        (b'{"instances": [1', "JSON Parse error: Expecting ',' delimiter at offset: 16"),
        (b"[1]", "JSON Value: [1] Is not object"),
        (b"\xff", "JSON Parse error: "),
        (b"{}", "Missing 'inputs' or 'instances' key"),
        (b'{"signature_name": 1}', "'signature_name' key must be a string value."),
        (b'{"instances": [1], "inputs": [1]}', "expecting only one of 'inputs' or 'instances' keys to exist"),
        (b'{"instances": 1}', "Expecting 'instances' to be an list/array"),
        (b'{"instances": []}', "No values in 'instances' array"),
        (b'{"instances": [1.5]}', "JSON Value: 1.5 Type: Number is not of expected type: uint8"),
        (b'{"instances": [256]}', "JSON Value: 256 Type: Number is not of expected type: uint8"),
        (b'{"instances": [true]}', "JSON Value: true Type: True is not of expected type: uint8"),
        (b'{"instances": [null]}', "JSON Value: null Type: Null is not of expected type: uint8"),
        (b'{"instances": [[1], [1, 2]]}', "Expecting shape [1] but got: [2]"),
        (b'{"inputs": [[1], [1, 2]]}', "Encountered list at unexpected size: 2 at level: 1 expected size: 1"),
        (b'{"inputs": [[1], 2]}', "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2"),
        (b'{"instances": [{"y": 1}]}', "JSON object: does not have named input: y"),
        (b'{"instances": [{}]}', "keys must be equal to: x"),
        (b'{"instances": [1, {"x": 1}]}', "Expecting value/list but got object at item 1 of input list"),
        (b'{"instances": [{"x": 1}, 1]}', "Expecting object but got list at item 1 of input list"),
        (b'{"inputs": {"y": 1}}', "Missing named input: x in 'inputs' object."),
    ],
)
def test_what_is_wrong_is_said_as_tensorflow_serving_says_it(body: bytes, text: str) -> None:
    with pytest.raises(ServingError) as caught:
        read_inputs(parse(body), tensors(x=UINT8))
    assert caught.value.code == "INVALID_ARGUMENT"
    assert text in caught.value.message


@pytest.mark.parametrize("body", ['{"instances": [1]}', '{"inputs": [1]}'])
def test_several_inputs_need_names(body: str) -> None:
    with pytest.raises(ServingError, match="as multiple input tensors required as per tensorinfo_map"):
        read_inputs(parse(body.encode()), tensors(x=UINT8, y=UINT8))


def test_bytes_that_are_not_base64_are_refused() -> None:
    with pytest.raises(ServingError, match="Unable to base64 decode"):
        read_inputs(parse(b'{"instances": [{"b64": "*"}]}'), tensors(x=STRING))


@pytest.mark.parametrize(
    ("outputs", "form", "expected"),
    [
        ({"y": np.float32([[0.2, 1]])}, ROW, {"predictions": [[0.2, 1.0]]}),
        ({"y": np.float32([0.2])}, COLUMN, {"outputs": [0.2]}),
        ({"y": np.uint8([1]), "z": np.uint8([2])}, ROW, {"predictions": [{"y": 1, "z": 2}]}),
        ({"y": np.uint8([1]), "z": np.uint8([2, 3])}, COLUMN, {"outputs": {"y": [1], "z": [2, 3]}}),
        ({"y": np.array([b"a"], object)}, ROW, {"predictions": ["a"]}),
        ({"y_bytes": np.array([b"a"], object)}, ROW, {"predictions": [{"b64": "YQ=="}]}),
    ],
)
def test_outputs_become_json_in_the_format_of_the_request(outputs: Any, form: str, expected: Any) -> None:
    assert answer(outputs, form) == expected


def test_floats_are_written_as_the_shortest_number_that_reads_back() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    text = json.dumps(answer({"y": values}, COLUMN))
    assert np.float32(json.loads(text)["outputs"]).tolist() == values.tolist()
    assert len(text) < 14 * len(values)


def test_rows_of_unequal_length_have_no_row_format() -> None:
    with pytest.raises(ServingError, match="Tensor name: z has inconsistent batch size: 2 expecting: 1"):
        answer({"y": np.uint8([1]), "z": np.uint8([2, 3])}, ROW)
