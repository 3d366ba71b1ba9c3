"""Checks of a workload's settings before anything starts: refusals, messages, and facts that a plan shows."""

from __future__ import annotations

from typing import List, Optional, Tuple

from ipulaunch.configs.messages import Message, note, warning
from ipulaunch.configs.settings.data import Data
from ipulaunch.configs.settings.estimators import KERAS, check_accumulation
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.configs.text import counted
from ipulaunch.launcher.launch.pipeline_checks import check_replicas, check_validation, pipeline_facts, refused_by_ipus
from ipulaunch.launcher.launch.unused_settings import ipu_only_settings, unused_settings
from ipulaunch.topology import Plan
from ipulaunch.topology.planning import refusals
from ipulaunch.topology.planning.host_events import HostEvents, events_of
from ipulaunch.topology.planning.solver import Fact


def examine(resolved: Resolved, plan: Plan, is_rehearsal: bool) -> Tuple[List[Fact], List[Message]]:
    """The facts and messages about the settings of a workload under a plan; refuses what cannot work."""
    settings = resolved.settings
    settings.data.refuse_unused(resolved.workload)
    check_accumulation(settings.api, plan.batch.accumulation)
    events, warnings = events_of(settings.training, settings.data.n_train, plan.batch)
    check_replicas(settings, plan)
    if settings.pipeline.splits and "pipeline.validation_model" in resolved.given:
        check_validation(settings)
    if not is_rehearsal:
        refusals.refuse_on_ipus(settings, plan.batch, plan.ipus_per_replica)
    facts, pipeline_warnings, notes = pipeline_facts(settings, plan)
    if is_rehearsal:
        pipeline_warnings = refused_by_ipus(settings, plan) or pipeline_warnings
    notes += resolved.notes
    calls = _calls(events, settings.survival.stall_timeout_s if not is_rehearsal else None)
    calls = calls if settings.data.is_synthetic else f"up to {calls}"
    facts.append(Fact("host", calls if settings.training.training else "no training, only validation"))
    facts.append(Fact("data", _samples(settings.data)))
    if is_rehearsal and (settings.pipeline.schedule != "Grouped" or settings.pipeline.device_mapping):
        notes.append("a rehearsal runs stage after stage: the schedule and the device mapping count in the plan alone")
    if is_rehearsal and settings.training.precision != "32.32":
        notes.append(
            f"precision {settings.training.precision} is emulated on CPUs: convolutions and dense layers compute in 32"
            " bits, and what they store is rounded to 16, gradients too"
        )
    if settings.api != KERAS and settings.training.keep_checkpoints is not None:
        notes.append("an Estimator keeps only its newest checkpoints, not the one with the lowest loss")
    ipu_only = ", ".join(ipu_only_settings(resolved))
    if ipu_only:
        facts.append(Fact("IPU only", ipu_only, in_plan_only=True))
        if is_rehearsal:
            notes.append(f"IPU only, recorded and without effect on CPUs: {ipu_only}")
    others = [*unused_settings(resolved), *_not_as_asked(resolved, plan)]
    if settings.data.has_images:
        from ipulaunch.topology.networks.images import few_values

        others += few_values(settings)
    warnings = [*settings.warnings, *others, *pipeline_warnings, *warnings]
    return facts, [*map(note, notes), *map(warning, warnings)]


def _samples(data: Data) -> str:
    """How many samples, and where they come from."""
    found = f"{counted(data.n_train, 'sample')}, and {data.n_valid} for validation"
    if data.is_synthetic:
        return f"{found}, synthetic"
    return f"up to {found}, from {data.directory or f'{data.option}, which is not given'}"


def _calls(events: HostEvents, most_s: Optional[float]) -> str:
    """The device calls. An IPU tells nothing during one, so that a long one cannot be told from one that hangs."""
    updates, calls = counted(events.total_updates, "weight update"), counted(events.calls, "device call")
    limit = "" if most_s is None else f", each of which has {most_s:g} s (--stall-timeout)"
    return f"{updates} in {calls} of {events.updates_per_call}{limit}"


def _not_as_asked(resolved: Resolved, plan: Plan) -> List[str]:
    """A sentence for each setting that this plan does not follow."""
    settings, given = resolved.settings, resolved.given
    found = []
    validating = settings.launch.validation_num_replicas
    if settings.training.training and settings.training.validation and validating not in (None, plan.replicas):
        found.append(
            f"--validation-num-replicas is {validating}, and validation uses the {counted(plan.replicas, 'replica')} of"
            " the training: a launch has one number of them"
        )
    if settings.training.ckpt_all_instances and plan.instances == 1:
        found.append("--ckpt-all-instances has no effect: there is only one instance")
    if settings.device.accelerator_side_reduction and (plan.replicas == 1 or settings.pipeline.splits):
        why = "there is only one replica" if plan.replicas == 1 else "a pipeline is reduced once in a device call"
        found.append(f"--accelerator-side-reduction has no effect: {why}")
    data = settings.data
    if data.is_synthetic and data.synthetic_data is None and not resolved.rehearsal:
        found.append(f"the samples are synthetic: give {data.option}, or --synthetic-data cpu if that is meant")
    if "data.pipeline_num_parallel" in given and settings.data.synthetic_data == "ipu":
        found.append("data.pipeline_num_parallel has no effect on images that the device makes")
    return found
