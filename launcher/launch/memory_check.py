"""Whether the model of a plan fits its IPUs: a fact, and a warning with what would help."""

from __future__ import annotations

from typing import NamedTuple, Tuple

from ipulaunch.configs.messages import Message, warning
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Plan
from ipulaunch.topology.capacity.fitting import changes
from ipulaunch.topology.capacity.memory import FITS, IpuMemory, fullest, memory_of
from ipulaunch.topology.capacity.ranges import Range
from ipulaunch.topology.planning.solver import Fact


class MemoryCheck(NamedTuple):
    """The memory of every IPU of a replica, in a sentence, and what to do about it."""

    memory: Tuple[IpuMemory, ...]
    fact: Fact
    messages: Tuple[Message, ...] = ()


def check_memory(settings: WorkloadSettings, plan: Plan) -> MemoryCheck:
    """The memory that IPUs need for these settings, on the plan's replicas."""
    memory = memory_of(settings, plan.batch)
    most = fullest(memory)
    text = f"{most.program} needs {megabytes(most.bytes)} of the {most.limit / 1e6:.0f} MB of"
    text += f" IPU {most.ipu}, the fullest of a replica" if plan.ipus_per_replica > 1 else " an IPU"
    fact = Fact("memory", f"{most.verdict}: {text}", in_plan_only=True)
    if most.verdict == FITS:
        return MemoryCheck(memory, fact)
    found = changes(settings, plan.batch)
    options = [f"{change.options} ({megabytes(change.memory.bytes)})" for change in found]
    what = "it fits with" if any(change.memory.verdict == FITS for change in found) else "closest to fitting:"
    remedy = f"; {what} {', or '.join(options)}" if options else ""
    return MemoryCheck(memory, fact, (warning(f"the model {most.verdict}: {text}{remedy}"),))


def megabytes(size: Range) -> str:
    """A size and its uncertainty."""
    return f"{size.low / 1e6:.0f} to {size.high / 1e6:.0f} MB"
