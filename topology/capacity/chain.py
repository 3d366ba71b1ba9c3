"""The chain that feeds IPUs: disk, unpacking or decoding, host memory, host link, IPUs; and which link is too slow.

Links work at the same time, so the slowest one limits all. In a rehearsal, samples are prepared on the cores that also
compute: there, the times of both add up.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ipulaunch.topology.capacity.ranges import Range, least

MEASURED, PUBLISHED, GIVEN, ASSUMED, UNKNOWN = "measured", "published", "given", "assumed", "not known"
BUSY, STARVE, UNCERTAIN, OPEN = "busy", "starve", "uncertain", "open"

DISK, MEMORY, LINK, IPUS, CPUS = "disk", "host memory", "host link", "IPUs", "CPUs"


class Quantity(NamedTuple):
    """A number of the model: between which limits it lies, and where it comes from."""

    value: Range
    origin: str  # MEASURED, PUBLISHED, GIVEN or ASSUMED
    source: str  # a phrase: where, which document, which option, why

    def times(self, factor: Range, source: str) -> Quantity:
        """A number that follows from this one by an assumption."""
        return Quantity(self.value.times_range(factor), ASSUMED, source)


class Inputs(NamedTuple):
    """What the chain is computed from. None: there is no such link, or nobody knows its rate."""

    hosts: int
    instances: int
    replicas: int
    ipus: int
    samples: int  # of an epoch
    epochs: int
    preparation: str  # what the cores do to a sample: "decode", "unpack" and so on; empty if nothing
    form: str  # in which the samples are stored
    stored: Optional[Quantity]  # bytes of a sample on disk
    disk: Optional[Quantity]  # bytes/s that a host reads
    prepare: Optional[Quantity]  # samples/s of a core
    cores_per_instance: int
    busy_cores_per_instance: int  # that prepare samples at the same time
    copies: Quantity  # how often a host copies a sample in its memory
    memory: Optional[Quantity]  # bytes/s that a host copies
    sent_bytes: int  # of a sample, from a host to its IPUs
    link: Optional[Quantity]  # bytes/s of a host
    device: Optional[Quantity]  # samples/s of an IPU; in a rehearsal, of the CPUs of an instance
    is_rehearsal: bool = False
    is_synthetic: bool = False


def inputs_data(inputs: Inputs) -> Dict[str, Any]:
    """The inputs as plain data."""
    return {
        name: {**dataclasses.asdict(value.value), "origin": value.origin, "source": value.source}
        if isinstance(value, Quantity)
        else value
        for name, value in inputs._asdict().items()
    }


class Link(NamedTuple):
    """One link of the chain, in samples/s; a rate that nobody knows is None."""

    name: str
    pod: Optional[Range]
    origin: str
    source: str
    hosts: int
    instances: int

    @property
    def host(self) -> Optional[Range]:
        return self.pod and self.pod.times(1 / self.hosts)

    @property
    def instance(self) -> Optional[Range]:
        return self.pod and self.pod.times(1 / self.instances)

    def as_data(self) -> Dict[str, Any]:
        """The link as plain data."""
        rates = {name: range_data(getattr(self, name)) for name in ("instance", "host", "pod")}
        return {"name": self.name, "samples_per_s": rates, "origin": self.origin, "source": self.source}


class Chain(NamedTuple):
    """All links, and what follows from them."""

    inputs: Inputs
    links: Tuple[Link, ...]

    @property
    def device(self) -> Link:
        return self.links[-1]

    @property
    def supply(self) -> Optional[Range]:
        """What the hosts deliver; None where nothing that is known limits them."""
        known = [link.pod for link in self.links[:-1] if link.pod is not None]
        return least(known) if known else None

    @property
    def flow(self) -> Optional[Range]:
        """Samples/s from one end to the other; at most that, where the rate of the device is not known."""
        known = [link.pod for link in self.links if link.pod is not None]
        if not known:
            return None
        prepare = next((link.pod for link in self.links if link.name == self.inputs.preparation), None)
        if self.inputs.is_rehearsal and prepare is not None and self.device.pod is not None:
            known.append(_in_turn(prepare, self.device.pod))
        return least(known)

    @property
    def is_upper_limit(self) -> bool:
        """Whether the flow is only what it cannot exceed."""
        return self.device.pod is None

    @property
    def bottleneck(self) -> Optional[Link]:
        """The slowest link: where ranges overlap, the one that surely limits, whatever the others do."""
        known = [(link.pod.high, -link.pod.low, place) for place, link in enumerate(self.links) if link.pod is not None]
        return self.links[min(known)[2]] if known else None

    @property
    def rivals(self) -> Tuple[Link, ...]:
        """Other links that may be slower, as their ranges overlap that of the bottleneck."""
        slowest = self.bottleneck
        if slowest is None or slowest.pod is None:
            return ()
        high = slowest.pod.high
        return tuple(link for link in self.links if link is not slowest and link.pod and link.pod.low < high)

    @property
    def verdict(self) -> str:
        """Whether the hosts keep the IPUs busy: STARVE, BUSY, UNCERTAIN where ranges overlap, OPEN where unknown."""
        supply, device = self.supply, self.device.pod
        if device is None:
            return OPEN
        if supply is None or supply.low >= device.high:
            return BUSY
        return STARVE if supply.high < device.low else UNCERTAIN

    def headroom(self, link: Link) -> Optional[Range]:
        """How many times the rate of the bottleneck a link could do."""
        slowest = self.bottleneck
        if link is slowest or link.pod is None or slowest is None or slowest.pod is None:
            return None
        return link.pod.over(slowest.pod)

    def as_data(self) -> Dict[str, Any]:
        """What follows from the chain, as plain data."""
        slowest = self.bottleneck
        return {
            "verdict": self.verdict,
            "samples_per_s": range_data(self.flow),
            "is_upper_limit": self.is_upper_limit,
            "hosts_deliver": range_data(self.supply),
            "epochs_per_hour": range_data(self.epochs_per_hour),
            "bottleneck": slowest and slowest.name,
            "perhaps_slower": [link.name for link in self.rivals],
            "links": [{**link.as_data(), "headroom": range_data(self.headroom(link))} for link in self.links],
        }

    @property
    def epochs_per_hour(self) -> Optional[Range]:
        flow = self.flow
        return flow and flow.times(3600 / self.inputs.samples)


def chain_of(inputs: Inputs) -> Chain:
    """The links, from the disk to the device; those that a job does not use are left out."""
    hosts, instances = inputs.hosts, inputs.instances
    stored = inputs.stored
    links = []

    def add(name: str, quantity: Optional[Quantity], pod: Optional[Range], source: str = "") -> None:
        origin, text = (quantity.origin, quantity.source) if quantity is not None else (UNKNOWN, source)
        links.append(Link(name, pod, origin, text, hosts, instances))

    if stored is not None:
        per_host = inputs.disk and inputs.disk.value.over(stored.value)
        add(DISK, inputs.disk, per_host and per_host.times(hosts), "give --disk-rate")
    if inputs.preparation:
        busy = instances * inputs.busy_cores_per_instance
        rate = inputs.prepare and inputs.prepare.value.times(busy)
        add(inputs.preparation, inputs.prepare, rate, "give --decode-rate")
    if inputs.memory is not None and inputs.sent_bytes:
        copied = inputs.copies.value.times(inputs.sent_bytes)
        add(MEMORY, inputs.memory, inputs.memory.value.over(copied).times(hosts))
    if inputs.link is not None and inputs.sent_bytes:
        add(LINK, inputs.link, inputs.link.value.times(hosts / inputs.sent_bytes))
    devices = instances if inputs.is_rehearsal else inputs.ipus
    rate = inputs.device and inputs.device.value.times(devices)
    add(CPUS if inputs.is_rehearsal else IPUS, inputs.device, rate, "give --ipu-rate: none is published for this")
    return Chain(inputs, tuple(links))


def _in_turn(first: Range, second: Range) -> Range:
    """The rate of two things that take turns on the same cores."""
    return Range(1 / (1 / first.low + 1 / second.low), 1 / (1 / first.high + 1 / second.high))


def range_data(value: Optional[Range]) -> Optional[Dict[str, float]]:
    """A range as plain data."""
    return None if value is None else dataclasses.asdict(value)
