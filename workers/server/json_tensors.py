"""Tensors in the JSON of TensorFlow Serving's REST API, by row (`instances`) and by column (`inputs`)."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np

from ipulaunch.workers.server.saved_model import Tensor
from ipulaunch.workers.server.status import ServingError
from ipulaunch.workers.server.tensors import STRING, numpy_type, type_name

ROW, COLUMN = "predictions", "outputs"  # the format of a request, by the key of its answer
_SHOWN = 256  # bytes of a value in a message
_KINDS = {type(None): "Null", dict: "Object", list: "Array", str: "String", int: "Number", float: "Number"}


def parse(text: bytes) -> Dict[str, Any]:
    """The object that the body of a request is."""
    if not text:
        raise _invalid("JSON Parse error: The document is empty")
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise _invalid(f"JSON Parse error: {error.msg} at offset: {error.pos}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise _invalid(f"JSON Parse error: {error}") from error
    if not isinstance(body, dict):
        raise _invalid(f"JSON Value: {_shown(body)} Is not object")
    if not isinstance(body.get("signature_name", ""), str):
        raise _invalid(
            f"JSON Value: {_shown(body)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return body


def read_inputs(body: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tuple[Dict[str, Any], str]:
    """The arrays of a request for a signature with these inputs, and the format of its answer."""
    if "instances" in body and "inputs" in body:
        raise _invalid(
            f"JSON Value: {_shown(body)} Not formatted correctly expecting only one of 'inputs' or 'instances'"
            " keys to exist "
        )
    if "instances" in body:
        instances = body["instances"]
        if not isinstance(instances, list):
            raise _invalid(f"JSON Value: {_shown(body)} Expecting 'instances' to be an list/array")
        if not instances:
            raise _invalid(f"JSON Value: {_shown(body)} No values in 'instances' array")
        return _from_rows(instances, tensors), ROW
    if "inputs" in body:
        return _from_columns(body["inputs"], tensors), COLUMN
    raise _invalid("Missing 'inputs' or 'instances' key")


def _from_rows(instances: List[Any], tensors: Mapping[str, Tensor]) -> Dict[str, Any]:
    if not isinstance(instances[0], dict) and len(tensors) > 1:
        raise _invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per"
            " tensorinfo_map"
        )
    named = _is_named(instances[0])
    for place, instance in enumerate(instances):
        if _is_named(instance) != named:
            wanted, got = ("object", "list") if named else ("value/list", "object")
            raise _invalid(f"Expecting {wanted} but got {got} at item {place} of input list")
        if named and set(instance) != set(tensors):
            unknown = [alias for alias in instance if alias not in tensors]
            if unknown:
                raise _invalid(
                    f"Failed to process element: {place} key: {unknown[0]} of 'instances' list. Error:"
                    f" INVALID_ARGUMENT: JSON object: does not have named input: {unknown[0]}"
                )
            raise _invalid(
                f"Failed to process element: {place} of 'instances' list. JSON object: {_shown(instance)}"
                f" keys must be equal to: {','.join(sorted(tensors))}"
            )
    if not named:
        (alias, tensor), *_ = tensors.items()
        return {alias: _array(instances, tensor.dtype, is_rows=True)}
    return {
        alias: _array([instance[alias] for instance in instances], tensor.dtype, is_rows=True)
        for alias, tensor in tensors.items()
    }


def _from_columns(inputs: Any, tensors: Mapping[str, Tensor]) -> Dict[str, Any]:
    if not _is_named(inputs):
        if len(tensors) > 1:
            raise _invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per"
                " tensorinfo_map"
            )
        (alias, tensor), *_ = tensors.items()
        return {alias: _array(inputs, tensor.dtype)}
    for alias in tensors:
        if alias not in inputs:
            raise _invalid(f"Missing named input: {alias} in 'inputs' object.")
    return {alias: _array(inputs[alias], tensor.dtype) for alias, tensor in tensors.items()}


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def _array(value: Any, dtype: int, is_rows: bool = False) -> Any:
    """A nested list as an array. A level at a time: a list of images has millions of values."""
    shape: List[int] = []
    level = [value]
    while level and isinstance(level[0], list):
        if {type(item) for item in level} != {list} or len({len(item) for item in level}) > 1:
            _refuse_ragged(value, is_rows)
        shape.append(len(level[0]))
        level = list(itertools.chain.from_iterable(level))
    kind = numpy_type(dtype)
    if kind is None:
        raise ServingError("UNIMPLEMENTED", f"Conversion of JSON Value: {_shown(value)} to type: {type_name(dtype)}")
    _check_leaves(level, dtype, kind)
    if dtype == STRING:
        level = [_bytes(item) for item in level]
        array = np.empty(len(level), object)
        array[:] = level
        return array.reshape(shape)
    try:
        return np.array(level, kind).reshape(shape)
    except OverflowError as error:
        raise _invalid(f"JSON Value: {_shown(level)} is not of expected type: {type_name(dtype)}") from error


def _check_leaves(level: List[Any], dtype: int, kind: Any) -> None:
    if dtype == STRING:
        allowed: Tuple[type, ...] = (str, dict)
    elif kind == np.bool_:
        allowed = (bool,)
    else:
        allowed = (int, float) if kind.kind == "f" else (int,)
    if {type(item) for item in level} <= {*allowed}:
        if kind.kind in "iu" and level:
            limits = np.iinfo(kind)
            wrong = [item for item in (min(level), max(level)) if not limits.min <= item <= limits.max]
        else:
            wrong = []
    else:
        wrong = [item for item in level if type(item) not in allowed]
    if wrong:
        what = str(wrong[0]) if isinstance(wrong[0], bool) else _KINDS[type(wrong[0])]
        raise _invalid(f"JSON Value: {_shown(wrong[0])} Type: {what} is not of expected type: {type_name(dtype)}")


def _refuse_ragged(value: Any, is_rows: bool) -> None:
    """Say where a nested list first differs from its own first elements."""
    if is_rows:
        shapes = [_shape(item) for item in value]
        for shape in shapes:
            if shape != shapes[0]:
                raise _invalid(f"Expecting shape {_brackets(shapes[0])} but got: {_brackets(shape)}")
    shape = _shape(value)

    def check(item: Any, level: int) -> None:
        if not isinstance(item, list):
            if level != len(shape):
                raise _invalid(
                    f"JSON Value: {_shown(item)} found at incorrect level: {level + 1} in the JSON DOM."
                    f" Expected at level: {len(shape)}"
                )
            return
        if level >= len(shape):
            raise _invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
        if len(item) != shape[level]:
            raise _invalid(
                f"Encountered list at unexpected size: {len(item)} at level: {level} expected size: {shape[level]}"
            )
        for each in item:
            check(each, level + 1)

    check(value, 0)


def _shape(value: Any) -> List[int]:
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def _brackets(shape: List[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _bytes(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if not _is_base64(item):
        raise _invalid(f"JSON Value: {_shown(item)} not formatted correctly for base64 data")
    try:
        return base64.b64decode(item["b64"], validate=True)
    except binascii.Error as error:
        raise _invalid("Unable to base64 decode") from error


def answer(outputs: Mapping[str, Any], form: str) -> Dict[str, Any]:
    """The outputs in the format of the request; a single one goes without its name."""
    plain = {alias: _plain(alias, array) for alias, array in outputs.items()}
    if len(plain) == 1:
        (only,) = plain.values()
        return {form: only}
    if form == COLUMN:
        return {form: plain}
    sizes = {alias: array.shape[0] if array.ndim else None for alias, array in outputs.items()}
    expected = next(iter(sizes.values()))
    for alias, size in sizes.items():
        if size is None:
            raise _invalid(f"Tensor name: {alias} has no shape information ")
        if size != expected:
            raise _invalid(f"Tensor name: {alias} has inconsistent batch size: {size} expecting: {expected}")
    return {form: [dict(zip(plain, row)) for row in zip(*plain.values())]}


def _plain(alias: str, array: Any) -> Any:
    if array.dtype == np.object_:
        return _strings(array.tolist(), alias.endswith("_bytes"))
    if array.dtype in (np.float32, np.float16):  # the shortest number that is this one, not the nearest double
        return array.astype(str).astype(np.float64).tolist()
    return array.tolist()


def _strings(value: Any, is_bytes: bool) -> Any:
    if isinstance(value, list):
        return [_strings(item, is_bytes) for item in value]
    if is_bytes:
        return {"b64": base64.b64encode(value).decode()}
    return value.decode("utf-8", "replace")


def _shown(value: Any) -> str:
    return json.dumps(value)[:_SHOWN]


def _invalid(message: str) -> ServingError:
    return ServingError("INVALID_ARGUMENT", message)
