"""Arithmetic in specifications: numbers, + - * / // % **, parentheses and a few functions, and nothing else."""

from __future__ import annotations

import ast
import math
import operator
import re
from typing import Any, Callable, Dict, Mapping, Type

_LONGEST = 1000  # characters
_FIELD = re.compile(r"\{(\w+)\}")

_BINARY: Dict[Type[ast.AST], Callable[[float, float], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: Dict[Type[ast.AST], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "abs": abs,
    "float": float,
    "int": int,
    "max": max,
    "min": min,
    "round": lambda value, digits=0: round(value, int(digits)),
}


def evaluate(expression: str, values: Mapping[str, object]) -> float:
    """The number that an expression gives once `{name}` is replaced by its value. ValueError says what is wrong."""
    missing = [name for name in _FIELD.findall(expression) if name not in values]
    if missing:
        raise ValueError(f"there is no value of {missing[0]}")
    expression = _FIELD.sub(lambda found: str(values[found[1]]), expression).strip()
    if len(expression) > _LONGEST:
        raise ValueError(f"it has {len(expression)} characters, more than {_LONGEST}")
    try:
        result = _value(ast.parse(expression, mode="eval").body)
    except SyntaxError:
        raise ValueError(f"{expression!r} is not arithmetic") from None
    except ZeroDivisionError:
        raise ValueError(f"{expression!r} divides by zero") from None
    except (OverflowError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is too large") from None
    except TypeError:
        raise ValueError(f"{expression!r} calls a function with the wrong numbers") from None
    if isinstance(result, complex) or not math.isfinite(result):
        raise ValueError(f"{expression!r} gives {result}, which is no number")
    return result


def _value(node: ast.AST) -> float:
    # Whole numbers become floats: a power of two whole numbers could fill the memory.
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        result: float = _BINARY[type(node.op)](_value(node.left), _value(node.right))
        return result
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            return float(function(*map(_value, node.args)))
    raise ValueError(f"it has {ast.dump(node)[:60]}, and only arithmetic is allowed")
