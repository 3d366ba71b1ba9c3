from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Tuple

import pytest

Run = Callable[..., Any]
WORDS = ("--pod", "16", "--engine", "poprun", "--compile-only", "--dry-run")
CACHE = ("--executable-cache-path", "/cache")


def test_poprun_attaches_nothing(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("cosmoflow", *WORDS, *CACHE, "--vipu-server-host", "s", "--update-partition", "yes")
    assert code == 0 and "--offline-mode=yes" in out and "vipu" not in out and "partition" not in out
    assert "without effect: --vipu-server-host, --update-partition" in err


def test_the_cache_may_be_named_to_poplar_itself(ipulaunch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--executable_cache_path=/cache")
    assert ipulaunch("cosmoflow", *WORDS).code == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(("cosmoflow",), "has no place to keep what it compiles", id="no cache"),
        pytest.param(("cosmoflow", "--use-estimator", *CACHE), "and this is an Estimator", id="estimator"),
    ],
)
def test_refusals(words: Tuple[str, ...], why: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*words, *WORDS)
    assert (code, out) == (6, "") and why in err


@pytest.mark.parametrize("command", [(), ("submit",), ("doctor",)], ids=["launch", "submit", "doctor"])
def test_a_rehearsal_has_nothing_to_compile(command: Tuple[str, ...], ipulaunch: Run, fake_mpirun: Path) -> None:
    more = {(): ["--dry-run"], ("submit",): ["--dry-run", "--scheduler", "slurm"]}.get(command, [])
    code, out, err = ipulaunch(*command, "cosmoflow", "--pod", "4", "--engine", "openmpi", "--compile-only", *more)
    assert (code, out) == (6, "")
    assert "a rehearsal on CPUs has nothing to compile ahead" in err and "--engine poprun" in err
