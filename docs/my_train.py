"""A program with PopDist: fits a line, every instance on its own share of the samples.

It stops with a checkpoint when it is asked to, and goes on from there when it is called again. The model is a line, so
that all the rest can be seen; it is the same in TensorFlow.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import numpy as np
import popdist
from mpi4py import MPI  # poprun starts instances over MPI, and so does a rehearsal

CONTINUE_ME = 75  # the exit code that asks ipulaunch and the scheduler for another start
SAMPLES = 1024


def main():
    arguments = read_arguments()
    popdist.init()
    instance, instances = popdist.getInstanceIndex(), popdist.getNumInstances()
    asked = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: asked.append(number))

    first, weights = load(arguments.checkpoint)
    attempt = os.environ.get("IPULAUNCH_ATTEMPT", "1")
    print(f"instance {instance} of {instances}, attempt {attempt}: from update {first}", flush=True)
    x, y = share_of_samples(instance, instances)
    for update in range(first, arguments.updates):
        error = weights[0] * x + weights[1] - y
        gradient = MPI.COMM_WORLD.allreduce(np.array([np.sum(error * x), np.sum(error)])) / SAMPLES
        weights -= 0.5 * gradient
        if update + 1 - first == arguments.updates_per_attempt:
            asked.append(None)
        if MPI.COMM_WORLD.allreduce(len(asked), MPI.MAX):  # all instances stop after the same update
            save(arguments.checkpoint, instance, update + 1, weights)
            sys.exit(CONTINUE_ME)
    save(arguments.checkpoint, instance, arguments.updates, weights)
    if instance == 0:
        print(f"y = {weights[0]:.3f} x + {weights[1]:.3f}", flush=True)


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--updates-per-attempt", type=int, help="stop after so many, as before a limit of time")
    parser.add_argument("--checkpoint", type=Path, default=Path("line.npz"))
    return parser.parse_args()


def share_of_samples(instance, instances):
    x = np.linspace(-1, 1, SAMPLES)[instance::instances]
    return x, 3 * x + 2


def load(path):
    if not path.exists():
        return 0, np.zeros(2)
    with np.load(path) as checkpoint:
        return int(checkpoint["update"]), checkpoint["weights"]


def save(path, instance, update, weights):
    if instance == 0:
        whole = path.with_name(f".{path.name}")
        with whole.open("wb") as file:
            np.savez(file, update=update, weights=weights)
        whole.rename(path)


main()
