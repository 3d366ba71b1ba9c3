"""Checkpoints: all of the state of training, complete or absent."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict

import numpy as np

from ipulaunch.configs.run_directory import write_whole

_STATE, _MANIFEST = "state.npz", "manifest.json"


def save(directory: Path, model: Any, optimizer: Any, position: Dict[str, int]) -> Path:
    """Write weights, optimizer state and position; the checkpoint appears under its name only when whole."""
    final = directory / f"update-{position['update']:08}"
    temporary = directory / f".{final.name}.{os.getpid()}"
    temporary.mkdir(parents=True)
    try:
        _write(temporary, model, optimizer, position)
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def _write(directory: Path, model: Any, optimizer: Any, position: Dict[str, int]) -> None:
    arrays = {f"weight_{i:04}": w.numpy() for i, w in enumerate(model.weights)}
    arrays.update({f"optimizer_{i:04}": w.numpy() for i, w in enumerate(optimizer.weights)})
    with (directory / _STATE).open("wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    digest = hashlib.sha256((directory / _STATE).read_bytes()).hexdigest()
    manifest = {"position": position, "names": [w.name for w in model.weights], "sha256": {_STATE: digest}}
    write_whole(directory / _MANIFEST, json.dumps(manifest, indent=1) + "\n")


def load_state(checkpoint: Path) -> Dict[str, np.ndarray]:
    """The arrays of a checkpoint whose checksum holds; no code in the file is ever run."""
    manifest = json.loads((checkpoint / _MANIFEST).read_text(encoding="utf-8"))
    data = (checkpoint / _STATE).read_bytes()
    if hashlib.sha256(data).hexdigest() != manifest["sha256"][_STATE]:
        raise ValueError(f"{checkpoint / _STATE} does not have the checksum its manifest names")
    with np.load(checkpoint / _STATE, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
