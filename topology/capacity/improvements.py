"""What would help a chain whose hosts are too slow: each change with the chain computed again."""

from __future__ import annotations

import dataclasses
from typing import Callable, List, NamedTuple, Optional, Tuple

from ipulaunch.configs.settings.images import ImageData
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.capacity.chain import ASSUMED, BUSY, STARVE, Chain, Inputs, Quantity, chain_of
from ipulaunch.topology.capacity.forms import (
    GZIP,
    IMAGES,
    ISAL_BYTES_PER_CORE,
    JPEG,
    PIXELS,
    RECORD_BYTES_PER_CORE,
    RECORDS,
    SMALL_JPEG,
    UNPACKED_COMMAND,
    VOLUMES,
    ZLIB_BYTES_PER_CORE,
)
from ipulaunch.topology.capacity.ranges import Range, exactly
from ipulaunch.topology.capacity.tensors import sent_bytes
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.planning.rules import divisors

_LEAST_GAIN = 1.01  # times the samples/s
_NVME = Quantity(Range(3e9, 7e9), ASSUMED, "a local NVMe disk, on which the whole set lies")

Changed = Tuple[str, Inputs]  # what to do, and the inputs that it leads to
Step = Callable[[Inputs], List[Changed]]


class Limits(NamedTuple):
    """How far a job and its machines can be changed."""

    most_hosts: int
    uses_isal: Optional[bool] = None  # whether isal unpacks gzip; None: nobody has looked


class Improvement(NamedTuple):
    """A change of the command, the set or the machines, and the chain that it leads to."""

    change: str
    chain: Chain


def improvements(settings: WorkloadSettings, inputs: Inputs, limits: Limits) -> List[Improvement]:
    """The changes that help, cheapest first; the last one is several together, if none alone is enough."""
    steps: List[Step] = [
        lambda inputs: _smaller_transfer(settings, inputs),
        lambda inputs: _faster_gzip(inputs, limits.uses_isal),
        _staged,
        _prepared,
        _more_instances,
        lambda inputs: _more_hosts(inputs, limits.most_hosts),
    ]
    found = [Improvement(change, chain_of(changed)) for step in steps for change, changed in _helping(step, inputs)]
    if any(each.chain.verdict == BUSY for each in found):
        return found
    together, names = _together(steps, inputs)
    return [*found, Improvement("; ".join(names), chain_of(together))] if len(names) > 1 else found


def _together(steps: List[Step], inputs: Inputs) -> Tuple[Inputs, List[str]]:
    """One change of each step that helps, until the IPUs are kept busy."""
    names: List[str] = []
    left = list(steps)
    while left and chain_of(inputs).verdict != BUSY:
        found = [(step, options) for step in left for options in [_helping(step, inputs)] if options]
        if not found:
            break
        step, options = found[0]
        left.remove(step)
        change, inputs = max(options, key=lambda option: _middle(option[1]))
        names.append(change)
    return inputs, names


def _helping(step: Step, inputs: Inputs) -> List[Changed]:
    """The changes of a step that make the chain faster: for sure, where it is too slow for sure."""
    before = chain_of(inputs)
    if before.flow is None:
        return []
    is_better = _high if before.verdict == STARVE else _middle
    return [option for option in step(inputs) if is_better(option[1]) > _LEAST_GAIN * is_better(inputs)]


def _middle(inputs: Inputs) -> float:
    flow = chain_of(inputs).flow
    return flow.middle if flow is not None else 0.0


def _high(inputs: Inputs) -> float:
    flow = chain_of(inputs).flow
    return flow.high if flow is not None else 0.0


def _smaller_transfer(settings: WorkloadSettings, inputs: Inputs) -> List[Changed]:
    """Samples that leave the host as they are stored."""
    data = settings.data
    if data.host_preprocess:
        option, data = "--no-host-preprocess", dataclasses.replace(data, host_preprocess=False)
    elif isinstance(data, ImageData) and not data.sends_bytes:
        option, data = "--eight-bit-transfer", dataclasses.replace(data, eight_bit_transfer=True)
    else:
        return []
    size = sent_bytes(network_of(dataclasses.replace(settings, data=data)))
    return [(option, inputs._replace(sent_bytes=size))] if inputs.sent_bytes else []


def _faster_gzip(inputs: Inputs, uses_isal: Optional[bool]) -> List[Changed]:
    if inputs.form != GZIP or uses_isal or inputs.prepare is None:
        return []
    ratio = ISAL_BYTES_PER_CORE / ZLIB_BYTES_PER_CORE
    before = inputs.prepare.value
    # What nobody has looked at lies between the two already.
    rate = exactly(before.high) if uses_isal is None else before.times(ratio)
    faster = Quantity(rate, ASSUMED, f"isal unpacks {ratio:.0f} times as fast as zlib")
    return [("pip install 'ipulaunch[gzip]' on every host", inputs._replace(prepare=faster))]


def _staged(inputs: Inputs) -> List[Changed]:
    return [] if inputs.disk is None else [("--stage-dir DIR on a local NVMe disk", inputs._replace(disk=_NVME))]


def _prepared(inputs: Inputs) -> List[Changed]:
    """The same set in another form."""
    stored, speed = inputs.stored, inputs.prepare
    if stored is None or speed is None:
        return []
    if inputs.form == JPEG:
        return [
            (
                form.command,
                inputs._replace(
                    form=name,
                    preparation=form.preparation,
                    stored=stored.times(form.size, "beside the published JPEGs"),
                    prepare=speed.times(form.speed, "beside the published JPEGs"),
                ),
            )
            for name, form in ((name, IMAGES[name]) for name in (SMALL_JPEG, PIXELS))
        ]
    if inputs.form != GZIP:
        return []
    unpacked = stored.times(exactly(1 / VOLUMES[GZIP].size.low), "unpacked")
    rate = Quantity(RECORD_BYTES_PER_CORE.times(1 / unpacked.value.high), ASSUMED, "nothing to unpack")
    changed = inputs._replace(form=RECORDS, preparation=VOLUMES[RECORDS].preparation, stored=unpacked, prepare=rate)
    return [(UNPACKED_COMMAND, changed)]


def _more_instances(inputs: Inputs) -> List[Changed]:
    """As many as it takes to use all cores, where an instance prepares fewer samples at a time than it has cores."""
    cores = inputs.instances * inputs.cores_per_instance
    for count in divisors(inputs.replicas):
        each = cores // count
        if count > inputs.instances and count % inputs.hosts == 0 and 0 < each <= inputs.busy_cores_per_instance:
            changed = inputs._replace(instances=count, cores_per_instance=each, busy_cores_per_instance=each)
            return [(f"--num-instances {count}", changed)]
    return []


def _more_hosts(inputs: Inputs, most: int) -> List[Changed]:
    """Twice as many hosts, or more, until the IPUs are kept busy."""
    found: List[Changed] = []
    times = 2
    while inputs.hosts * times <= most and inputs.link is not None:
        instances = min(max(inputs.instances, inputs.hosts * times), inputs.replicas)
        instances = inputs.instances * times if inputs.instances * times <= inputs.replicas else instances
        if instances % (inputs.hosts * times):
            break
        cores = inputs.cores_per_instance * inputs.instances * times // instances
        is_limited = inputs.busy_cores_per_instance < inputs.cores_per_instance
        changed = inputs._replace(
            hosts=inputs.hosts * times,
            instances=instances,
            cores_per_instance=cores,
            busy_cores_per_instance=min(cores, inputs.busy_cores_per_instance) if is_limited else cores,
        )
        found = [(f"{changed.hosts} hosts instead of {inputs.hosts} (--hosts)", changed)]
        if chain_of(changed).verdict == BUSY:
            break
        times *= 2
    return found
