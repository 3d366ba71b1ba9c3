"""What a plan says of the order of samples."""

from __future__ import annotations

from typing import List

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.planning.solver import Fact


def order_facts(settings: WorkloadSettings, hosts: int) -> List[Fact]:
    """What --stage-shard makes of the order of samples."""
    if not settings.data.stage_shard:
        return []
    if settings.survival.elastic_hosts:
        raise SettingsError(
            "--elastic-hosts goes on with fewer hosts, and with --stage-shard samples belong to hosts",
            hint="give one of the two",
        )
    if hosts == 1:
        return [Fact("order", "--stage-shard changes nothing on one host, which reads all samples")]
    return [
        Fact(
            "order",
            f"samples are shuffled within {hosts} shares, one for each host (--stage-shard); another number of hosts"
            " is another order",
        )
    ]
