"""Reads the dictionaries in CIFAR's Python batches without running them.

A pickle is a program. These files need only a few of its instructions: dictionaries, lists, tuples, strings, numbers,
and one array, whose construction is recognised by its names and done here. Anything else is refused.
"""

from __future__ import annotations

import io
import pickletools
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

_OPCODES = {opcode.code: opcode for opcode in pickletools.opcodes}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINBYTES", "BINBYTES"}
_OLD_STRINGS = {"SHORT_BINSTRING", "BINSTRING"}  # bytes of Python 2, shown to us as Latin-1
_IGNORED = {"PROTO", "FRAME"}
_EMPTY: Dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS, _GETS = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}
_BUILDS = {"MARK", "TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"}
_KNOWN = {
    *(*_CONSTANTS, *_VALUES, *_OLD_STRINGS, *_IGNORED, *_EMPTY, *_TUPLES, *_PUTS, *_GETS, *_BUILDS),
    *("STOP", "MEMOIZE"),
}


class NotAPlainPickle(ValueError):
    """The bytes are no pickle, or one that does more than hold plain values."""


class _Name(NamedTuple):
    name: str


class _Array:
    """An array under construction."""

    def __init__(self) -> None:
        self.value: np.ndarray = np.empty(0, np.uint8)

    def build(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        if not isinstance(kind, _Kind) or kind.name not in ("u1", b"u1"):
            raise NotAPlainPickle(f"an array of {_shown(kind)}, expected bytes")
        if not isinstance(data, bytes) or not isinstance(shape, tuple) or not all(type(side) is int for side in shape):
            raise NotAPlainPickle("an array without its bytes or its shape")
        self.value = np.frombuffer(data, np.uint8).reshape(shape, order="F" if is_fortran is True else "C")


class _Kind:
    """The type of an array's values under construction; its byte order says nothing about single bytes."""

    def __init__(self, name: Any) -> None:
        self.name = name if isinstance(name, (str, bytes)) else ""


def _shown(value: Any) -> str:
    """A value in a message: only what is short for sure, as a tuple of tuples of tuples can be without end."""
    if isinstance(value, (_Name, _Kind)):
        value = value.name
    return str(value)[:80] if isinstance(value, (str, bytes)) else f"a {type(value).__name__}"


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    if not isinstance(kind, _Name) or kind.name != "numpy ndarray":
        raise NotAPlainPickle(f"it makes {_shown(kind)}")
    return _Array()


_CALLS: Dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray _reconstruct": _reconstruct,
    "numpy._core.multiarray _reconstruct": _reconstruct,
    "numpy dtype": lambda name, align, copy: _Kind(name),
    "_codecs encode": lambda text, encoding: text.encode("latin-1"),  # bytes, as Python 3 writes them for Python 2
}
_NAMES = {*_CALLS, "numpy ndarray"}


def read_pickle(data: bytes) -> Dict[str, Any]:
    """The dictionary in a pickle, its names as text."""
    try:
        value = _run(data)
    except NotAPlainPickle:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError) as error:
        raise NotAPlainPickle(f"it is broken: {error}") from error
    if not isinstance(value, dict):
        raise NotAPlainPickle(f"it holds a {type(value).__name__}, expected a dictionary")
    return {_text(key): item.value if isinstance(item, _Array) else item for key, item in value.items()}


def _text(key: Any) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)


def _instructions(data: bytes) -> Iterator[Tuple[str, Any, int]]:
    """Every instruction with its argument and its place. One that we do not know is refused before its argument is
    read: as text, a number of a million digits takes minutes."""
    stream = io.BytesIO(data)
    while True:
        position = stream.tell()
        code = stream.read(1)
        opcode = _OPCODES.get(code.decode("latin-1"))
        if opcode is None:
            raise NotAPlainPickle("it has no end" if not code else f"it does {code!r} at byte {position}")
        if opcode.name not in _KNOWN:
            raise NotAPlainPickle(f"it does {opcode.name} at byte {position}")
        if opcode.name == "GLOBAL":  # two lines as they are, in which the module's own reader looks for escapes
            yield opcode.name, " ".join(stream.readline().decode("ascii").rstrip("\n") for _ in range(2)), position
        else:
            yield opcode.name, opcode.arg.reader(stream) if opcode.arg else None, position


class _Stack:
    """What the instructions have made; a mark sets aside what lies below it."""

    def __init__(self) -> None:
        self.items: List[Any] = []
        self.below: List[List[Any]] = []

    def mark(self) -> None:
        self.below.append(self.items)
        self.items = []

    def since_mark(self) -> List[Any]:
        items, self.items = self.items, self.below.pop()
        return items

    def top(self, kind: type) -> Any:
        if not isinstance(self.items[-1], kind):
            raise NotAPlainPickle(f"it adds to a {type(self.items[-1]).__name__}")
        return self.items[-1]


def _run(data: bytes) -> Any:
    stack = _Stack()
    memo: Dict[int, Any] = {}
    for name, argument, position in _instructions(data):
        items = stack.items
        if name in _IGNORED:
            continue
        if name == "STOP":
            return items.pop()
        if name in _VALUES:
            items.append(argument)
        elif name in _OLD_STRINGS:
            items.append(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            items.append(_CONSTANTS[name])
        elif name in _EMPTY:
            items.append(_EMPTY[name]())
        elif name in _PUTS:
            memo[argument] = items[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = items[-1]
        elif name in _GETS:
            items.append(memo[argument])
        else:
            _build(name, argument, position, stack)
    raise AssertionError("the instructions end with STOP or with an error")


def _build(name: str, argument: Any, position: int, stack: _Stack) -> None:
    """The instructions that make values out of others."""
    items = stack.items
    if name == "MARK":
        stack.mark()
    elif name in _TUPLES:
        items[-_TUPLES[name] :] = [tuple(items[-_TUPLES[name] :])]
    elif name == "TUPLE":
        found = tuple(stack.since_mark())
        stack.items.append(found)
    elif name in ("APPEND", "APPENDS"):
        added = [items.pop()] if name == "APPEND" else stack.since_mark()
        stack.top(list).extend(added)
    elif name in ("SETITEM", "SETITEMS"):
        added = [items.pop(-2), items.pop()] if name == "SETITEM" else stack.since_mark()
        # The hash of a tuple of tuples is computed anew from all that is in it, which can be without end.
        if not all(isinstance(key, (str, bytes, int)) for key in added[::2]):
            raise NotAPlainPickle(f"a key is no text at byte {position}")
        stack.top(dict).update(zip(added[::2], added[1::2]))
    elif name in ("GLOBAL", "STACK_GLOBAL"):
        words = argument if name == "GLOBAL" else " ".join([items.pop(-2), items.pop()])
        if words not in _NAMES:
            raise NotAPlainPickle(f"it asks for {_shown(words)} at byte {position}")
        items.append(_Name(words))
    elif name == "REDUCE":
        arguments, call = items.pop(), items.pop()
        if not isinstance(call, _Name) or call.name not in _CALLS:
            raise NotAPlainPickle(f"it calls {_shown(call)} at byte {position}")
        items.append(_CALLS[call.name](*arguments))
    else:  # BUILD
        state, target = items.pop(), items[-1]
        if isinstance(target, _Array):
            target.build(state)
        elif not isinstance(target, _Kind):
            raise NotAPlainPickle(f"it fills a {type(target).__name__} at byte {position}")
