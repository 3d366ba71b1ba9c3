"""Binding a process to its cores and its memory, and the sizes of its thread pools.

Import it before TensorFlow, which reads some of the sizes at its import only.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass
from typing import Iterable, MutableMapping, Set, Tuple, Union

from ipulaunch.configs.keras_2 import use_keras_2
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.topology.machines import cpulist, hosts
from ipulaunch.topology.planning.placement import Share, divide, oversubscribe
from ipulaunch.topology.planning.plan import Placement

# Linux has no C library wrapper for memory policies; the numbers are part of its ABI.
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}
_MPOL_DEFAULT, _MPOL_BIND = 0, 2
_MASK_BITS = 1024


@dataclass(frozen=True)
class Binding:
    """What is in force, as the kernel reports it."""

    cpus: str
    cores: int
    memory: str  # "nodes 0,1", "default", or why it could not be set


def bind(cpus: Iterable[int], cores: int, numa_nodes: Tuple[int, ...]) -> Binding:
    """Run on these CPUs and take memory from these nodes, as far as we are allowed to."""
    wanted, allowed = set(cpus), os.sched_getaffinity(0)
    # poprun may have bound us already; a share outside that is not ours to take.
    usable: Set[int] = wanted & allowed or allowed
    os.sched_setaffinity(0, usable)
    effective = os.sched_getaffinity(0)
    count = cores if effective == wanted else min(cores, len(effective))
    return Binding(cpulist.render(effective), max(1, count), _bind_memory(numa_nodes))


def bind_share(index: int, instances: int) -> Binding:
    """Bind to the share of this host that the plan would give to one of several instances on it."""
    nodes = hosts.discover("here").nodes
    cores = sum(len(node.cores) for node in nodes)
    shares = divide if instances <= cores else oversubscribe
    return _bind_to(shares(nodes, instances)[index])


def bind_as_planned(placement: Placement) -> Binding:
    """Bind to the share of this host that the plan gives to an instance."""
    return _bind_to(placement)


def _bind_to(share: Union[Share, Placement]) -> Binding:
    return bind(cpulist.parse(share.cpus), share.cores, share.numa_nodes)


def _bind_memory(nodes: Tuple[int, ...]) -> str:
    machine = platform.machine()
    if machine not in _SET_MEMPOLICY:
        return f"not set: no memory policy calls known for {machine}"
    libc = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * (_MASK_BITS // 64))()
    for node in nodes:
        mask[node // 64] |= 1 << (node % 64)
    if libc.syscall(_SET_MEMPOLICY[machine], _MPOL_BIND, mask, ctypes.c_ulong(_MASK_BITS)) != 0:
        return f"not set: {os.strerror(ctypes.get_errno())}"
    return _memory_policy(libc, machine)


def _memory_policy(libc: ctypes.CDLL, machine: str) -> str:
    mode, mask = ctypes.c_int(), (ctypes.c_ulong * (_MASK_BITS // 64))()
    result = libc.syscall(_GET_MEMPOLICY[machine], ctypes.byref(mode), mask, ctypes.c_ulong(_MASK_BITS), None, 0)
    if result != 0:
        return f"not known: {os.strerror(ctypes.get_errno())}"
    if mode.value == _MPOL_DEFAULT:
        return "default"
    nodes = [bit for bit in range(_MASK_BITS) if mask[bit // 64] >> (bit % 64) & 1]
    return f"nodes {cpulist.render(nodes)}"


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
