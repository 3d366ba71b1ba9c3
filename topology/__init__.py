"""PODs, hosts and NUMA nodes; the rules; the plan."""

from ipulaunch.topology.batch import Batch
from ipulaunch.topology.plan import Placement, Plan

__all__ = ["Batch", "Placement", "Plan"]
