"""What can be told of a workload's settings before anything starts: refusals, warnings, and what a plan shows."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import PlanError, SettingsError
from ipulaunch.configs.settings.data import Data
from ipulaunch.configs.settings.estimators import KERAS, check_accumulation
from ipulaunch.configs.settings.schema import leaves, plain_value, value_of
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.configs.text import counted
from ipulaunch.topology import Plan
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.host_events import HostEvents, events_of
from ipulaunch.topology.networks.splits import balance, efficiency, stage_costs
from ipulaunch.topology.planning import ipu_refusals

# Settings that only some choices of another one use.
_USED_BY = {
    "optimizer.rho": ("optimizer.name", ("rmsprop",)),
    "optimizer.rho_exponent": ("optimizer.name", ("rmsprop",)),
    "optimizer.epsilon": ("optimizer.name", ("adadelta", "adam", "lars", "rmsprop")),
    "optimizer.eeta": ("optimizer.name", ("lars",)),
    "schedule.epochs_to_total_decay": ("schedule.name", ("cosine", "polynomial")),
    "schedule.end_learning_rate_ratio": ("schedule.name", ("polynomial",)),
    "schedule.power": ("schedule.name", ("polynomial",)),
    "schedule.boundaries": ("schedule.name", ("stepped",)),
    "schedule.factors": ("schedule.name", ("stepped",)),
    "model.norm_channels_per_group": ("model.norm_layer", ("group_norm",)),
    "model.norm_groups": ("model.norm_layer", ("group_norm",)),
    "model.norm_momentum": ("model.norm_layer", ("batch_norm",)),
}
# Settings that mean nothing while another one is not set, is off or is 0.
_USED_IF_SET = {
    "data.shuffle_block": "data.shuffle",
    "data.shuffle_window": "data.shuffle",
    "launch.validation_num_replicas": "training.validation",
    "logging.mlperf": "training.training",
    "logging.sweep": "training.validation",
    "logging.wandb_run_name": "logging.wandb",
    "logging.wandb_tags": "logging.wandb",
    "pipeline.schedule": "pipeline.splits",
    "pipeline.validation_model": "pipeline.splits",
    "schedule.warmup_mode": "schedule.warmup_epochs",
    "training.target_accuracy": "training.validation",
    "training.validation_micro_batch_size": "training.validation",
}


class Finding(NamedTuple):
    """A line of the plan about the training itself."""

    name: str
    text: str
    in_plan_only: bool = False  # not told again where a run starts


class Findings(NamedTuple):
    """What was found."""

    lines: Tuple[Finding, ...] = ()
    warnings: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()


def examine(resolved: Resolved, plan: Plan, backend: str) -> Findings:
    """Look at the settings of a workload under a plan; refuses what cannot work."""
    settings = resolved.settings
    settings.data.refuse_unused(resolved.workload)
    check_accumulation(settings.api, plan.batch.accumulation)
    events, warnings = events_of(settings.training, settings.data.n_train, plan.batch)
    _check_replicas(settings, plan)
    if settings.pipeline.splits and "pipeline.validation_model" in resolved.given:
        _check_validation(settings)
    if backend == "ipu":
        ipu_refusals.refuse(settings, plan.batch, plan.ipus_per_replica)
    lines, pipeline_warnings, notes = _pipeline(settings, plan)
    if backend == "cpu":
        pipeline_warnings = _refused_by_ipus(settings, plan) or pipeline_warnings
    notes += resolved.notes
    calls = _calls(events, settings.survival.stall_timeout_s if backend == "ipu" else None)
    calls = calls if settings.data.is_synthetic else f"up to {calls}"
    lines.append(Finding("host", calls if settings.training.training else "no training, only validation"))
    lines.append(Finding("data", _samples(settings.data)))
    if backend == "cpu" and (settings.pipeline.schedule != "Grouped" or settings.pipeline.device_mapping):
        notes.append("a rehearsal runs stage after stage: the schedule and the device mapping count in the plan alone")
    if backend == "cpu" and settings.training.precision != "32.32":
        notes.append(f"precision {settings.training.precision} is slow on CPUs, which compute natively in 32 bits")
    if settings.api != KERAS and settings.training.keep_checkpoints is not None:
        notes.append("an Estimator keeps only its newest checkpoints, not the one with the lowest loss")
    ipu_only = ", ".join(_ipu_only(resolved))
    if ipu_only:
        lines.append(Finding("IPU only", ipu_only, in_plan_only=True))
        if backend == "cpu":
            notes.append(f"IPU only, recorded and without effect on CPUs: {ipu_only}")
    others = [*_without_effect(resolved), *_not_as_asked(resolved, plan)]
    warnings = [*settings.warnings, *others, *pipeline_warnings, *warnings]
    return Findings(tuple(lines), tuple(warnings), tuple(notes))


def _check_validation(settings: WorkloadSettings) -> None:
    if settings.training.validation and not settings.pipeline.validation_model:
        raise SettingsError(
            "a pipelined model validates on its pipeline stages: replicas and IPUs per replica never change in a run",
            hint="leave --no-pipeline-validation-model out, or use --no-validation",
        )


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


def _check_replicas(settings: WorkloadSettings, plan: Plan) -> None:
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


def _pipeline(settings: WorkloadSettings, plan: Plan) -> Tuple[List[Finding], List[str], List[str]]:
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
    return [Finding("pipeline", line)], warnings, notes


def _refused_by_ipus(settings: WorkloadSettings, plan: Plan) -> List[str]:
    """What a rehearsal runs and IPUs would not."""
    try:
        ipu_refusals.refuse_schedule(settings, plan.batch.accumulation)
    except SettingsError as error:
        return [f"IPUs refuse this training: {error.message}; {error.hint}"]
    return []


def _without_effect(resolved: Resolved) -> List[str]:
    """Settings that were given and that others leave no use for."""
    settings, given = resolved.settings, resolved.given
    found = [
        f"{key} has no effect without {other}"
        for key, other in _USED_IF_SET.items()
        if key in given and not value_of(settings, other)
    ]
    if settings.training.ckpts_per_epoch == 0:
        keys = ("training.first_ckpt_epoch", "training.keep_checkpoints", "training.clean_dir")
        found += [f"{key} has no effect without checkpoints" for key in keys if key in given]
    if settings.schedule.name == "const" and not settings.schedule.warmup_epochs and "schedule.staircase" in given:
        found.append("schedule.staircase has no effect on a constant learning rate")
    for key in sorted(given & set(_USED_BY)):
        other, choices = _USED_BY[key]
        chosen = value_of(settings, other)
        if chosen not in choices:
            found.append(f"{key} has no effect with {other} = {chosen}: it is for {', '.join(choices)}")
    return found


def _not_as_asked(resolved: Resolved, plan: Plan) -> List[str]:
    """What was asked for and is otherwise under this plan."""
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
    if "data.pipeline_num_parallel" in given and settings.data.synthetic_data == "ipu":
        found.append("data.pipeline_num_parallel has no effect on images that the device makes")
    return found


def _ipu_only(resolved: Resolved) -> List[str]:
    """The settings that only an IPU can honour and that are not as they are by default."""
    found = []
    for leaf in leaves(type(resolved.settings)):
        value = value_of(resolved.settings, leaf.key)
        if leaf.about.ipu_only and value != leaf.default:
            found.append(f"{leaf.key} = {_shown(plain_value(value))}")
    return found


def _shown(value: object) -> str:
    """A value as YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
