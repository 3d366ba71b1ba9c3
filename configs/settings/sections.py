"""The groups of settings that say what runs: the launch, the pipeline, the training, and how a run survives."""

from __future__ import annotations

from fractions import Fraction
from typing import Optional, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.schema import Settings, setting
from ipulaunch.configs.text import counted

_SIGNALS = ("TERM", "USR1", "USR2", "HUP")


class Survival(Settings):
    """How long the launcher waits, and how often it tries again."""

    grace_s: float = setting(
        60.0, "seconds that a run has to write its checkpoint when asked to stop", flag="--grace", at_least=0
    )
    stop_signals: Tuple[str, ...] = setting(
        ("TERM", "USR1", "USR2"),
        "signals to an instance that ask the run to stop with a checkpoint; the launcher takes all of them",
        choices=_SIGNALS,
    )
    stall_timeout_s: float = setting(
        1800.0, "seconds without progress after which a run is considered hung", flag="--stall-timeout", above=0
    )
    max_restarts: int = setting(
        0, "how many times a failed run is restarted from its newest checkpoint", flag="--max-restarts", at_least=0
    )
    restart_backoff_s: float = setting(
        5.0,
        "seconds before the first restart; doubled, up to 10 minutes, for each further one that makes no new update",
        flag="--restart-backoff",
        at_least=0,
    )
    elastic_hosts: bool = setting(
        False,
        "leave out hosts that do not answer when restarting",
        flag="--elastic-hosts/--no-elastic-hosts",
    )
    max_preemptions: int = setting(
        100, "how many times a run may be preempted and ask to be started again", flag="--max-preemptions", at_least=0
    )


_ONCE = Fraction(1)


class Launch(Settings):
    """What the workload asks of the plan."""

    ipus_per_replica: Optional[int] = setting(
        None,
        "IPUs that one replica uses; without it, one for each pipeline stage",
        flag="--ipus-per-replica",
        at_least=1,
    )
    num_replicas: Optional[int] = setting(
        None, "number of data-parallel copies of the model, over all instances", flag="--num-replicas", at_least=1
    )
    num_instances: Optional[int] = setting(
        None, "number of host processes, over all hosts", flag="--num-instances", at_least=1
    )
    validation_num_replicas: Optional[int] = setting(
        None,
        "number of copies of the model that validate; in a run that also trains, it is that of the training",
        flag="--validation-num-replicas",
        at_least=1,
    )
    single: bool = setting(False, "whether one replica runs when no POD is named")
    io_bound: bool = setting(False, "whether the host's input work, not the IPU, limits the speed")
    min_cores_per_instance: int = setting(4, "cores below which an instance cannot feed its replicas", at_least=1)


class Pipeline(Settings):
    """How a model is divided into stages, each on an IPU."""

    splits: Tuple[str, ...] = setting(
        (), "first layer of the next pipeline stage; repeat it for each further stage", flag="--pipeline-splits"
    )
    device_mapping: Tuple[int, ...] = setting(
        (), "IPU of each stage, in order; without it, stage k is on IPU k", flag="--device-mapping", at_least=0
    )
    schedule: str = setting(
        "Grouped",
        "the order in which stages run forward and backward",
        flag="--pipeline-schedule",
        choices=("Grouped", "Interleaved", "Sequential"),
    )
    validation_model: bool = setting(
        False,
        "validate with the same stages as in training",
        flag="--pipeline-validation-model/--no-pipeline-validation-model",
    )

    def __post_init__(self) -> None:
        if not self.device_mapping:
            return
        if len(self.device_mapping) != self.stages:
            raise SettingsError(
                f"the device mapping names {counted(len(self.device_mapping), 'IPU')} for"
                f" {counted(self.stages, 'pipeline stage')}",
                hint="name an IPU for each stage: one more than there are splits",
            )
        # At most as many IPUs as stages are named: the first that is not comes soon, however large the others are.
        gap = next(ipu for ipu in range(self.stages + 1) if ipu not in self.device_mapping)
        if gap < self.ipus:
            mapping = ", ".join(map(str, self.device_mapping))
            raise SettingsError(
                f"the device mapping {mapping} leaves out IPU {gap} of {self.ipus}",
                hint="IPUs are counted from 0, without gaps",
            )

    @property
    def stages(self) -> int:
        return len(self.splits) + 1

    @property
    def micro_batches_per_turn(self) -> int:
        """The micro-batches that fill the schedule once.

        The SDK's compiler demands whole turns. Grouped runs forward and backward stages in turn, so it needs two for
        each stage; its Sequential schedule has one micro-batch under way at a time.
        """
        if not self.splits:
            return 1
        return {"Grouped": 2 * self.stages, "Interleaved": self.stages, "Sequential": 1}[self.schedule]

    @property
    def ipus(self) -> int:
        """The IPUs the stages are on."""
        return max(self.device_mapping) + 1 if self.device_mapping else self.stages


class Training(Settings):
    """How long, in which batches, and how often the host gets results."""

    num_epochs: int = setting(1, "passes over the training samples", flag="--num-epochs", at_least=1)
    micro_batch_size: int = setting(
        1, "samples that one replica takes in one accumulation step", flag="--micro-batch-size", at_least=1
    )
    validation_micro_batch_size: Optional[int] = setting(
        None, "micro-batch size of validation; without it, that of training", flag="--validation-micro-batch-size",
        at_least=1,
    )  # fmt: skip
    gradient_accumulation_count: Optional[int] = setting(
        None,
        "micro-batches that each replica accumulates per weight update",
        flag="--gradient-accumulation-count",
        at_least=1,
    )
    global_batch_size: Optional[int] = setting(
        None, "samples per weight update, instead of the accumulation count", flag="--global-batch-size", at_least=1
    )
    weight_updates_per_epoch: Optional[int] = setting(
        None, "number of weight updates that count as an epoch, instead of one pass over the samples",
        flag="--weight-updates-per-epoch",
        at_least=1, spellings={-1: None},
    )  # fmt: skip
    remainder: str = setting(
        "drop",
        "what happens to samples that do not fill a global batch: drop them, fill it from the next epoch, or pad it",
        flag="--remainder",
        choices=("drop", "repeat", "pad"),
    )
    trace_samples: bool = setting(
        False,
        "in a rehearsal with Keras, record which replica took which sample in which step",
        flag="--trace-samples/--no-trace-samples",
    )
    # NumPy's own generator takes seeds of 32 bits, the IPU's of 31.
    seed: int = setting(0, "seed of all random numbers of the run", flag="--seed", at_least=0, below=2**31)
    deterministic: bool = setting(
        False,
        "give the same bits on any number of cores and instances, with one thread per operation",
        flag="--deterministic/--no-deterministic",
    )
    precision: str = setting(
        "32.32",
        "bits of the computation, and bits of the weights",
        flag="--precision",
        choices=("16.16", "16.32", "32.32"),
    )
    training: bool = setting(True, "train; without it, only validate", flag="--training/--no-training")
    validation: bool = setting(
        True, "evaluate every checkpoint of the run after training", flag="--validation/--no-validation"
    )
    target_accuracy: Optional[float] = setting(
        None,
        "report the first checkpoint that reaches this validation accuracy (CosmoFlow: mean absolute error)",
        flag="--target-accuracy",
        above=0,
    )
    logs_per_epoch: Fraction = setting(
        _ONCE, "how often metrics are written; 1/2: every second epoch, 0: once, at the end",
        flag="--logs-per-epoch", at_least=0,
    )  # fmt: skip
    ckpts_per_epoch: Optional[Fraction] = setting(
        None, "how often a checkpoint is written; 0: never. Without it, after each epoch, or log if logs are rarer",
        flag="--ckpts-per-epoch", at_least=0,
    )  # fmt: skip
    first_ckpt_epoch: Fraction = setting(
        Fraction(0), "epoch after which the first checkpoint is written", flag="--first-ckpt-epoch", at_least=0
    )
    ckpt_all_instances: bool = setting(
        False,
        "let every instance write its checkpoints, those of instance N > 0 to rankN inside the directory",
        flag="--ckpt-all-instances/--no-ckpt-all-instances",
    )
    clean_dir: bool = setting(
        False, "remove the checkpoints of the run once they are validated", flag="--clean-dir/--no-clean-dir"
    )
    keep_checkpoints: Optional[int] = setting(
        None, "number of newest checkpoints to keep, besides the best", flag="--keep-checkpoints", at_least=1
    )
    checkpoint_input_dir: Optional[str] = setting(
        None,
        "with --no-training: directory of the checkpoints to evaluate",
        flag="--checkpoint-input-dir",
        is_path=True,
    )
    checkpoint_output_dir: Optional[str] = setting(
        None,
        "directory for checkpoints; without it, in the run directory",
        flag="--checkpoint-output-dir",
        is_path=True,
    )
    resume: Optional[str] = setting(
        None,
        "continue from the newest whole checkpoint of this run or directory; auto: of the newest run of this network",
        flag="--resume",
    )

    def __post_init__(self) -> None:
        if not self.training and not self.validation:
            raise SettingsError(
                "neither training nor validation is asked for", hint="leave out --no-training or --no-validation"
            )
        # The published scripts name the same directory twice, to validate what they have just trained.
        if self.training and self.checkpoint_input_dir not in (None, self.checkpoint_output_dir):
            raise SettingsError(
                "--checkpoint-input-dir is for evaluation, and this is a training",
                hint="add --no-training, or use --resume to continue a training",
            )
        if not self.training and self.resume is not None:
            raise SettingsError(
                "--resume continues a training, and --no-training is given", hint="use --checkpoint-input-dir"
            )
        if self.first_ckpt_epoch >= self.num_epochs and self.first_ckpt_epoch and self.ckpts_per_epoch != 0:
            raise SettingsError(
                f"checkpoints begin after epoch {self.first_ckpt_epoch}, and the training has"
                f" {counted(self.num_epochs, 'epoch')}",
                hint=f"use --first-ckpt-epoch {self.num_epochs - 1} or less",
            )
        if self.ckpt_all_instances and self.ckpts_per_epoch == 0:
            raise SettingsError(
                "--ckpt-all-instances, and with --ckpts-per-epoch 0 no instance writes a checkpoint",
                hint="give another --ckpts-per-epoch, or leave --ckpt-all-instances out",
            )
        if self.clean_dir and not (self.training and self.validation):
            missing = "validation" if self.training else "training"
            raise SettingsError(
                f"--clean-dir removes checkpoints that are trained and then validated, and there is no {missing}",
                hint="leave --clean-dir out, or remove the directory yourself",
            )
