"""Tensors on the wire, and as NumPy arrays, without TensorFlow."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import numpy as np

from ipulaunch.workers.server.status import ServingError

# By the number of the type in TensorFlow's DataType: its name, NumPy's type, and the field that has its values.
_TYPES: Dict[int, Tuple[str, Any, str]] = {
    1: ("float", np.float32, "float_val"),
    2: ("double", np.float64, "double_val"),
    3: ("int32", np.int32, "int_val"),
    4: ("uint8", np.uint8, "int_val"),
    5: ("int16", np.int16, "int_val"),
    6: ("int8", np.int8, "int_val"),
    7: ("string", np.object_, "string_val"),
    9: ("int64", np.int64, "int64_val"),
    10: ("bool", np.bool_, "bool_val"),
    17: ("uint16", np.uint16, "int_val"),
    19: ("half", np.float16, "half_val"),
    22: ("uint32", np.uint32, "uint32_val"),
    23: ("uint64", np.uint64, "uint64_val"),
}
_NUMBERS = {np.dtype(numpy_type): number for number, (_, numpy_type, _) in _TYPES.items()}
_PACKED = {1: b"\x2a", 2: b"\x32"}  # fields 5 and 6 on the wire: the values as they lie in memory
STRING = 7
_MOST_BYTES = 2**31 - 1  # of a message of gRPC


def type_name(number: int) -> str:
    """The name that TensorFlow's messages use for a type."""
    return _TYPES[number][0] if number in _TYPES else f"type {number}"


def type_name_of(array: Any) -> str:
    return type_name(_NUMBERS.get(array.dtype, 0))


def numpy_type(number: int) -> Any:
    return np.dtype(_TYPES[number][1]) if number in _TYPES else None


def shape_of(proto: Any) -> Optional[Tuple[int, ...]]:
    """The sizes of a TensorShapeProto, -1 where any size will do; None if not even their number is known."""
    return None if proto.unknown_rank else tuple(dim.size for dim in proto.dim)


def to_array(proto: Any, alias: str) -> Any:
    """The array of a TensorProto. Its last value stands for all that are left out, as in TensorFlow."""
    shape = shape_of(proto.tensor_shape)
    if proto.dtype not in _TYPES or shape is None or min(shape, default=0) < 0:
        raise _unreadable(alias)
    _, kind, field = _TYPES[proto.dtype]
    count = 1
    for size in shape:
        count *= size
    if count * np.dtype(kind).itemsize > _MOST_BYTES:
        raise _unreadable(alias)
    if proto.tensor_content:
        if proto.dtype == STRING or len(proto.tensor_content) != count * np.dtype(kind).itemsize:
            raise _unreadable(alias)
        return np.frombuffer(proto.tensor_content, kind).reshape(shape)
    return _filled(_values(proto, kind, field), count, kind).reshape(shape)


def _values(proto: Any, kind: Any, field: str) -> Any:
    given = getattr(proto, field)
    if field == "half_val":
        return np.array(given, np.uint16).view(np.float16)
    if field == "int_val":
        return np.array(given, np.int32).astype(kind)
    return np.array(given, kind)


def _filled(values: Any, count: int, kind: Any) -> Any:
    if len(values) >= count:
        return values[:count]
    last = values[-1] if len(values) else (b"" if kind is np.object_ else kind())
    if len(values) <= 1:
        return np.broadcast_to(np.array(last, kind), (count,))
    return np.concatenate([values, np.full(count - len(values), last, kind)])


def _unreadable(alias: str) -> ServingError:
    return ServingError("INVALID_ARGUMENT", f"tensor parsing error: {alias}")


def to_proto(array: Any, into: Any) -> None:
    """Write an array into a TensorProto, into the field of its type: clients read that one."""
    number = _NUMBERS.get(array.dtype)
    if number is None:
        raise ServingError("UNIMPLEMENTED", f"outputs of type {array.dtype} cannot be sent")
    _head(array, number, into)
    if number in _PACKED and array.size:
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        into.MergeFromString(_PACKED[number] + _varint(len(data)) + data)
    elif number == 19:
        into.half_val.extend(np.ascontiguousarray(array).view(np.uint16).ravel().tolist())
    elif number == STRING:
        values = array.ravel().tolist()
        into.string_val.extend(value.encode() if isinstance(value, str) else value for value in values)
    else:
        getattr(into, _TYPES[number][2]).extend(array.ravel().tolist())


def to_content(array: Any, into: Any) -> None:
    """Write an array into a TensorProto as bytes, as `tf.make_tensor_proto` does: the fastest for pixels."""
    _head(array, _NUMBERS[array.dtype], into)
    into.tensor_content = np.ascontiguousarray(array).tobytes()


def _head(array: Any, number: int, into: Any) -> None:
    into.Clear()
    into.dtype = number
    for size in array.shape:
        into.tensor_shape.dim.add(size=size)


def _varint(number: int) -> bytes:
    """A length as protobuf writes it: seven bits a byte, the lowest first."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])
