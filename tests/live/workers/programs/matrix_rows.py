"""Rows of the matrix on two instances, which are the two processes that this is started with.

TensorFlow is imported once in each; the stand-in is new for every row. The instances share out what the rows are
compared with, which trains on CPUs in one process each. `matrix_rows.py <where> <JSON of the rows>`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ipulaunch.configs.runs.job import Job
from ipulaunch.workers.lifecycle.binding import size_pools

TESTS = Path(__file__).parents[3]
sys.path[1:1] = [str(TESTS), str(TESTS / "fixtures" / "smooth")]
from fixtures.matrix import Row, settings_of  # noqa: E402

where, rows = Path(sys.argv[1]), [Row(*values) for values in json.loads(sys.argv[2])]
JOB = Job("cosmoflow", "cpu", settings_of(Row("CosmoFlow", "3.4", 2, 2, "32.32", "drop").reference))
threads = size_pools(1, JOB, os.environ)

from fixtures.matrix_runs import train_on_cpus, train_on_ipus  # noqa: E402 - TensorFlow reads its threads at once
from mpi4py import MPI  # noqa: E402
from smooth_networks import make_smooth  # noqa: E402

from ipulaunch.workers.models import build  # noqa: E402


def main() -> None:
    threads.in_force()
    make_smooth(build)
    world = MPI.COMM_WORLD
    references = sorted({row.reference for row in rows})
    for reference in references[world.Get_rank() :: world.Get_size()]:
        train_on_cpus(reference, where / reference.directory)
    world.Barrier()
    for row in rows:
        train_on_ipus(row, where / row.directory, where / row.reference.directory)


main()
