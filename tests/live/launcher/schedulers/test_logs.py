"""`ipulaunch logs`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

Run = Callable[..., Any]


def test_logs_of_a_pod(make_run: Any, scheduler: Any, tmp_path: Path) -> None:
    job = {"scheduler": "kubernetes", "id": "a", "kind": "IPUJob", "namespace": "default", "uid": "u1"}
    make_run("a", job=job)
    done = subprocess.run(
        [sys.executable, "-m", "ipulaunch.launcher", "logs", "a", "-f"],
        capture_output=True,
        encoding="utf-8",
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == ["logs of", "pod/a-worker-0", "--namespace=default", "--follow"]


@pytest.mark.parametrize(
    ("said", "code", "message"),
    [
        ('Error from server (NotFound): pods "a" not found', 7, "kubectl refused the logs of a: Error from server"),
        ("dial tcp 127.0.0.1:6443: connect: connection refused", 4, "kubectl does not reach its server"),
    ],
)
def test_logs_that_kubectl_refuses(
    said: str, code: int, message: str, make_run: Any, ipulaunch: Run, scheduler: Any
) -> None:
    make_run("a", job={"scheduler": "kubernetes", "id": "a", "kind": "IPUJob", "namespace": "default", "uid": "u1"})
    scheduler.says("refuse", said)
    result = ipulaunch("logs", "a")
    assert result.code == code
    assert f"error: {message}" in result.err
