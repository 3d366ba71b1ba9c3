"""One training, killed again and again, each time resumed from what it left, until it is complete.

Usage: killed.py DIRECTORY SEED. Trains undisturbed in DIRECTORY/whole, then in DIRECTORY/killed; prints one line per
kill, and the moment of it. A moment is a number of calls of Python functions, so that it is the same on any machine.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Type

from ipulaunch.configs.keras_2 import use_keras_2
from ipulaunch.configs.runs.checkpoints import found_in

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
use_keras_2(os.environ)
sys.path.append(str(Path(__file__).parents[3]))

import numpy as np  # noqa: E402 - Keras 2 is chosen before TensorFlow is imported
from fixtures.plans import plan_of  # noqa: E402

from ipulaunch.configs.runs.directory import RunDirectory  # noqa: E402
from ipulaunch.configs.runs.job import Job  # noqa: E402
from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings  # noqa: E402
from ipulaunch.configs.settings.optimization import Optimizer  # noqa: E402
from ipulaunch.configs.settings.sections import Training  # noqa: E402
from ipulaunch.topology import Batch  # noqa: E402
from ipulaunch.workers.backends.collective import Alone  # noqa: E402
from ipulaunch.workers.backends.cpu.backend import CpuBackend  # noqa: E402
from ipulaunch.workers.instance import Instance  # noqa: E402
from ipulaunch.workers.lifecycle.records import Records  # noqa: E402
from ipulaunch.workers.lifecycle.stopping import StopRequest  # noqa: E402
from ipulaunch.workers.run import run_instance  # noqa: E402
from ipulaunch.workers.state import checkpoints  # noqa: E402

UPDATES = 200
KILLS = 20
WRITES = ("savez", "write_whole", "rename")  # the steps of writing a checkpoint
LONGEST_S = 1800  # for one training, so that nothing waits for ever
AT_START, IN_AN_UPDATE = 2000, 600  # calls, about as many as there are


class Moment(NamedTuple):
    """When a training is killed: in a step of a later checkpoint, or some calls after its start or an update."""

    where: str
    calls: int = 0
    updates: int = 0


class Mortal(StopRequest):
    """Is asked after every update; after some of them, the calls until the end are counted."""

    moment = Moment("never")
    made = 0

    def agreed(self) -> bool:
        self.made += 1
        if self.moment.where == "training" and self.made == self.moment.updates:
            die_after(self.moment.calls)
        if self.moment.where != "never" and self.made >= UPDATES // KILLS - 1:
            die()  # whatever was drawn: later kills are to find some updates left
        return super().agreed()


def train(directory: Path, resume: Optional[str], request: Type[StopRequest] = StopRequest) -> None:
    settings = CosmoflowSettings(
        data=CosmoflowData(side=4, n_train=UPDATES, n_valid=2),
        model=CosmoflowModel(conv_size=1, n_conv_layers=1, fc1_size=4, fc2_size=4, dropout=0.5),
        optimizer=Optimizer("sgd", 0.01, momentum=0.9),
        training=Training(ckpts_per_epoch=Fraction(UPDATES), validation=False, resume=resume),
    )
    plan = plan_of(Batch(1, 1, 1))
    run = RunDirectory(directory)
    backend = CpuBackend(settings, plan, 0, Alone())
    records = Records(run, 0)
    stop = request(run, 0, Alone())
    records.done(run_instance(Instance(Job("cosmoflow", "cpu", settings), plan, 0, backend, run, records, 1, stop)))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(calls: int) -> None:
    """Be killed at a call of a Python function that is so many calls away."""
    left = [calls]

    def count(frame: Any, event: str, argument: Any) -> None:
        left[0] -= event == "call"
        if left[0] < 0:
            die()

    sys.setprofile(count)


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
            die()
        return real(first, *rest, **named)

    setattr(owner, step, deadly)


def made(directory: Path) -> int:
    """The update of the newest checkpoint; all that there are must be whole."""
    return max((checkpoints.load(path).update for path in found_in(directory)), default=0)


def in_a_child(work: Callable[[], None]) -> int:
    """How it ended: 0, or the signal."""
    child = os.fork()
    if not child:
        signal.alarm(LONGEST_S)
        try:
            work()
            os._exit(0)
        finally:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return os.waitpid(child, 0)[1]


def attempt(directory: Path, moment: Moment) -> int:
    """Train in a child that is killed at the moment."""

    def work() -> None:
        if moment.where in WRITES:
            die_in(moment.where, moment.calls)
        elif moment.where == "start":
            die_after(moment.calls)
        Mortal.moment = moment
        train(directory, str(directory) if made(directory) else None, Mortal)

    return in_a_child(work)


def main() -> None:
    directory, draw = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    whole, killed = directory / "whole", directory / "killed"
    assert in_a_child(lambda: train(whole, None)) == 0
    at_start = [Moment("start", draw.randint(0, AT_START)) for _ in range(5)]
    moments = [*at_start[1:], *(Moment(step, draw.randint(0, 1)) for step in (*WRITES, *WRITES))]
    while len(moments) < KILLS - 1:
        moments.append(Moment("training", draw.randint(0, IN_AN_UPDATE), draw.randint(1, UPDATES // KILLS - 2)))
    draw.shuffle(moments)
    moments.insert(0, at_start[0])  # before there is any checkpoint
    for moment in moments:
        ended = attempt(killed, moment)
        assert ended == signal.SIGKILL, f"{moment} ended it with {ended}"
        print(
            f"killed at {moment}; the newest checkpoint is of update {made(killed)}", flush=True
        )  # before the next fork
    assert made(killed) < UPDATES, "it came to its end"
    assert attempt(killed, Moment("never")) == 0


if __name__ == "__main__":
    main()
