"""PODs, hosts and NUMA nodes; the rules; the plan."""

from ipulaunch.topology.planning.batch import Batch
from ipulaunch.topology.planning.plan import Placement, Plan

__all__ = ["Batch", "Placement", "Plan"]
