"""Reads the dictionaries in CIFAR's Python batches without running them.

A pickle is a program. These files need only a few of its instructions: dictionaries, lists, tuples, strings, numbers,
and one array, whose construction is recognised by its names and done here. Anything else is refused.
"""

from __future__ import annotations

import pickletools
from typing import Any, Callable, Dict, List, NamedTuple, cast

import numpy as np

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINBYTES", "BINBYTES"}
_OLD_STRINGS = {"SHORT_BINSTRING", "BINSTRING"}  # bytes of Python 2, shown to us as Latin-1
_IGNORED = {"PROTO", "FRAME"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class NotAPlainPickle(ValueError):
    """The bytes are no pickle, or one that does more than hold plain values."""


class _Name(NamedTuple):
    name: str


class _Mark(NamedTuple):
    """Where the items of a list, a tuple or a dictionary begin."""


class _Array:
    """An array under construction."""

    def __init__(self) -> None:
        self.value = np.empty(0, np.uint8)

    def build(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        if kind != "u1" and kind != b"u1":
            raise NotAPlainPickle(f"an array of {kind}, expected bytes")
        self.value = np.frombuffer(data, np.uint8).reshape(shape, order="F" if is_fortran else "C")


class _Kind:
    """The type of an array's values under construction; its byte order says nothing about single bytes."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return bool(self.name == other)

    def __str__(self) -> str:
        return str(self.name)


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    if kind != _Name("numpy ndarray"):
        raise NotAPlainPickle(f"it makes a {kind}")
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


def _run(data: bytes) -> Any:
    stack: List[Any] = []
    memo: Dict[int, Any] = {}
    for opcode, given, position in pickletools.genops(data):
        name, argument = opcode.name, cast(Any, given)
        if name in _IGNORED:
            continue
        if name == "STOP":
            return stack.pop()
        if name in _VALUES:
            stack.append(argument)
        elif name in _OLD_STRINGS:
            stack.append(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        else:
            _build(name, argument, position, stack)
    raise NotAPlainPickle("it has no end")


def _build(name: str, argument: Any, position: Any, stack: List[Any]) -> None:
    """The instructions that make values out of others."""
    if name == "MARK":
        stack.append(_Mark())
    elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
        stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]())
    elif name in _TUPLES:
        stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
    elif name == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif name in ("APPEND", "APPENDS"):
        items = [stack.pop()] if name == "APPEND" else _since_mark(stack)
        _top(stack, list).extend(items)
    elif name in ("SETITEM", "SETITEMS"):
        items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else _since_mark(stack)
        _top(stack, dict).update(zip(items[::2], items[1::2]))
    elif name in ("GLOBAL", "STACK_GLOBAL"):
        words = argument if name == "GLOBAL" else " ".join([stack.pop(-2), stack.pop()])
        if words not in _NAMES:
            raise NotAPlainPickle(f"it asks for {words} at byte {position}")
        stack.append(_Name(words))
    elif name == "REDUCE":
        arguments, call = stack.pop(), stack.pop()
        if not isinstance(call, _Name) or call.name not in _CALLS:
            raise NotAPlainPickle(f"it calls {call} at byte {position}")
        stack.append(_CALLS[call.name](*arguments))
    elif name == "BUILD":
        state, target = stack.pop(), stack[-1]
        if isinstance(target, _Array):
            target.build(state)
        elif not isinstance(target, _Kind):
            raise NotAPlainPickle(f"it fills a {type(target).__name__} at byte {position}")
    else:
        raise NotAPlainPickle(f"it does {name} at byte {position}")


def _since_mark(stack: List[Any]) -> List[Any]:
    start = max(n for n, value in enumerate(stack) if isinstance(value, _Mark))
    items = stack[start + 1 :]
    del stack[start:]
    return items


def _top(stack: List[Any], kind: type) -> Any:
    if not isinstance(stack[-1], kind):
        raise NotAPlainPickle(f"it adds to a {type(stack[-1]).__name__}")
    return stack[-1]
