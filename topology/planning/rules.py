"""The rules of PopRun, PopDist and V-IPU that a launch must keep (R1 to R13), and ours for cores.

Hard rules refuse, soft ones warn. Each is one function from the numbers of a launch to what is wrong with them.
Not here: R9 (PopRun above 64 IPUs), which the engine without PopRun checks; and what holds by construction, R11 and R12
(habits the default policy covers) and R14 (one shape for training and validation: a run has one plan).
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.text import counted, either
from ipulaunch.topology.machines.pods import IPUS_PER_ILD, usual_ilds

IPUS_PER_REPLICA = (1, 2, 4, 8, 16)
SIZES = ("R6", "R4", "R5")  # the rules about replicas and IPUs alone, which apply before instances are chosen
_POWERS = tuple(1 << exponent for exponent in range(17))


class Numbers(NamedTuple):
    """The counts of one launch, before or after it is planned."""

    replicas: int
    instances: int
    ipus_per_replica: int
    hosts: int = 1
    ilds: int = 1
    system_ipus: Optional[int] = None
    pod_ipus: Optional[int] = None  # of the POD that the system is or belongs to
    numa_nodes_per_host: Optional[int] = None
    cores_per_host: Optional[int] = None
    min_cores_per_instance: int = 1
    io_bound: bool = False
    is_rehearsal: bool = False  # on CPUs, which have no IPU-Link domains
    has_stages: bool = False  # of a pipeline: the IPUs of a replica follow from these
    free: Tuple[str, ...] = ()  # fields that the user did not set: they follow when another one changes

    @property
    def ipus(self) -> int:
        return self.replicas * self.ipus_per_replica

    @property
    def sizes(self) -> str:
        """The IPUs in all, as a sum."""
        replicas, each = counted(self.replicas, "replica"), counted(self.ipus_per_replica, "IPU")
        return f"{replicas} x {each} = {counted(self.ipus, 'IPU')}"

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


def check(numbers: Numbers, names: Sequence[str] = ()) -> List[Finding]:
    """Every rule (of those in `names`, if given) that the numbers break, hard ones first."""
    findings = [rule(numbers) for name, rule in RULES.items() if not names or name in names]
    return sorted((found for found in findings if found), key=lambda found: not found.hard)


def refuse(numbers: Numbers, names: Sequence[str] = ()) -> List[str]:
    """The warnings of the soft rules; the first hard one that is broken raises."""
    findings = check(numbers, names)
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


def is_legal(n: Numbers) -> bool:
    """Whether the numbers break no hard rule."""
    return (
        n.ipus_per_replica in IPUS_PER_REPLICA
        and n.ipus & (n.ipus - 1) == 0
        and (n.system_ipus is None or n.ipus <= n.system_ipus)
        and n.instances >= 1
        and n.replicas % n.instances == n.instances % n.hosts == n.instances % n.ilds == 0
    )


def _with(n: Numbers, field: str, value: int) -> Numbers:
    """The numbers with one field changed, and with all fields that the user did not set following it."""
    change: Dict[str, Any] = {field: value}
    n = n._replace(**change)
    if field != "replicas" and "replicas" in n.free and n.system_ipus is not None:
        n = n._replace(replicas=max(1, n.system_ipus // n.ipus_per_replica))
    if "ilds" in n.free and not n.is_rehearsal:
        n = n._replace(ilds=usual_ilds(n.ipus))
    if "instances" in n.free:
        n = n._replace(instances=next(iter(legal_instances(n)), 0))
    return n


def _use(n: Numbers, flag: str, field: str, values: Sequence[int]) -> str:
    """A hint with the nearest legal values, if the others stay as they are; empty if there are none."""
    legal = [value for value in values if is_legal(_with(n, field, value))]
    return f"use {flag} {_nearest(getattr(n, field), legal)}" if legal else ""


def _use_replicas(n: Numbers) -> str:
    return _use(n, "--num-replicas", "replicas", _POWERS)


def _use_depth(n: Numbers) -> str:
    return _use(n, "--ipus-per-replica", "ipus_per_replica", IPUS_PER_REPLICA)


def _use_instances(n: Numbers) -> str:
    legal = legal_instances(n)
    if legal:
        fitting = [d for d in legal if n.cores_per_host is None or d // n.hosts <= n.cores_per_host]
        return f"use --num-instances {_nearest(n.instances, fitting or legal)}"
    if n.replicas < n.ilds:
        return f"use at least {counted(n.ilds, 'replica')}"
    return f"use numbers of hosts and of IPU-Link domains that divide the {n.replicas} replicas"


def _uneven(rule: str, n: Numbers, message: str) -> Finding:
    """A number of instances that does not come out even."""
    return Finding(rule, True, message, _use_instances(n))


def _nearest(wanted: int, choices: List[int]) -> str:
    below = [c for c in choices if c < wanted][-1:]
    above = [c for c in choices if c > wanted][:1]
    return either(below + above)


def _r1(n: Numbers) -> Optional[Finding]:
    if not 1 <= n.instances <= n.replicas or n.replicas % n.instances == 0:
        return None
    return _uneven("R1", n, f"{counted(n.replicas, 'replica')} cannot be divided evenly among {n.instances} instances")


def _r2(n: Numbers) -> Optional[Finding]:
    if 1 <= n.instances <= n.replicas:
        return None
    replicas = counted(n.replicas, "replica")
    return _uneven("R2", n, f"{counted(n.instances, 'instance')} for {replicas}: every instance needs a replica")


def _r3(n: Numbers) -> Optional[Finding]:
    if n.instances % n.hosts == 0:
        return None
    return _uneven("R3", n, f"{counted(n.instances, 'instance')} cannot be divided evenly among {n.hosts} hosts")


def _r4(n: Numbers) -> Optional[Finding]:
    if n.system_ipus is None or n.ipus == n.system_ipus:
        return None
    sizes = n.sizes
    if n.ipus > n.system_ipus:
        hint = _use_replicas(n) or ("" if n.has_stages else _use_depth(n))
        message = f"{sizes}, but the system has {counted(n.system_ipus, 'IPU')}"
        return Finding("R4", True, message, hint or "use a larger system, or fewer instances, replicas and stages")
    idle = n.system_ipus - n.ipus
    message = f"{sizes} of {n.system_ipus}: {counted(idle, 'IPU')} {'stays' if idle == 1 else 'stay'} idle"
    more = [count for count in _POWERS if count > n.replicas and is_legal(_with(n, "replicas", count))][-1:]
    if not more:
        return Finding("R4", False, message, "no larger partition fits")
    used = more[0] * n.ipus_per_replica
    hint = f"{more[0]} replicas would use {'all' if used == n.system_ipus else used}"
    return Finding("R4", False, message, hint)


def _r5(n: Numbers) -> Optional[Finding]:
    if n.ipus & (n.ipus - 1) == 0:
        return None
    if "replicas" in n.free and n.system_ipus is not None:
        hint = _use(n, "--ipus", "system_ipus", [size for size in _POWERS if size <= (n.pod_ipus or size)])
    else:
        hint = _use_replicas(n)
    message = f"{n.sizes}: a partition has a power of two"
    return Finding("R5", True, message, hint or "use powers of two for replicas, instances and hosts")


def _r6(n: Numbers) -> Optional[Finding]:
    if n.ipus_per_replica in IPUS_PER_REPLICA:
        return None
    if n.has_stages:
        hint = "leave --ipus-per-replica out: it follows from the pipeline stages"
    else:
        hint = _use_depth(n) or "use one of these, and as many replicas as make a power of two"
    return Finding("R6", True, f"{n.ipus_per_replica} IPUs per replica: GCL takes {either(IPUS_PER_REPLICA)}", hint)


def _r7(n: Numbers) -> Optional[Finding]:
    expected = usual_ilds(n.ipus)
    if n.ilds == expected or n.is_rehearsal:
        return None
    message = f"{n.ilds} IPU-Link domains for {n.ipus} IPUs: a domain holds {IPUS_PER_ILD}, so {expected} is usual"
    return Finding(
        "R7", False, message, f"leave --num-ilds out or use {expected}, unless your cluster is built otherwise"
    )


def _r8(n: Numbers) -> Optional[Finding]:
    if n.instances % n.ilds == 0:
        return None
    domains = f"{n.ilds} IPU-Link domains"
    return _uneven("R8", n, f"{n.instances} instances for {domains}: each domain needs the same number, at least one")


def _r10(n: Numbers) -> Optional[Finding]:
    limit = n.numa_nodes_per_host
    if limit is None or n.io_bound or n.is_rehearsal or n.instances_per_host <= limit:
        return None
    nodes = counted(limit, "NUMA node")
    message = f"{n.instances_per_host} instances per host for {nodes}: they will share memory controllers"
    return Finding("R10", False, message, f"at most {counted(limit * n.hosts, 'instance')} is the published advice")


def _r13(n: Numbers) -> Optional[Finding]:
    if (
        n.cores_per_host is None
        or n.instances < 1
        or n.cores_per_host // n.instances_per_host >= n.min_cores_per_instance
    ):
        return None
    cores = n.cores_per_host / n.instances_per_host
    message = (
        f"{counted(n.instances_per_host, 'instance')} on {counted(n.cores_per_host, 'core')}: {cores:.3g} each,"
        f" below the {n.min_cores_per_instance} that one needs to feed its replicas"
    )
    fewer = "" if n.instances_per_host == 1 else "fewer instances or "
    return Finding("R13", False, message, f"use {fewer}more hosts")


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
