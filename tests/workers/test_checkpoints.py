from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.workers import checkpoints


@pytest.fixture
def model() -> Any:
    return SimpleNamespace(weights=[tf.Variable([1.0, 2.0], name="kernel")])


@pytest.fixture
def optimizer() -> Any:
    return SimpleNamespace(weights=[tf.Variable(3, name="iterations")])


def test_a_checkpoint_gives_back_what_was_saved(tmp_path: Path, model: Any, optimizer: Any) -> None:
    path = checkpoints.save(tmp_path, model, optimizer, {"epoch": 1, "update": 12})
    assert path.name == "update-00000012"
    state = checkpoints.load_state(path)
    assert {name: value.tolist() for name, value in state.items()} == {"weight_0000": [1.0, 2.0], "optimizer_0000": 3}


def test_a_damaged_checkpoint_is_noticed(tmp_path: Path, model: Any, optimizer: Any) -> None:
    path = checkpoints.save(tmp_path, model, optimizer, {"epoch": 1, "update": 12})
    state = path / "state.npz"
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(ValueError, match="checksum"):
        checkpoints.load_state(path)


def test_a_failed_write_leaves_no_checkpoint(tmp_path: Path, model: Any, optimizer: Any, monkeypatch: Any) -> None:
    def fail(*arguments: Any, **arrays: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="No space"):
        checkpoints.save(tmp_path, model, optimizer, {"epoch": 1, "update": 12})
    assert not list(tmp_path.glob("update-*"))
    assert not list(tmp_path.iterdir())
