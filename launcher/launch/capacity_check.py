"""Whether the hosts of a plan keep its IPUs busy, by what is published: a warning where they would not."""

from __future__ import annotations

from typing import List

from ipulaunch.configs.messages import Message, warning
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.launcher.launch.memory_check import MemoryCheck, check_memory
from ipulaunch.topology import Plan
from ipulaunch.topology.capacity.chain import BUSY, OPEN, STARVE, Chain, chain_of
from ipulaunch.topology.capacity.forms import JPEG
from ipulaunch.topology.capacity.known_rates import known_inputs, published_rate
from ipulaunch.topology.capacity.ranges import Range


def check_ipus(workload: str, settings: WorkloadSettings, plan: Plan) -> MemoryCheck:
    """Whether the model fits the IPUs of a plan, with a warning if they would wait for their hosts."""
    check = check_memory(settings, plan)
    return check._replace(messages=(*check.messages, *starving(workload, settings, plan)))


def starving(workload: str, settings: WorkloadSettings, plan: Plan) -> List[Message]:
    """A warning if the IPUs of a plan would wait for their hosts for sure; never where nothing is published."""
    if settings.data.is_synthetic or published_rate(settings, plan) is None:
        return []
    chain = chain_of(known_inputs(workload, settings, plan, is_rehearsal=False))
    if chain.verdict != STARVE:
        return []
    form = "with the published JPEGs, " if chain.inputs.form == JPEG else ""
    return [warning(f"{form}{verdict_text(chain)}; ipulaunch capacity {workload} says what would help")]


def verdict_text(chain: Chain) -> str:
    """The verdict in a sentence."""
    supply, device, flow = chain.supply, chain.device.pod, chain.flow
    if flow is None:
        return "no rate is known: give --ipu-rate and --decode-rate"
    if chain.inputs.is_rehearsal:
        limit = "at most " if chain.is_upper_limit else ""
        return f"the rehearsal makes {limit}{span(flow)} samples/s, on cores that prepare samples and compute"
    if chain.verdict == OPEN:
        each = span(flow.times(1 / chain.inputs.ipus))
        return f"the hosts deliver {span(flow)} samples/s: IPUs that take more than {each} each would wait"
    assert device is not None
    if supply is None:
        return "the IPUs do not wait for the hosts, which send no samples"
    if chain.verdict == BUSY:
        return f"the hosts keep the IPUs busy: they deliver {span(supply)} samples/s, and the IPUs take {span(device)}"
    if chain.verdict == STARVE:
        limit = f"the {_limit(chain)} of {_hosts(chain)} at most {count(supply.high)}"
        return f"the IPUs would wait for the hosts: they take {span(device)} samples/s, and {limit}"
    return (
        f"the hosts may not keep the IPUs busy: the ranges overlap: they deliver {span(supply)} samples/s, and the IPUs"
        f" take {span(device)}"
    )


def _limit(chain: Chain) -> str:
    """The link of the hosts that limits, whatever the others do."""
    known = [(link.pod.high, -link.pod.low, link.name) for link in chain.links[:-1] if link.pod is not None]
    return min(known)[2]


def _hosts(chain: Chain) -> str:
    hosts = chain.inputs.hosts
    return "one host does" if hosts == 1 else f"{hosts} hosts does"


def span(value: Range) -> str:
    """A range in a sentence."""
    low, high = count(value.low), count(value.high)
    return low if low == high else f"{low} to {high}"


def count(value: float) -> str:
    """A number with three digits that count."""
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
