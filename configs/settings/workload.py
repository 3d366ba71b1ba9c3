"""What the settings of every workload share, and what must fit together in them."""

from __future__ import annotations

from typing import List, Optional, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.data import Data
from ipulaunch.configs.settings.device import Device
from ipulaunch.configs.settings.estimators import KERAS, EstimatorRun, check_api
from ipulaunch.configs.settings.optimization import Optimizer, Schedule, check_automatic_scaling
from ipulaunch.configs.settings.schema import Settings, section, setting
from ipulaunch.configs.settings.sections import Launch, Pipeline, Survival, Training


class Logging(Settings):
    """Weights & Biases, MLPerf's time to train, and what sweeps of hyperparameters compare."""

    mlperf: bool = setting(
        False,
        "load the compiled program before the clock of the training starts, as MLPerf measures time to train",
        flag="--mlperf-logging/--no-mlperf-logging",
    )
    sweep: bool = setting(
        False,
        "compute what sweeps of hyperparameters compare: the epoch that reaches the target, and an optimization metric",
        flag="--sweep/--no-sweep",
    )
    wandb: bool = setting(False, "also log to Weights & Biases, which must be installed", flag="--wandb/--no-wandb")
    wandb_run_name: Optional[str] = setting(
        None, "name of the run in Weights & Biases; by default that of the run directory", flag="--wandb-run-name"
    )
    wandb_tags: Tuple[str, ...] = setting((), "tags of the run in Weights & Biases", flag="--wandb-tags")


class Model(Settings):
    """The network. A workload declares which it has."""

    name: str = setting("", "the network", flag="--model")


class WorkloadSettings(Settings):
    """The groups of settings that no workload is without. A workload declares its own data and model."""

    launch: Launch = section(Launch)
    pipeline: Pipeline = section(Pipeline)
    optimizer: Optimizer = section(Optimizer)
    schedule: Schedule = section(Schedule)
    training: Training = section(Training)
    device: Device = section(Device)
    survival: Survival = section(Survival)
    logging: Logging = section(Logging)
    data: Data = section(Data)
    model: Model = section(Model)

    def __post_init__(self) -> None:
        given, pipeline, device = self.launch.ipus_per_replica, self.pipeline, self.device
        if pipeline.splits and given not in (None, pipeline.ipus):
            raise SettingsError(
                f"{given} IPUs per replica, and the {pipeline.stages} pipeline stages are on {pipeline.ipus}",
                hint=f"leave --ipus-per-replica out, or use {pipeline.ipus}",
            )
        if device.recomputation and not pipeline.splits:
            raise SettingsError(
                "recomputation works on pipeline stages, and the model is not divided",
                hint="give --pipeline-splits, or leave --recomputation out",
            )
        proportions = len(device.available_memory_proportion)
        if proportions > 1 and proportions != 2 * pipeline.stages:
            raise SettingsError(
                f"{proportions} available memory proportions for {pipeline.stages} pipeline stages",
                hint="give one for all, or two for each stage: convolutions and matrices",
            )
        if device.distributed_norm_replicas > 1 and pipeline.ipus > 1:
            raise SettingsError(
                f"batch statistics over {device.distributed_norm_replicas} replicas of {pipeline.ipus} IPUs each",
                hint="replicas that share batch statistics have one IPU each",
            )
        if self.optimizer.auto_loss_scaling:
            check_automatic_scaling(self.optimizer, self.schedule)

    @property
    def api(self) -> str:
        """What trains: Keras, or one of the Estimators."""
        return KERAS

    @property
    def estimator_run(self) -> EstimatorRun:
        """What an Estimator is given; nothing with Keras."""
        return EstimatorRun()

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of one sample."""
        raise NotImplementedError

    @property
    def usual_target(self) -> float:
        """What a sweep aims at where no --target-accuracy is given."""
        raise NotImplementedError

    @property
    def ipus_per_replica(self) -> int:
        return self.launch.ipus_per_replica or self.pipeline.ipus

    @property
    def micro_batches_per_turn(self) -> int:
        """A weight update takes a multiple of this many micro-batches of each replica."""
        return self.pipeline.micro_batches_per_turn if self.training.training else 1

    @property
    def least_accumulation(self) -> int:
        """The fewest micro-batches of each replica in a weight update.

        Tiles for input and output make the SDK overlap transfers with a Grouped pipeline. Such a schedule needs two
        micro-batches more than a turn, and runs whole turns only, so the least is two turns.
        """
        turn, pipeline = self.micro_batches_per_turn, self.pipeline
        overlaps = pipeline.splits and pipeline.schedule == "Grouped" and self.device.io_tiles
        return 2 * turn if overlaps and self.training.training else turn

    @property
    def warnings(self) -> List[str]:
        """What is allowed and seldom intended."""
        found = []
        if not self.training.training:
            return self._odd_shares()
        scaled = self.optimizer.loss_scaling != 1 or self.optimizer.auto_loss_scaling
        if self.training.precision == "16.16" and not scaled:
            found.append("precision 16.16 without loss scaling: small gradients become 0; see --loss-scaling 128")
        if self.schedule.warmup_epochs > self.training.num_epochs:
            found.append(
                f"{self.schedule.warmup_epochs:g} epochs of warm-up in a training of {self.training.num_epochs}: the"
                " learning rate never gets to where it is meant to be"
            )
        return [*found, *self._odd_shares()]

    def _odd_shares(self) -> List[str]:
        least = min(self.device.available_memory_proportion, default=1.0)
        if least >= 1:
            return []
        meant = f"did you mean {100 * least:g}?"
        return [f"--available-memory-proportion {least:g} is in per cent, and less than one: {meant}"]


class WithEstimators(WorkloadSettings):
    """The settings of a workload that trains with Keras or with an Estimator."""

    estimator: EstimatorRun = section(EstimatorRun)

    def __post_init__(self) -> None:
        check_api(self)  # first: no other settings would make an Estimator do what it cannot
        super().__post_init__()

    @property
    def estimator_run(self) -> EstimatorRun:
        return self.estimator
