"""Thread pools sized from the binding. Import before TensorFlow: some of it is read at import only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import MutableMapping

from ipulaunch.configs.keras_2 import use_keras_2
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.images import ImageData


@dataclass(frozen=True)
class Threads:
    """How many threads each pool of an instance has."""

    intra_op: int  # inside one operation
    inter_op: int  # operations side by side
    data: int  # the input pipeline
    omp: str  # OMP_NUM_THREADS; the user's own value is kept

    def in_force(self) -> Threads:
        """Apply the sizes to TensorFlow; returns those that it reports then."""
        import tensorflow as tf

        threading = tf.config.threading
        threading.set_intra_op_parallelism_threads(self.intra_op)
        threading.set_inter_op_parallelism_threads(self.inter_op)
        intra_op, inter_op = threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads()
        return Threads(intra_op, inter_op, self.data, self.omp)


def size_pools(cores: int, job: Job, environ: MutableMapping[str, str]) -> Threads:
    """Set what TensorFlow and OpenMP read from the environment, for this many cores."""
    # Threads that share an operation add its parts in an order that depends on how many they are.
    intra = 1 if job.settings.training.deterministic else cores
    use_keras_2(environ)
    if job.is_rehearsal:  # a rehearsal is of the CPUs, also on a machine with a GPU
        environ["CUDA_VISIBLE_DEVICES"] = "-1"
    environ.setdefault("OMP_NUM_THREADS", str(intra))
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow greets at length on every start
    environ["TF_NUM_INTRAOP_THREADS"] = str(intra)
    # Two at least, or the all-reduce, which waits inside an operation, would hold up the next input.
    environ["TF_NUM_INTEROP_THREADS"] = str(max(2, cores))
    data = job.settings.data
    parallel = data.pipeline_num_parallel if isinstance(data, ImageData) else None
    return Threads(intra, max(2, cores), parallel or cores, environ["OMP_NUM_THREADS"])
