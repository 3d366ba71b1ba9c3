"""What a machine has measured, in place of published and assumed numbers."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from ipulaunch.topology.capacity.chain import MEASURED, Inputs, Quantity
from ipulaunch.topology.capacity.ranges import Range, exactly

# A core of another machine, beside one of this.
_OTHER_CORE = Range(0.67, 1.5)


def with_measured(inputs: Inputs, result: Mapping[str, Any], *, is_here: bool) -> Inputs:
    """The inputs with what this machine has measured; of other hosts, only the set and the cores tell something."""
    prepare = _measured(result.get("samples_per_core_s"), "this machine, by the processor time of a sample")
    if prepare is not None and not is_here:
        prepare = prepare.times(_OTHER_CORE, "0.67 to 1.5 times what a core of this machine does, which was measured")
    stored: Optional[float] = result.get("stored_bytes")
    if stored is not None:
        inputs = inputs._replace(stored=Quantity(exactly(stored), MEASURED, "the files of the set"))
    if prepare is not None:
        inputs = inputs._replace(prepare=prepare)
    disk = _measured(result.get("disk_bytes_per_s"), "this machine, files that are not in memory")
    if is_here and disk is not None and inputs.disk is not None:
        inputs = inputs._replace(disk=disk)
    memory = _measured(result.get("memory_bytes_per_s"), "this machine, all cores copy")
    if is_here and memory is not None:
        inputs = inputs._replace(memory=memory)
    device = _measured(
        result.get("device_samples_per_s"), "this machine, all instances compute; at most by their processor time"
    )
    return inputs if device is None else inputs._replace(device=device)


def _measured(rates: Optional[Mapping[str, float]], source: str) -> Optional[Quantity]:
    return None if rates is None else Quantity(Range(rates["low"], rates["high"]), MEASURED, source)
