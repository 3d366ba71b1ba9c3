"""The settings of trainings with TensorFlow's Estimators, and what those cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.schema import Settings, setting

if TYPE_CHECKING:
    from ipulaunch.configs.settings.workload import WithEstimators, WorkloadSettings

KERAS, PLAIN, REPLICATED, PIPELINED = APIS = ("keras", "estimator", "replica-estimator", "pipeline-estimator")


class EstimatorRun(Settings):
    """What every Estimator is given."""

    batches_per_step: Optional[int] = setting(
        None, "with an Estimator: micro-batches per replica in a device call; by default until the next log or save",
        flag="--batches-per-step", at_least=1,
    )  # fmt: skip
    model_dir: Optional[str] = setting(
        None, "with an Estimator: directory of its checkpoints, to continue from; by default in the run directory",
        flag="--model-dir", is_path=True,
    )  # fmt: skip


class Cifar10Estimator(EstimatorRun):
    """Keras, or one of the three Estimators of the published examples."""

    api: str = setting(
        KERAS, "train with Keras, or with an Estimator: plain, replicated or pipelined", flag="--api", choices=APIS
    )


class CosmoflowEstimator(EstimatorRun):
    """Keras, or an Estimator."""

    use: bool = setting(False, "train with an Estimator", flag="--use-estimator/--no-use-estimator")


def check_api(settings: WithEstimators) -> None:
    """Raise for the first setting that the API cannot use."""
    if settings.api == KERAS:
        _refuse_without(settings.estimator)
        return
    _refuse_layout(settings, settings.api)
    _refuse_numbers(settings)
    _refuse_events(settings)


def _refuse_without(run: EstimatorRun) -> None:
    how = "--use-estimator" if isinstance(run, CosmoflowEstimator) else "--api estimator"
    for flag, value in (("--batches-per-step", run.batches_per_step), ("--model-dir", run.model_dir)):
        if value is not None:
            raise SettingsError(
                f"{flag} is for Estimators, and this is a training with Keras",
                hint=f"add {how}; Keras takes --logs-per-epoch and --resume",
            )


def _refuse_layout(settings: WorkloadSettings, api: str) -> None:
    replicas = settings.launch.num_replicas
    if api == PLAIN and replicas not in (None, 1):
        raise SettingsError(
            f"--api estimator trains one replica, and --num-replicas is {replicas}", hint="use --api replica-estimator"
        )
    if api == PIPELINED and not settings.pipeline.splits:
        raise SettingsError(
            "--api pipeline-estimator without pipeline stages", hint="name a layer with --pipeline-splits"
        )
    if api != PIPELINED and settings.pipeline.splits:
        raise SettingsError(
            f"{settings.pipeline.stages} pipeline stages, and this Estimator does not run pipelines",
            hint="use --api pipeline-estimator, or leave --pipeline-splits out",
        )
    check_accumulation(api, settings.training.gradient_accumulation_count or 1)


def check_accumulation(api: str, accumulation: int) -> None:
    """Raise where an Estimator would have to accumulate gradients and cannot; a global batch may ask for it as well."""
    if api not in (KERAS, PIPELINED) and accumulation > 1:
        raise SettingsError(
            f"accumulation {accumulation}: of the Estimators, only the one of a pipeline accumulates gradients",
            hint="use --gradient-accumulation-count 1, a smaller --global-batch-size, or --api pipeline-estimator",
        )


def _refuse_numbers(settings: WorkloadSettings) -> None:
    optimizer, schedule, training = settings.optimizer, settings.schedule, settings.training
    refused = (
        (optimizer.name == "lars", "--optimizer lars", "use sgd, adam, adadelta or rmsprop"),
        (optimizer.weight_decay, "--weight-decay", "use --weight-decay 0"),
        (optimizer.l2_regularization, "--l2-regularization", "use --l2-regularization 0"),
        (optimizer.loss_scaling != 1, "--loss-scaling", "an Estimator computes in 32 bits and needs none"),
        (optimizer.auto_loss_scaling, "--auto-loss-scaling", "an Estimator computes in 32 bits and needs none"),
        (schedule.name != "const", f"--lr-schedule {schedule.name}", "use --lr-schedule const"),
        (schedule.warmup_epochs, "--lr-warmup-epochs", "use --lr-warmup-epochs 0"),
        (training.precision != "32.32", f"--precision {training.precision}", "use --precision 32.32"),
        (settings.data.synthetic_data == "ipu", "--synthetic-data ipu", "use --synthetic-data cpu"),
        (settings.device.fused_preprocessing, "device.fused_preprocessing", "leave it out"),
    )
    for is_asked, what, instead in refused:
        if is_asked:
            raise SettingsError(f"{what} is not possible with an Estimator", hint=instead)


def _refuse_events(settings: WithEstimators) -> None:
    training = settings.training
    refused = (
        (training.ckpt_all_instances, "--ckpt-all-instances", "an Estimator writes one set of checkpoints"),
        (training.clean_dir, "--clean-dir", "remove its --model-dir yourself"),
        (settings.logging.mlperf, "--mlperf-logging", "measure the same training with Keras"),
        (settings.logging.sweep, "--sweep", "sweep the same training with Keras"),
        (training.resume, "--resume", "an Estimator continues from the newest checkpoint of its --model-dir"),
        (training.checkpoint_input_dir, "--checkpoint-input-dir", "use --model-dir with --test-only"),
        (training.checkpoint_output_dir, "--checkpoint-output-dir", "use --model-dir"),
        (training.first_ckpt_epoch, "--first-ckpt-epoch", "an Estimator's checkpoints begin at its first step"),
        (training.trace_samples, "--trace-samples", "trace the same training with Keras: its samples are the same"),
        (
            training.training and training.validation and training.ckpts_per_epoch == 0,
            "--ckpts-per-epoch 0 with validation",
            "an Estimator validates its newest checkpoint: write some, or add --no-validation",
        ),
    )
    for is_asked, what, instead in refused:
        if is_asked:
            raise SettingsError(f"{what} is not possible with an Estimator", hint=instead)
    if not training.training and settings.estimator.model_dir is None:
        raise SettingsError(
            "an Estimator is to be tested, and --model-dir does not say where its checkpoints are",
            hint="give the --model-dir of its training",
        )
