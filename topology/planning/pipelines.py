"""Whether the network can be divided into the pipeline of the settings."""

from __future__ import annotations

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.text import counted, either
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.splits import check_splits
from ipulaunch.topology.planning.rules import IPUS_PER_REPLICA


def check_pipeline(settings: WorkloadSettings) -> None:
    """Refuse pipeline stages that the network or the IPUs do not have."""
    pipeline = settings.pipeline
    check_splits(network_of(settings), pipeline.splits)
    if pipeline.splits and pipeline.ipus not in IPUS_PER_REPLICA:
        stages = counted(pipeline.stages, "pipeline stage")
        raise PlanError(
            f"{stages} on {pipeline.ipus} IPUs: a replica has {either(IPUS_PER_REPLICA)} (R6)",
            hint="give other --pipeline-splits, or put several stages on an IPU with --device-mapping",
        )
