"""What is known about a job before anybody measures: published numbers, and assumptions with their reasons."""

from __future__ import annotations

import math
from typing import Optional

from ipulaunch.configs.settings.images import ImageData
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.capacity.chain import ASSUMED, PUBLISHED, Inputs, Quantity
from ipulaunch.topology.capacity.forms import GENERATE, IMAGES, READ, VOLUMES, forms_of, known_speed, stored_bytes
from ipulaunch.topology.capacity.ranges import Range, exactly
from ipulaunch.topology.capacity.tensors import sent_bytes
from ipulaunch.topology.machines.published import (
    BOW_RESNET50_IMAGES_PER_S,
    HOST_LINK_GBIT,
    POD16_RESNET50_IMAGES_PER_S,
    SOCKET_BYTES_PER_S,
)
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.planning.plan import Plan

_PUBLISHED_SIDE = 224
_DISK = Quantity(
    Range(1e9, HOST_LINK_GBIT / 8 * 1e9),
    ASSUMED,
    "from one local NVMe disk to a file system that fills 100 GbE; give --disk-rate",
)
# Each copy reads and writes; half of the bandwidth of two sockets is what one gets at least.
_MEMORY = Quantity(
    Range(0.5, 0.8).times(2 * SOCKET_BYTES_PER_S / 2),
    ASSUMED,
    "50 to 80 % of what two EPYC 7742 have (410 GB/s)",
)
_COPIES = Quantity(Range(2, 4), ASSUMED, "into the micro-batch, to the infeed, and up to two more")
_LINK = Quantity(exactly(HOST_LINK_GBIT / 8 * 1e9), PUBLISHED, "one port of 100 GbE for each host (build guides)")


def known_inputs(
    workload: str, settings: WorkloadSettings, plan: Plan, *, is_rehearsal: bool, form: str = ""
) -> Inputs:
    """The inputs of the chain, without any measurement; the form of the set is the usual one if none is given."""
    data = settings.data
    forms = forms_of(settings, workload)
    form = form or (forms[0] if forms else "")
    is_made_on_device = data.synthetic_data == "ipu"
    volume = math.prod(settings.shape) * 2
    cores = min(placement.cores for placement in plan.placements)
    parallel = data.pipeline_num_parallel if isinstance(data, ImageData) else None
    return Inputs(
        hosts=len(plan.hosts),
        instances=plan.instances,
        replicas=plan.replicas,
        ipus=plan.ipus,
        samples=data.n_train,
        epochs=settings.training.num_epochs,
        preparation="" if is_made_on_device else _preparation(settings, form),
        form=form,
        stored=stored_bytes(form, volume),
        disk=_DISK if form else None,
        prepare=known_speed(form, volume),
        cores_per_instance=cores,
        busy_cores_per_instance=min(cores, parallel or cores),
        copies=_COPIES,
        memory=None if is_rehearsal else _MEMORY,
        sent_bytes=0 if is_made_on_device else sent_bytes(network_of(settings)),
        link=None if is_rehearsal else _LINK,
        device=None if is_rehearsal else published_rate(settings, plan),
        is_rehearsal=is_rehearsal,
        is_synthetic=data.is_synthetic,
    )


def _preparation(settings: WorkloadSettings, form: str) -> str:
    if settings.data.is_synthetic:
        return GENERATE
    return {**IMAGES, **VOLUMES}[form].preparation if form else READ


def published_rate(settings: WorkloadSettings, plan: Plan) -> Optional[Quantity]:
    """The samples/s of an IPU, where one is published for the network: for ResNet-50, in training and in 16 bits."""
    training, model = settings.training, settings.model.name
    is_published = model == "resnet50" and settings.shape[0] == _PUBLISHED_SIDE
    if not is_published or not training.training or training.precision != "16.16":
        return None
    rates = {ipus: rate / ipus for ipus, rate in BOW_RESNET50_IMAGES_PER_S.items()}
    smaller = max((ipus for ipus in rates if ipus <= plan.ipus), default=min(rates))
    larger = min((ipus for ipus in rates if ipus >= plan.ipus), default=max(rates))
    found = Range(rates[larger], rates[smaller])
    names = f"Bow-POD{smaller}" if smaller == larger else f"Bow-POD{smaller} and {larger}"
    source = f"ResNet-50 on {names}: Graphcore's results, TensorFlow 1"
    if plan.system.startswith("bow-"):
        return Quantity(found, PUBLISHED, source)
    mk2 = POD16_RESNET50_IMAGES_PER_S / 16 / rates[16]
    return Quantity(Range(found.low * mk2, found.high), PUBLISHED, f"{source}; at least {mk2:.0%} of it, by MLPerf")
