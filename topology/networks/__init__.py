"""The networks that workloads can train."""

from ipulaunch.topology.networks.choice import network_of

__all__ = ["network_of"]
