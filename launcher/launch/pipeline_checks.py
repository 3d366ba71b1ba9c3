"""How a model is divided over the IPUs of a plan: refusals, and how well its pipeline works."""

from __future__ import annotations

from typing import List, Tuple

from ipulaunch.configs.errors import PlanError, SettingsError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.text import counted
from ipulaunch.topology import Plan
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.splits import balance, efficiency, stage_costs
from ipulaunch.topology.planning import refusals
from ipulaunch.topology.planning.solver import Fact


def check_validation(settings: WorkloadSettings) -> None:
    """Refuse to validate a pipelined model without its pipeline."""
    if settings.training.validation and not settings.pipeline.validation_model:
        raise SettingsError(
            "a pipelined model validates on its pipeline stages: replicas and IPUs per replica never change in a run",
            hint="leave --no-pipeline-validation-model out, or use --no-validation",
        )


def check_replicas(settings: WorkloadSettings, plan: Plan) -> None:
    """Refuse replicas and IPUs per replica that the settings cannot use."""
    shared = settings.device.distributed_norm_replicas
    if plan.replicas % shared:
        raise PlanError(
            f"batch statistics over {shared} replicas each, and the plan has {counted(plan.replicas, 'replica')}",
            hint="use device.distributed_norm_replicas that divide the replicas",
        )
    if plan.ipus_per_replica > 1 and not settings.pipeline.splits:
        raise SettingsError(
            f"{plan.ipus_per_replica} IPUs per replica, and the model is not divided into pipeline stages",
            hint=f"give --pipeline-splits; plan {plan.workload} --suggest-splits {plan.ipus_per_replica} finds some",
        )


def pipeline_facts(settings: WorkloadSettings, plan: Plan) -> Tuple[List[Fact], List[str], List[str]]:
    """The facts, warnings and notes about a pipeline; nothing for a model without one."""
    pipeline = settings.pipeline
    if not pipeline.splits:
        return [], [], []
    steps, stages = plan.batch.accumulation, pipeline.stages
    works = efficiency(steps, stages, pipeline.schedule, pipeline.ipus)
    even = balance(stage_costs(network_of(settings), pipeline.splits, plan.batch.micro_size))
    if pipeline.schedule == "Sequential" and pipeline.ipus == 1:
        why = "all on one IPU"
    elif pipeline.schedule == "Sequential":
        why = f"one of {pipeline.ipus} IPUs works at a time"
    else:
        why = f"{steps} / ({steps} + {stages} - 1)"
    line = f"{stages} stages, {pipeline.schedule}: efficiency {works:.0%} = {why}; balance {even:.0%}"
    warnings, notes = [], []
    if pipeline.schedule != "Sequential" and steps < 2 * stages:
        warnings.append(
            f"accumulation {steps} is short for {stages} stages: filling and draining take {1 - works:.0%} of the"
            f" time; use a multiple of {2 * stages}"
        )
    if settings.training.validation and not pipeline.validation_model:
        notes.append("validation runs on the same pipeline stages (--pipeline-validation-model is implied)")
    return [Fact("pipeline", line)], warnings, notes


def refused_by_ipus(settings: WorkloadSettings, plan: Plan) -> List[str]:
    """What a rehearsal runs and IPUs would not."""
    try:
        refusals.refuse_schedule(settings, plan.batch.accumulation)
    except SettingsError as error:
        return [f"IPUs refuse this training: {error.message}; {error.hint}"]
    return []
