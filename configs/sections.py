"""The groups of settings that workloads share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.schema import setting


@dataclass(frozen=True)
class Launch:
    """What the workload asks of the plan."""

    ipus_per_replica: int = setting(1, "IPUs one replica of the model takes", flag="--ipus-per-replica", at_least=1)
    num_replicas: Optional[int] = setting(
        None, "data-parallel copies of the model, over all instances", flag="--num-replicas", at_least=1
    )
    num_instances: Optional[int] = setting(None, "host processes, over all hosts", flag="--num-instances", at_least=1)
    io_bound: bool = setting(False, "whether the host's input work, not the IPU, limits the speed")
    min_cores_per_instance: int = setting(4, "cores below which an instance cannot feed its replicas", at_least=1)


@dataclass(frozen=True)
class Training:
    """How long, and in which batches."""

    num_epochs: int = setting(1, "passes over the training samples", flag="--num-epochs", at_least=1)
    micro_batch_size: int = setting(
        1, "samples of one replica in one accumulation step", flag="--micro-batch-size", at_least=1
    )
    gradient_accumulation_count: Optional[int] = setting(
        None, "micro-batches per replica and weight update", flag="--gradient-accumulation-count", at_least=1
    )
    global_batch_size: Optional[int] = setting(
        None, "samples per weight update, instead of the accumulation count", flag="--global-batch-size", at_least=1
    )
    remainder: str = setting(
        "drop",
        "what becomes of samples that fill no global batch: left out, filled up from the next epoch, or padded",
        flag="--remainder",
        choices=("drop", "repeat", "pad"),
    )
    trace_samples: bool = setting(
        False, "write which replica took which sample in which step", flag="--trace-samples/--no-trace-samples"
    )
    seed: int = setting(0, "where every random number of the run starts from", flag="--seed", at_least=0)
    deterministic: bool = setting(
        False,
        "the same bits on any number of cores and instances; one thread per operation",
        flag="--deterministic/--no-deterministic",
    )
    validation: bool = setting(True, "validate after every epoch", flag="--validation/--no-validation")
    checkpoints: bool = setting(True, "write a checkpoint after every epoch", flag="--checkpoints/--no-checkpoints")


@dataclass(frozen=True)
class Optimizer:
    """How gradients become weight updates."""

    name: str = setting("sgd", "the optimizer", flag="--optimizer", choices=("adadelta", "adam", "sgd"))
    learning_rate: float = setting(0.01, "the learning rate", flag="--learning-rate", above=0)
    lr_scaling: str = setting(
        "none",
        "how the learning rate grows with the replicas",
        flag="--lr-scaling",
        choices=("none", "linear", "sqrt"),
    )
    momentum: float = setting(0.0, "momentum, for sgd", flag="--momentum", at_least=0, below=1)

    def __post_init__(self) -> None:
        if self.momentum and self.name != "sgd":
            raise SettingsError(
                f"momentum {self.momentum:g} with {self.name}, which has none", hint="use --optimizer sgd"
            )
