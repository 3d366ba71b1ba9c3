"""One training, killed again and again, each time resumed from what it left, until it is complete.

Usage: killed.py DIRECTORY SEED. Prints one line per kill, and the moment of it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Optional, Tuple, Type

from ipulaunch.configs.keras_2 import use_keras_2

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
use_keras_2(os.environ)

import numpy as np  # noqa: E402 - Keras 2 is chosen before TensorFlow is imported

from ipulaunch.configs.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings  # noqa: E402
from ipulaunch.configs.job import Job  # noqa: E402
from ipulaunch.configs.optimization import Optimizer  # noqa: E402
from ipulaunch.configs.run_directory import RunDirectory  # noqa: E402
from ipulaunch.configs.sections import Training  # noqa: E402
from ipulaunch.topology import Batch  # noqa: E402
from ipulaunch.topology.popdist import Place  # noqa: E402
from ipulaunch.workers import checkpoints  # noqa: E402
from ipulaunch.workers.backends.cpu import CpuBackend  # noqa: E402
from ipulaunch.workers.collective import Alone  # noqa: E402
from ipulaunch.workers.instance import Instance  # noqa: E402
from ipulaunch.workers.records import Records  # noqa: E402
from ipulaunch.workers.stopping import StopRequest  # noqa: E402
from ipulaunch.workers.work import carry_out  # noqa: E402

UPDATES = 200
KILLS = 20
WRITES = ("savez", "write_whole", "rename")  # the steps of writing a checkpoint


class Held(StopRequest):
    """Waits for its end after some updates, so that later kills find some left on a fast machine as well."""

    left = (UPDATES - 1) // KILLS

    def agreed(self) -> bool:
        self.left -= 1
        while self.left <= 0:
            signal.pause()
        return super().agreed()


def train(directory: Path, resume: Optional[str], request: Type[StopRequest] = StopRequest) -> None:
    settings = CosmoflowSettings(
        data=CosmoflowData(side=4, n_train=UPDATES, n_valid=2),
        model=CosmoflowModel(conv_size=1, n_conv_layers=1, fc1_size=4, fc2_size=4, dropout=0.5),
        optimizer=Optimizer("adam", 0.01),
        training=Training(ckpts_per_epoch=Fraction(UPDATES), validation=False, resume=resume),
    )
    batch, place = Batch(1, 1, 1), Place(0, 1, 0, 1, 0, 1, 1, 1)
    run = RunDirectory(directory)
    backend = CpuBackend(settings, batch, place, Alone())
    records = Records(run, 0)
    stop = request(run, place, Alone())
    records.done(carry_out(Instance(Job("cosmoflow", "cpu", settings), batch, place, backend, run, records, 1, stop)))


def die_in(step: str, calls: int) -> None:
    """Be killed in a step of a later checkpoint, before it is done."""
    owner = {"savez": np, "write_whole": checkpoints, "rename": Path}[step]
    real, left = getattr(owner, step), [calls]

    def deadly(first, *rest, **named):
        left[0] -= 1
        if left[0] < 0:
            if step == "savez":
                first.write(b"half a file")
                first.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(first, *rest, **named)

    setattr(owner, step, deadly)


def made(directory: Path) -> int:
    """The update of the newest whole checkpoint."""
    newest = checkpoints.newest_whole(directory)
    return newest.update if newest else 0


def attempt(directory: Path, moment: Tuple[str, float], calls: int = 0) -> bool:
    """Train in a child that is killed at the moment; whether it came to its end."""
    before = made(directory)
    child = os.fork()
    if not child:
        if moment[0] in WRITES:
            die_in(moment[0], calls)
        train(directory, str(directory) if before else None, StopRequest if moment[0] == "never" else Held)
        os._exit(0)
    if moment[0] == "training":
        deadline = time.monotonic() + 300
        while made(directory) == before and time.monotonic() < deadline:
            time.sleep(0.005)
    if moment[0] in ("start", "training"):
        time.sleep(moment[1])
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return status == 0


def main() -> None:
    directory, draw = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    moments = [(step, 0.0) for step in (*WRITES, *WRITES)]
    moments += [("start", draw.uniform(0.1, 2.0)) for _ in range(5)]
    moments += [("training", draw.uniform(0.0, 0.03)) for _ in range(KILLS - len(moments))]
    draw.shuffle(moments)
    for moment in moments:
        ended = attempt(directory, moment, calls=draw.randint(0, 1))
        assert not ended, "it came to its end"
        print(f"killed at {moment[0]} + {moment[1]:.3f} s; the newest checkpoint is of update {made(directory)}")
    assert attempt(directory, ("never", 0.0))


if __name__ == "__main__":
    main()
