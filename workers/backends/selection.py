"""Which backend runs a job."""

from __future__ import annotations

import platform
from typing import Any, Dict

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.runs.job import Job
from ipulaunch.topology.planning.plan import Plan

try:
    import tensorflow as tf
except ImportError as missing:
    raise NotReadyError(
        f"TensorFlow is not here: {missing}",
        hint="pip install 'ipulaunch[cpu]', or enable the Poplar SDK and install its TensorFlow",
    ) from missing

from ipulaunch.workers.backends.collective import Collective, join
from ipulaunch.workers.backends.interface import Backend


def join_instances(job: Job, index: int, instances: int) -> Collective:
    """Meet the other instances of a job."""
    if not job.is_rehearsal:
        from ipulaunch.workers.backends.ipu.sdk import join_hosts

        return join_hosts(index, instances)
    return join(index, instances)


def make_backend(job: Job, plan: Plan, index: int, collective: Collective) -> Backend[Any]:
    """The backend of this instance."""
    if not job.is_rehearsal:
        from ipulaunch.workers.backends.ipu.backend import IpuBackend

        return IpuBackend(job.settings, plan, index, collective)
    from ipulaunch.workers.backends.cpu.backend import CpuBackend

    return CpuBackend(job.settings, plan, index, collective)


def make_devices(job: Job) -> None:
    """A logical device for each pipeline stage, before TensorFlow has looked for any."""
    if not job.is_rehearsal:
        return
    # Grappler's rewriting takes longer than the first update of a deep network and gains nothing later. In TensorFlow
    # 2.15 it also breaks our loops: its arithmetic optimizer joins sums across iterations, and its remapper gives up.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    stages = job.settings.pipeline.stages
    if stages > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * stages)


def stack() -> Dict[str, str]:
    """The versions that matter when two machines disagree."""
    return {"tensorflow": tf.__version__, "python": platform.python_version()}
