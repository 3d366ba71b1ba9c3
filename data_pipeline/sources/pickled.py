"""Reads the dictionaries in CIFAR's Python batches without running them.

A pickle is a program. These files need only a few of its instructions: dictionaries, lists, tuples, text, numbers, and
one array, which this module makes. It refuses all other instructions and names.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from typing import Any, Callable, Dict, List

import numpy as np

_OPCODES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_KNOWN = {
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES", "BINSTRING", "SHORT_BINSTRING"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS"),
    *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "REDUCE"),
}
# All that the standard library is known to raise for damaged or hostile pickles.
_BROKEN = (
    *(pickle.UnpicklingError, struct.error, ValueError, TypeError, IndexError, KeyError, AttributeError),
    OverflowError,
)


class NotAPlainPickle(ValueError):
    """The bytes are not a pickle, or the pickle does more than hold plain values."""


class _Array:
    """An array under construction."""

    def __init__(self, *arguments: object) -> None:
        self.value: np.ndarray = np.empty(0, np.uint8)

    def fill(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        if not isinstance(kind, _Kind) or kind.name not in ("u1", b"u1"):
            raise NotAPlainPickle(f"it has an array of {_shown(kind)}, expected bytes")
        if not isinstance(data, bytes) or not isinstance(shape, tuple) or not all(type(side) is int for side in shape):
            raise NotAPlainPickle("it has an array without bytes or without a shape")
        self.value = np.frombuffer(data, np.uint8).reshape(shape, order="F" if is_fortran is True else "C")


class _Kind:
    """The type of an array's values under construction."""

    def __init__(self, name: Any, *flags: object) -> None:
        self.name = name

    def fill(self, state: Any) -> None:
        """The state holds the byte order, which does not matter for single bytes."""


def _shown(value: Any) -> str:
    """A value in a message, without what is inside it: tuples of tuples can be endless."""
    if isinstance(value, _Kind):
        value = value.name
    return str(value)[:80] if isinstance(value, (str, bytes)) else f"a {type(value).__name__}"


def _bytes(text: str, encoding: object) -> bytes:
    """Bytes, as Python 3 writes them for Python 2."""
    return text.encode("latin-1")


_NAMES: Dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray _reconstruct": _Array,
    "numpy._core.multiarray _reconstruct": _Array,
    "numpy ndarray": _Array,
    "numpy dtype": _Kind,
    "_codecs encode": _bytes,
}


class _Instructions(Dict[int, Callable[[Any], None]]):
    """What the reader does for each instruction; it refuses an unknown one before it reads its argument."""

    def __missing__(self, code: int) -> Callable[[Any], None]:
        raise NotAPlainPickle(f"it does {_OPCODES.get(code, hex(code))}")


class _Reader(pickle._Unpickler):
    """The standard library's reader in Python, restricted to the instructions that a batch needs.

    The faster reader in C is not safe here: it cannot check keys and instructions, and it reserves memory for as many
    memorised values as a number in the file says: tens of gigabytes for a file of 8 bytes.
    """

    stack: List[Any]

    def find_class(self, module: str, name: str) -> Any:
        words = f"{module} {name}"
        if words not in _NAMES:
            raise NotAPlainPickle(f"it asks for {_shown(words)}")
        return _NAMES[words]

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def _set_items(self) -> None:
        self._update(self.pop_mark())  # type: ignore[attr-defined]

    def _update(self, items: List[Any]) -> None:
        # The hash of a tuple of tuples is computed anew from everything inside it, which can be endless.
        if not all(isinstance(key, (str, bytes, int)) for key in items[::2]):
            raise NotAPlainPickle("a key is not text")
        if not isinstance(self.stack[-1], dict):
            raise NotAPlainPickle(f"it adds to a {type(self.stack[-1]).__name__}")
        self.stack[-1].update(zip(items[::2], items[1::2]))

    def _build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, (_Array, _Kind)):
            raise NotAPlainPickle(f"it fills a {type(target).__name__}")
        target.fill(state)

    dispatch = _Instructions(
        {code: do for code, do in pickle._Unpickler.dispatch.items() if _OPCODES[code] in _KNOWN},
    )
    dispatch.update({pickle.SETITEM[0]: _set_item, pickle.SETITEMS[0]: _set_items, pickle.BUILD[0]: _build})


def read_pickle(data: bytes) -> Dict[str, Any]:
    """The dictionary in a pickle, its names as text."""
    try:
        value = _Reader(io.BytesIO(data), fix_imports=False, encoding="bytes").load()
    except NotAPlainPickle:
        raise
    except EOFError as error:
        raise NotAPlainPickle("it has no end") from error
    except _BROKEN as error:
        raise NotAPlainPickle(f"it is broken: {error}") from error
    if not isinstance(value, dict):
        raise NotAPlainPickle(f"it holds a {type(value).__name__}, expected a dictionary")
    return {_text(key): item.value if isinstance(item, _Array) else item for key, item in value.items()}


def _text(key: Any) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)
