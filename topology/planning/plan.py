"""The plan: one launch, fully decided. Nothing downstream computes a number again."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Tuple

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.runs.untrusted import MOST, parse_json
from ipulaunch.configs.text import counted
from ipulaunch.topology.machines import cpulist, hostlist
from ipulaunch.topology.planning.batch import Batch

_FORMAT = 1
_NAME = r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}"  # of workloads and systems
_MOST_NUMA_NODES = 1024  # what Linux can have
_MOST_CPUS = 1 << 22  # of all instances together


class Placement(NamedTuple):
    """Where one instance runs and which replicas it holds."""

    instance: int
    host: str
    local_index: int  # among the instances of its host
    numa_nodes: Tuple[int, ...]
    cores: int
    cpus: str
    first_replica: int


class Plan(NamedTuple):
    """One launch, fully decided."""

    workload: str
    system: str
    replicas: int
    ipus_per_replica: int
    ilds: int
    batch: Batch
    placements: Tuple[Placement, ...]
    oversubscribed: bool

    @property
    def instances(self) -> int:
        return len(self.placements)

    @property
    def ipus(self) -> int:
        return self.replicas * self.ipus_per_replica

    @property
    def replicas_per_instance(self) -> int:
        return self.replicas // self.instances

    @property
    def hosts(self) -> Tuple[str, ...]:
        return tuple(dict.fromkeys(placement.host for placement in self.placements))

    @property
    def is_on_this_host(self) -> bool:
        """Whether all instances run on the machine that starts them, and no host is named."""
        return self.hosts == (hostlist.LOCALHOST,)

    @property
    def instances_per_host(self) -> int:
        return self.instances // len(self.hosts)

    def replicas_of(self, index: int) -> range:
        """The replicas of one instance."""
        first = self.placements[index].first_replica
        return range(first, first + self.replicas_per_instance)

    def neighbours_of(self, index: int) -> int:
        """How many instances the host of one instance has, itself included."""
        return sum(placement.host == self.placements[index].host for placement in self.placements)

    @property
    def division(self) -> str:
        """IPUs, replicas and instances in one line."""
        return (
            f"{counted(self.ipus, 'IPU')} = {counted(self.replicas, 'replica')} x {self.ipus_per_replica};"
            f" {counted(self.instances, 'instance')} x {counted(self.replicas_per_instance, 'replica')}"
        )

    @property
    def formula(self) -> str:
        """The arithmetic of the plan in one line."""
        return f"{self.division}; {self.batch.formula}"


def to_json(plan: Plan) -> str:
    """The plan as text; from_json() gives back an equal plan."""
    import json  # here, because a dry run needs none

    data = {"format": _FORMAT, **plan._asdict(), "batch": plan.batch._asdict()}
    data["placements"] = [placement._asdict() for placement in plan.placements]
    return json.dumps(data, indent=1) + "\n"


def from_json(text: str) -> Plan:
    """The plan in a text; refuses anything but a complete plan."""
    try:
        if len(text) > MOST:
            raise ValueError(f"it is longer than {MOST} characters")
        data: Dict[str, Any] = parse_json(text)
        if data.pop("format") != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT}")
        placements = _placements(data.pop("placements"))
        plan = Plan(batch=Batch(**data.pop("batch")), placements=placements, **data)
        _verify(plan)
        return plan
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PlanError(f"this is not a plan: {error}", hint="make one with ipulaunch plan --json") from error


def _placements(items: List[Dict[str, Any]]) -> Tuple[Placement, ...]:
    found: List[Placement] = []
    cpus = 0
    for item in items:
        own = len(cpulist.parse(item["cpus"]))
        cpus += own
        if not own or cpus > _MOST_CPUS:
            raise ValueError("an instance has no CPUs" if not own else f"it names more than {_MOST_CPUS} CPUs")
        item["numa_nodes"] = tuple(item["numa_nodes"])
        found.append(Placement(**item))
    return tuple(found)


def _verify(plan: Plan) -> None:
    counts = [plan.replicas, plan.ipus_per_replica, plan.ilds, *plan.batch]
    if any(type(count) is not int or count < 1 for count in counts):
        raise ValueError("its counts are not whole numbers above 0")
    if not plan.placements or plan.replicas % plan.instances:
        raise ValueError(f"{plan.replicas} replicas are not divided evenly among {plan.instances} instances")
    if plan.batch.replicas != plan.replicas:
        raise ValueError(f"the batch counts {plan.batch.replicas} replicas, the plan {plan.replicas}")
    if not all(re.fullmatch(_NAME, text) for text in (plan.workload, plan.system)):
        raise ValueError("its workload or its system is not a name")
    # They become arguments of ssh, to which `-oProxyCommand=...` would be an option and not a host.
    if not all(hostlist.is_name(placement.host) for placement in plan.placements):
        raise ValueError("its hosts are not names or addresses")
    if type(plan.oversubscribed) is not bool:
        raise ValueError("it does not say whether cores are shared")
    local: Dict[str, int] = {}
    for index, placement in enumerate(plan.placements):
        local_index = local[placement.host] = local.get(placement.host, -1) + 1
        place = (placement.instance, placement.local_index, placement.first_replica)
        if place != (index, local_index, index * plan.replicas_per_instance):
            raise ValueError(f"instance {index} is not in its place")
        numbers = (placement.cores, *placement.numa_nodes)
        if any(type(number) is not int for number in numbers) or placement.cores < 1:
            raise ValueError(f"the cores or NUMA nodes of instance {index} are not numbers")
        if not all(0 <= node < _MOST_NUMA_NODES for node in placement.numa_nodes):
            raise ValueError(f"the NUMA nodes of instance {index} are not from 0 to {_MOST_NUMA_NODES - 1}")
