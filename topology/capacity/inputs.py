"""The inputs of the chain: what is known, then what was measured, then what the user gives."""

from __future__ import annotations

from typing import Any, Mapping

from ipulaunch.configs.runs.job import Job
from ipulaunch.topology.capacity.chain import Inputs
from ipulaunch.topology.capacity.given_rates import GivenRates, with_given
from ipulaunch.topology.capacity.known_rates import known_inputs
from ipulaunch.topology.capacity.measured_rates import with_measured
from ipulaunch.topology.planning.plan import Plan


def inputs_of(
    job: Job, plan: Plan, form: str, measured: Mapping[str, Any], rates: GivenRates, *, is_here: bool
) -> Inputs:
    """The inputs for a job; `is_here` says whether the hosts of the plan are machines like this one."""
    form = measured.get("form", form)
    known = known_inputs(job.workload, job.settings, plan, is_rehearsal=job.is_rehearsal, form=form)
    return with_given(with_measured(known, measured, is_here=is_here), rates)
