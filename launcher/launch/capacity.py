"""What a plan can do: the chain that feeds its IPUs, what would help, its memory, and what a training costs."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple

from ipulaunch.configs.pods import read_catalogue
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.text import counted
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.capacity_check import verdict_text
from ipulaunch.launcher.launch.memory_check import MemoryCheck, check_memory
from ipulaunch.launcher.launch.planning import system_of
from ipulaunch.topology import Plan
from ipulaunch.topology.capacity.chain import BUSY, Chain, Inputs, chain_of, inputs_data, range_data
from ipulaunch.topology.capacity.energy import Energy, energy_of
from ipulaunch.topology.capacity.improvements import Improvement, Limits, improvements
from ipulaunch.topology.capacity.ranges import Range, exactly

_IPUS_PER_HOST = 16  # at least, in the build guides


class Capacity(NamedTuple):
    """What a plan can do: its chain, what would help, its memory, and what the training costs."""

    plan: Plan
    chain: Chain
    improvements: Tuple[Improvement, ...]
    memory: Optional[MemoryCheck]  # None in a rehearsal

    @property
    def epoch_s(self) -> Optional[Range]:
        """The seconds of an epoch; at least that, where the rate of the IPUs is not known."""
        per_hour = self.chain.epochs_per_hour
        return per_hour and exactly(3600).over(per_hour)

    @property
    def training_s(self) -> Optional[Range]:
        return self.epoch_s and self.epoch_s.times(self.chain.inputs.epochs)

    @property
    def energy(self) -> Optional[Energy]:
        """IPU-hours and kWh of the whole training; None in a rehearsal, and where its duration is not known."""
        seconds = self.training_s
        if seconds is None or self.chain.inputs.is_rehearsal:
            return None
        return energy_of(self.plan.system, self.plan.ipus, seconds.times(1 / 3600))


def capacity_of(settings: WorkloadSettings, plan: Plan, inputs: Inputs, limits: Limits) -> Capacity:
    """The capacity of a plan, for these inputs."""
    memory = None if inputs.is_rehearsal else check_memory(settings, plan)
    chain = chain_of(inputs)
    helps = tuple(improvements(settings, inputs, limits)) if chain.verdict != BUSY else ()
    return Capacity(plan, chain, helps, memory)


def plan_text(capacity: Capacity) -> str:
    """What the capacity is of, in a line."""
    plan = capacity.plan
    return f"{plan.workload} on {plan.system}: {plan.division}; {counted(len(plan.hosts), 'host')}"


def capacity_data(capacity: Capacity) -> Dict[str, Any]:
    """The capacity as plain data."""
    chain, energy, memory = capacity.chain, capacity.energy, capacity.memory
    helps = [{"change": each.change, **each.chain.as_data()} for each in capacity.improvements]
    return {
        **chain.as_data(),
        "text": verdict_text(chain),
        "epoch_s": range_data(capacity.epoch_s),
        "training_s": range_data(capacity.training_s),
        "energy": energy and energy.as_data(),
        "memory": [each.as_data() for each in memory.memory] if memory is not None else [],
        "inputs": inputs_data(chain.inputs),
        "improvements": helps,
    }


def limits_of(options: LaunchOptions, plan: Plan, uses_isal: Optional[bool] = None) -> Limits:
    """How far the machines of a plan can be changed."""
    system = system_of(options._replace(ipus=options.ipus or plan.ipus), read_catalogue())
    return Limits(system.max_hosts or max(len(plan.hosts), plan.ipus // _IPUS_PER_HOST), uses_isal)
