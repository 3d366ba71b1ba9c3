"""IPU-hours and kilowatt-hours, estimated from the published power of the POD's machines, without its hosts."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

from ipulaunch.topology.capacity.ranges import Range, exactly
from ipulaunch.topology.machines.published import BOW_MACHINE_KW, IPUS_PER_MACHINE, MACHINE_KW
from ipulaunch.topology.planning.plan import Plan


class Energy(NamedTuple):
    """What some hours of a POD come to."""

    ipu_hours: Range
    kwh: Range
    source: str  # of the power

    @property
    def text(self) -> str:
        """The estimate in a phrase."""
        return f"{_number(self.ipu_hours)} IPU-hours, about {_number(self.kwh)} kWh (estimate: {self.source})"

    def as_data(self) -> Dict[str, Any]:
        """The estimate as plain data."""
        parts = {"ipu_hours": self.ipu_hours, "kwh": self.kwh}
        found: Dict[str, Any] = {name: {"low": each.low, "high": each.high} for name, each in parts.items()}
        return {**found, "source": self.source, "text": self.text, "is_estimate": True}


def energy_of(system: str, ipus: int, hours: Range) -> Energy:
    """The energy of so many IPUs of a system; a machine is used whole, and what it takes when idle counts."""
    is_bow = system.startswith("bow-")
    kw, machine = (BOW_MACHINE_KW, "Bow-2000, average") if is_bow else (MACHINE_KW, "IPU-M2000, at most")
    machines = -(-ipus // IPUS_PER_MACHINE)
    source = f"{machines} x {kw:g} kW ({machine}), without hosts"
    return Energy(hours.times(ipus), hours.times(machines * kw), source)


def energy_in(seconds: float, plan: Plan) -> Energy:
    """The energy of a plan's IPUs in this time."""
    return energy_of(plan.system, plan.ipus, exactly(seconds / 3600))


def _number(value: Range) -> str:
    low, high = (f"{each:,.0f}" if each >= 100 else f"{each:.3g}" for each in (value.low, value.high))
    return low if low == high else f"{low} to {high}"
