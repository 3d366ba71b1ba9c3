"""The host reads variables in one way alone: under PopDist they convert to no Python number."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Iterator, List, Set

import numpy as np
import pytest

from ipulaunch.workers.models.variables import read_variable, read_variables

WORKERS = Path(__file__).parents[4] / "workers"
CONVERSIONS = {"int", "float", "bool", "complex", "round", "range"}
READERS = {"read_variable", "read_variables"}
# What Keras, its optimizers and we call variables, or collections of them.
VARIABLES = {
    *("iterations", "learning_rate", "lr", "weights", "variables", "trainable_variables", "non_trainable_variables"),
    *("trainable_weights", "non_trainable_weights", "gamma", "beta", "moving_mean", "moving_variance", "kernel"),
    *("bias", "good_updates", "loss_scaling_factor", "micro_batch"),
}
# `optimizer.learning_rate` is a variable, `settings.optimizer.learning_rate` a number.
NUMBERS_OF = {"settings", "chosen", "training", "shape", "optimization"}


class Mirrored:
    """A variable that has a value and no conversions."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def numpy(self) -> Any:
        return self.value


def test_a_value_is_read_without_a_conversion() -> None:
    assert read_variable(Mirrored(np.int64(7))) == 7
    assert [value.tolist() for value in read_variables([Mirrored(np.ones(2)), Mirrored(0.5)])] == [[1.0, 1.0], 0.5]


def name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def unread(node: ast.AST) -> Iterator[str]:
    """The variables in an expression that no reader has read, their shapes aside."""
    if isinstance(node, ast.Call) and name_of(node.func) in READERS:
        return
    if isinstance(node, ast.Attribute):
        if node.attr == "shape":
            return
        if node.attr in VARIABLES and name_of(node.value) not in NUMBERS_OF:
            yield node.attr
    for child in ast.iter_child_nodes(node):
        yield from unread(child)


def conversions(tree: ast.AST) -> List[str]:
    """Where a source converts a variable by itself, or reads one as nobody else does."""
    found: Set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in CONVERSIONS:
            found.update(f"{node.lineno}: {node.func.id}(... {name})" for part in node.args for name in unread(part))
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("numpy", "item", "__int__", "__float__"):
            found.add(f"{node.lineno}: .{node.func.attr}()")
    return sorted(found)


# Tensors, not variables: what the SDK's sum over hosts gives.
ELSEWHERE = {"models/variables.py", "backends/ipu/sdk.py"}


@pytest.mark.parametrize(
    "path", [str(path.relative_to(WORKERS)) for path in sorted(WORKERS.rglob("*.py"))], ids=lambda path: str(path)
)
def test_no_other_source_converts_a_variable(path: str) -> None:
    found = conversions(ast.parse((WORKERS / path).read_text(encoding="utf-8")))
    assert (path in ELSEWHERE) or not found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("int(self.optimizer.iterations)", 1),
        ("float(rate(self.optimizer.iterations - 1) if callable(rate) else rate)", 1),
        ("range(optimizer.iterations)", 1),
        ("[weight.numpy() for weight in model.weights]", 1),
        ("int(read_variable(self.optimizer.iterations))", 0),
        ("float(settings.learning_rate)", 0),
        ("int(self.model.weights[0].shape[0])", 0),
    ],
)
def test_the_walk_sees_conversions_and_nothing_else(source: str, count: int) -> None:
    assert len(conversions(ast.parse(source))) == count
