from __future__ import annotations

from typing import Dict

import pytest

from ipulaunch.launcher.bench.expressions import evaluate

VALUES: Dict[str, object] = {"a": 12.0, "size": "32", "minus": -3.0}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("{a} / 2", 6),
        ("({a} + 4) * {size}", 512),
        ("7 // 2 + 7 % 4", 6),
        ("2 ** 10", 1024),
        ("-{a}", -12),
        ("{minus} * 2", -6),
        ("round({a} / 7, 2)", 1.71),
        ("max({a}, {size}) - min(1, 2) + abs(-1)", 32),
        ("3", 3),
        (" 1 + 1 ", 2),
    ],
)
def test_arithmetic(expression: str, value: float) -> None:
    assert evaluate(expression, VALUES) == pytest.approx(value)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("{b} / 2", "no value of b"),
        ("1 / 0", "divides by zero"),
        ("1 +", "not arithmetic"),
        ("__import__('os').system('true')", "only arithmetic"),
        ("open('x')", "only arithmetic"),
        ("(1).real", "only arithmetic"),
        ("[1][0]", "only arithmetic"),
        ("'a' * 9", "only arithmetic"),
        ("lambda: 1", "only arithmetic"),
        ("9 ** 9 ** 9", "too large"),
        ("(0 - 1) ** 0.5", "no number"),
        ("round()", "wrong numbers"),
        ("1e999", "no number"),
        ("1 + " * 400 + "1", "more than"),
    ],
)
def test_anything_else_is_refused(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(expression, VALUES)
