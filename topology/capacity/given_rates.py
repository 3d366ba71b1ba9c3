"""Rates that a user gives, in place of measured, published and assumed ones."""

from __future__ import annotations

from typing import NamedTuple, Optional

from ipulaunch.configs.errors import UsageError
from ipulaunch.topology.capacity.chain import GIVEN, Inputs, Quantity
from ipulaunch.topology.capacity.ranges import exactly


class GivenRates(NamedTuple):
    """The options of rates. None: not given."""

    ipu_rate: Optional[float] = None  # samples/s of an IPU
    decode_rate: Optional[float] = None  # samples/s of a core
    disk_rate: Optional[float] = None  # GB/s of a host
    link: Optional[float] = None  # Gbit/s of a host


def with_given(inputs: Inputs, rates: GivenRates) -> Inputs:
    """The inputs with these rates; refuses rates of links that the job does not have."""
    lacks = {
        "--disk-rate": rates.disk_rate is not None and inputs.disk is None,
        "--decode-rate": rates.decode_rate is not None and not inputs.preparation,
        "--link": rates.link is not None and (inputs.link is None or not inputs.sent_bytes),
    }
    for option in (option for option, is_lacking in lacks.items() if is_lacking):
        why = "a rehearsal has no IPUs" if inputs.is_rehearsal and option == "--link" else "its samples do not go there"
        raise UsageError(f"{option} has no effect on this job: {why}", hint="leave it out")
    if rates.ipu_rate is not None:
        inputs = inputs._replace(device=_given(rates.ipu_rate, "--ipu-rate"))
    if rates.decode_rate is not None:
        inputs = inputs._replace(prepare=_given(rates.decode_rate, "--decode-rate"))
    if rates.disk_rate is not None:
        inputs = inputs._replace(disk=_given(rates.disk_rate * 1e9, "--disk-rate"))
    if rates.link is not None:
        inputs = inputs._replace(link=_given(rates.link / 8 * 1e9, "--link"))
    return inputs


def _given(value: float, option: str) -> Quantity:
    return Quantity(exactly(value), GIVEN, option)
