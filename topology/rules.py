"""The rules of PopRun, PopDist and V-IPU that a launch must keep (R1 to R13), and ours for cores.

Hard rules refuse, soft ones warn. Each is one function from the numbers of a launch to what is wrong with them.
Not here, because they hold by construction: R9 (PopRun above 64 IPUs: there is no other way to start), R11 and R12
(habits the default policy covers) and R14 (one shape for training and validation: a run has one plan).
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional

from ipulaunch.configs.errors import PlanError
from ipulaunch.topology.pods import IPUS_PER_ILD

IPUS_PER_REPLICA = (1, 2, 4, 8, 16)


class Numbers(NamedTuple):
    """The counts of one launch, before or after it is planned."""

    replicas: int
    instances: int
    ipus_per_replica: int
    hosts: int = 1
    ilds: int = 1
    system_ipus: Optional[int] = None
    numa_nodes_per_host: Optional[int] = None
    cores_per_host: Optional[int] = None
    min_cores_per_instance: int = 1
    io_bound: bool = False
    is_rehearsal: bool = False  # on CPUs, which have no IPU-Link domains

    @property
    def ipus(self) -> int:
        return self.replicas * self.ipus_per_replica

    @property
    def instances_per_host(self) -> int:
        return -(-self.instances // self.hosts)


class Finding(NamedTuple):
    """One rule that a launch breaks."""

    rule: str
    hard: bool
    message: str
    hint: str


Rule = Callable[[Numbers], Optional[Finding]]


def check(numbers: Numbers) -> List[Finding]:
    """Every rule the numbers break, hard ones first."""
    findings = [rule(numbers) for rule in RULES.values()]
    return sorted((found for found in findings if found), key=lambda found: not found.hard)


def refuse(numbers: Numbers) -> List[str]:
    """The warnings of the soft rules; the first hard one that is broken raises."""
    findings = check(numbers)
    for found in findings:
        if found.hard:
            raise PlanError(f"{found.message} ({found.rule})", hint=found.hint)
    return [f"{found.message} ({found.rule}); {found.hint}" for found in findings]


def divisors(number: int) -> List[int]:
    """The divisors of a number, ascending."""
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def legal_instances(n: Numbers) -> List[int]:
    """The numbers of instances that divide the replicas and are divided by hosts and IPU-Link domains."""
    return [d for d in divisors(n.replicas) if d % n.hosts == 0 and d % n.ilds == 0]


def _use_instances(n: Numbers) -> str:
    legal = legal_instances(n)
    if legal:
        return f"use --num-instances {_nearest(n.instances, legal)}"
    if n.replicas < n.ilds:
        return f"use at least {n.ilds} replicas"
    return f"use numbers of hosts and of IPU-Link domains that divide the {n.replicas} replicas"


def _nearest(wanted: int, choices: List[int]) -> str:
    below = [c for c in choices if c < wanted][-1:]
    above = [c for c in choices if c > wanted][:1]
    return " or ".join(map(str, below + above))


def _r1(n: Numbers) -> Optional[Finding]:
    if not 1 <= n.instances <= n.replicas or n.replicas % n.instances == 0:
        return None
    message = f"{n.replicas} replicas cannot be divided evenly among {n.instances} instances"
    return Finding("R1", True, message, _use_instances(n))


def _r2(n: Numbers) -> Optional[Finding]:
    if 1 <= n.instances <= n.replicas:
        return None
    message = f"{n.instances} instances for {n.replicas} replicas: every instance needs a replica"
    return Finding("R2", True, message, _use_instances(n))


def _r3(n: Numbers) -> Optional[Finding]:
    if n.instances % n.hosts == 0:
        return None
    message = f"{n.instances} instances cannot be divided evenly among {n.hosts} hosts"
    return Finding("R3", True, message, _use_instances(n))


def _r4(n: Numbers) -> Optional[Finding]:
    if n.system_ipus is None or n.ipus == n.system_ipus:
        return None
    sizes = f"{n.replicas} replicas x {n.ipus_per_replica} IPUs = {n.ipus} IPUs"
    if n.ipus > n.system_ipus:
        fewer = n.system_ipus // n.ipus_per_replica
        hint = f"use --num-replicas {fewer}" if fewer else f"use --ipus-per-replica {n.system_ipus} or fewer"
        return Finding("R4", True, f"{sizes}, but the system has {n.system_ipus}", hint)
    message = f"{sizes} of {n.system_ipus}: {n.system_ipus - n.ipus} IPUs stay idle"
    return Finding("R4", False, message, f"{n.system_ipus // n.ipus_per_replica} replicas would use all")


def _r5(n: Numbers) -> Optional[Finding]:
    if n.ipus & (n.ipus - 1) == 0:
        return None
    power = 1 << (n.ipus.bit_length() - 1)
    message = f"{n.replicas} replicas x {n.ipus_per_replica} IPUs = {n.ipus} IPUs: a partition has a power of two"
    return Finding("R5", True, message, f"use {power} or {2 * power} IPUs in all")


def _r6(n: Numbers) -> Optional[Finding]:
    if n.ipus_per_replica in IPUS_PER_REPLICA:
        return None
    message = f"{n.ipus_per_replica} IPUs per replica: GCL takes 1, 2, 4, 8 or 16"
    return Finding(
        "R6", True, message, f"use --ipus-per-replica {_nearest(n.ipus_per_replica, list(IPUS_PER_REPLICA))}"
    )


def _r7(n: Numbers) -> Optional[Finding]:
    expected = max(1, n.ipus // IPUS_PER_ILD)
    if n.ilds == expected or n.is_rehearsal:
        return None
    message = f"{n.ilds} IPU-Link domains for {n.ipus} IPUs: a domain holds {IPUS_PER_ILD}, so {expected} is usual"
    return Finding(
        "R7", False, message, f"leave --num-ilds out or use {expected}, unless your cluster is built otherwise"
    )


def _r8(n: Numbers) -> Optional[Finding]:
    if n.instances % n.ilds == 0:
        return None
    message = f"{n.instances} instances for {n.ilds} IPU-Link domains: each domain needs the same number, at least one"
    return Finding("R8", True, message, _use_instances(n))


def _r10(n: Numbers) -> Optional[Finding]:
    limit = n.numa_nodes_per_host
    if limit is None or n.io_bound or n.instances_per_host <= limit:
        return None
    message = f"{n.instances_per_host} instances per host for {limit} NUMA nodes: they will share memory controllers"
    return Finding("R10", False, message, f"{limit * n.hosts} instances or fewer is the published advice")


def _r13(n: Numbers) -> Optional[Finding]:
    if (
        n.cores_per_host is None
        or n.instances < 1
        or n.cores_per_host // n.instances_per_host >= n.min_cores_per_instance
    ):
        return None
    cores = n.cores_per_host / n.instances_per_host
    message = (
        f"{n.instances_per_host} instances on {n.cores_per_host} cores: {cores:.3g} each,"
        f" below the {n.min_cores_per_instance} that one needs to feed its replicas"
    )
    return Finding("R13", False, message, "use fewer instances or more hosts")


RULES: Dict[str, Rule] = {
    "R6": _r6,
    "R4": _r4,
    "R5": _r5,
    "R2": _r2,
    "R1": _r1,
    "R3": _r3,
    "R8": _r8,
    "R7": _r7,
    "R10": _r10,
    "R13": _r13,
}
