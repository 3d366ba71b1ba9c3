"""The networks that workloads can train."""

from ipulaunch.topology.networks.selection import computed_by, network_of

__all__ = ["computed_by", "network_of"]
