"""From a system, its hosts and a workload's wishes to a plan, with the reason for every number."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.messages import Message, warning
from ipulaunch.configs.text import counted, either
from ipulaunch.topology.machines.hosts import Host, NumaNode
from ipulaunch.topology.machines.pods import IPUS_PER_ILD, System, usual_ilds
from ipulaunch.topology.planning import placement, rules
from ipulaunch.topology.planning.batch import make_batch
from ipulaunch.topology.planning.plan import Placement, Plan

COMPUTED = "computed"


class Request(NamedTuple):
    """The request for a plan. None means "not given": the solver decides."""

    workload: str
    system: System
    hosts: Tuple[Host, ...]
    ipus_per_replica: int = 1
    replicas: Optional[int] = None
    instances: Optional[int] = None
    ilds: Optional[int] = None
    ipus: Optional[int] = None  # a part of the system
    io_bound: bool = False
    min_cores_per_instance: int = 1
    micro_batch_size: int = 1
    accumulation: Optional[int] = None
    global_batch_size: Optional[int] = None
    micro_batches_per_turn: int = 1  # of a pipeline's schedule
    least_accumulation: int = 1
    oversubscribe: bool = False
    is_rehearsal: bool = False
    has_stages: bool = False  # of a pipeline, which the IPUs per replica follow from
    origins: Mapping[str, str] = {}  # where each value came from, by field name


class Decision(NamedTuple):
    """One number of the plan, where it came from and why."""

    name: str
    value: str
    origin: str
    why: str


class Rejected(NamedTuple):
    """A number of instances that the solver considered and rejected."""

    instances: int
    why: str


class Fact(NamedTuple):
    """Something that a plan shows about the training itself."""

    name: str
    text: str
    in_plan_only: bool = False  # not shown again when a run starts


class Solution(NamedTuple):
    """A plan with its reasons."""

    plan: Plan
    decisions: Tuple[Decision, ...] = ()
    rejected: Tuple[Rejected, ...] = ()
    messages: Tuple[Message, ...] = ()
    training: Tuple[Fact, ...] = ()


def solve(request: Request) -> Solution:
    """The plan for a request; an error with both numbers if the rules forbid it."""
    _refuse_nothing(request)
    replicas, why_replicas = _replicas(request)
    ilds, why_ilds = _ilds(request, replicas)
    rules.refuse(_numbers(request, replicas, request.instances or 1, ilds), rules.SIZES)
    default, why_default, rejected = _default_instances(request, replicas, ilds)
    instances = request.instances if request.instances is not None else default
    if instances is None:  # the default policy found none, and says why
        raise PlanError(why_default, hint=_no_instances_hint(replicas, ilds))
    if request.instances is None:
        why_instances = why_default
    elif default is None or default == instances:
        why_instances = "also the default" if default else "the default policy finds none"
    else:
        why_instances = f"the default would be {default}: {why_default}"
        rejected.append(Rejected(default, f"the default, and {instances} are asked for"))
    rejected = sorted((each for each in rejected if each.instances != instances), key=lambda each: -each.instances)

    warnings = rules.refuse(_numbers(request, replicas, instances, ilds))
    warnings += _host_warnings(request)
    batch, rounding = make_batch(
        request.micro_batch_size,
        replicas,
        request.accumulation,
        request.global_batch_size,
        request.micro_batches_per_turn,
        request.least_accumulation,
    )
    placements, oversubscribed, crossing = _place(request, instances, replicas, ilds)
    plan = Plan(
        workload=request.workload,
        system=request.system.name,
        replicas=replicas,
        ipus_per_replica=request.ipus_per_replica,
        ilds=ilds,
        batch=batch,
        placements=placements,
        oversubscribed=oversubscribed,
    )
    why_batch = f"{batch.micro_size} x {counted(replicas, 'replica')} x accumulation {batch.accumulation}"
    why_ipus = f"{counted(replicas, 'replica')} x {counted(request.ipus_per_replica, 'IPU')}"
    decisions = (
        _decided(request, "ipus", plan.ipus, why_ipus),
        _decided(request, "ipus_per_replica", request.ipus_per_replica, "IPUs of one copy of the model"),
        _decided(request, "replicas", replicas, why_replicas),
        _decided(request, "ilds", ilds, why_ilds),
        _decided(request, "instances", instances, why_instances),
        _decided(request, "hosts", len(request.hosts), _why_hosts(request)),
        _decided(request, "micro_batch_size", batch.micro_size, "samples of one replica in one step"),
        _decided(request, "accumulation", batch.accumulation, "micro-batches per replica and weight update"),
        _decided(request, "global_batch_size", batch.global_size, why_batch),
    )
    return Solution(plan, decisions, tuple(rejected), tuple(map(warning, warnings + rounding + crossing)))


def _refuse_nothing(request: Request) -> None:
    counts = {
        "IPUs": request.system.ipus if request.ipus is None else request.ipus,
        "replicas": request.replicas,
        "instances": request.instances,
        "IPU-Link domains": request.ilds,
    }
    for name, count in counts.items():
        if count is not None and count < 1:
            raise PlanError(f"{count} {name}: a job needs at least 1", hint="leave the option out to have it computed")


def _decided(request: Request, name: str, value: int, why: str) -> Decision:
    return Decision(name, str(value), request.origins.get(name, COMPUTED), why)


def _numbers(request: Request, replicas: int, instances: int, ilds: int) -> rules.Numbers:
    given = {"replicas": request.replicas, "instances": request.instances, "ilds": request.ilds}
    # A system that is made to fit the replicas does not limit them.
    is_made = request.origins.get("ipus") == COMPUTED
    return rules.Numbers(
        replicas=replicas,
        instances=instances,
        ipus_per_replica=request.ipus_per_replica,
        hosts=len(request.hosts),
        ilds=ilds,
        system_ipus=None if is_made else request.ipus or request.system.ipus,
        pod_ipus=None if request.system.max_hosts is None else request.system.ipus,
        numa_nodes_per_host=min(len(host.nodes) for host in request.hosts),
        cores_per_host=None if request.oversubscribe else min(host.cores for host in request.hosts),
        min_cores_per_instance=request.min_cores_per_instance,
        io_bound=request.io_bound,
        is_rehearsal=request.is_rehearsal,
        has_stages=request.has_stages,
        free=tuple(name for name, value in given.items() if value is None),
    )


def _replicas(request: Request) -> Tuple[int, str]:
    ipus, depth = request.ipus or request.system.ipus, request.ipus_per_replica
    if ipus > request.system.ipus:
        raise PlanError(
            f"--ipus {ipus} is more than the {request.system.ipus} IPUs of {request.system.name}",
            hint=f"use --ipus {request.system.ipus} or fewer, or a larger POD",
        )
    if request.replicas is not None:
        return request.replicas, f"{request.replicas * depth} of {counted(ipus, 'IPU')}"
    return max(1, ipus // max(1, depth)), f"{counted(ipus, 'IPU')} / {depth} per replica"


def _ilds(request: Request, replicas: int) -> Tuple[int, str]:
    if request.ilds is not None:
        return request.ilds, "IPU-Link domains"
    if request.is_rehearsal:
        return 1, "a rehearsal on CPUs has no IPU-Link domains"
    ipus = replicas * request.ipus_per_replica
    return usual_ilds(ipus), f"{counted(ipus, 'IPU')}, at most {IPUS_PER_ILD} in a domain"


def _default_instances(request: Request, replicas: int, ilds: int) -> Tuple[Optional[int], str, List[Rejected]]:
    """As many instances as the policy allows, the reason, and the rejected counts."""
    hosts = len(request.hosts)
    cores = min(host.cores for host in request.hosts)
    nodes = min(len(host.nodes) for host in request.hosts)
    if request.io_bound:
        limit = max(1, cores // request.min_cores_per_instance)
        policy = f"IO-bound: an instance per replica while each keeps {counted(request.min_cores_per_instance, 'core')}"
    else:
        limit = nodes
        policy = "an instance per NUMA node (R10)"
    chosen: Optional[int] = None
    rejected: List[Rejected] = []
    for count in reversed(rules.divisors(replicas)):
        if count % hosts:
            rejected.append(Rejected(count, f"not a multiple of {hosts} hosts (R3)"))
        elif count % ilds:
            rejected.append(Rejected(count, f"not a multiple of {ilds} IPU-Link domains (R8)"))
        elif count // hosts > limit and count > max(hosts, ilds):
            rejected.append(Rejected(count, _too_many(request, count // hosts, cores, nodes)))
        elif chosen is None:
            chosen = count
        else:
            rejected.append(Rejected(count, f"fewer than the {chosen} that fit"))
    if chosen is None:
        why = (
            f"{counted(replicas, 'replica')} cannot be divided evenly among {counted(hosts, 'host')} and"
            f" {counted(ilds, 'IPU-Link domain')} (R3, R8)"
        )
        return None, why, rejected
    reason = (
        f"{policy}; {counted(replicas, 'replica')} over {counted(hosts, 'host')} of {counted(nodes, 'NUMA node')},"
        f" {counted(cores, 'core')}"
    )
    return chosen, reason, rejected


def _too_many(request: Request, per_host: int, cores: int, nodes: int) -> str:
    if request.io_bound:
        return f"{cores / per_host:.3g} cores each, below {request.min_cores_per_instance} (R13)"
    return f"{per_host} per host for {counted(nodes, 'NUMA node')} (R10)"


def _no_instances_hint(replicas: int, ilds: int) -> str:
    legal = [count for count in rules.divisors(replicas) if count % ilds == 0]
    return f"use {either(legal[:4])} hosts, or other replicas" if legal else f"use at least {ilds} replicas"


def _why_hosts(request: Request) -> str:
    sources = sorted({host.source for host in request.hosts})
    layouts = sorted({f"{counted(len(h.nodes), 'NUMA node')}, {counted(h.cores, 'core')}" for h in request.hosts})
    return f"{' / '.join(layouts)} ({', '.join(sources)})"


def _host_warnings(request: Request) -> List[str]:
    limit, hosts = request.system.max_hosts, len(request.hosts)
    if limit is None or hosts <= limit or request.is_rehearsal:
        return []
    return [f"{hosts} hosts for {request.system.name}, whose build guide has at most {limit}"]


def _place(request: Request, instances: int, replicas: int, ilds: int) -> Tuple[Tuple[Placement, ...], bool, List[str]]:
    per_host, local = instances // len(request.hosts), replicas // instances
    short = [host for host in request.hosts if host.cores < per_host]
    if short and not request.oversubscribe:
        fewer = _fitting(request, replicas, ilds)
        raise PlanError(
            f"{per_host} instances on {short[0].name}, which has {counted(short[0].cores, 'core')} to use",
            hint=(f"use --num-instances {fewer[-1]}, or " if fewer else "use ") + "--oversubscribe to share cores",
        )
    placements: List[Placement] = []
    shares_by_layout: Dict[Tuple[NumaNode, ...], List[placement.Share]] = {}
    for host in request.hosts:
        if host.nodes not in shares_by_layout:
            divide = placement.oversubscribe if host.cores < per_host else placement.divide
            shares_by_layout[host.nodes] = divide(host.nodes, per_host)
        for index, share in enumerate(shares_by_layout[host.nodes]):
            number = len(placements)
            placements.append(
                Placement(number, host.name, index, share.numa_nodes, share.cores, share.cpus, number * local)
            )
    warnings = []
    nodes = min(len(host.nodes) for host in request.hosts)
    if not short and per_host % nodes and nodes % per_host:
        warnings.append(f"{per_host} instances on {nodes} NUMA nodes: some reach memory of another node")
    return tuple(placements), bool(short), warnings


def _fitting(request: Request, replicas: int, ilds: int) -> List[int]:
    cores = min(host.cores for host in request.hosts)
    legal = rules.legal_instances(_numbers(request, replicas, 1, ilds))
    return [count for count in legal if count // len(request.hosts) <= cores]
