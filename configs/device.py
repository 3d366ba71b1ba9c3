"""The settings of the IPU itself: what a rehearsal on CPUs records and cannot honour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from ipulaunch.configs.schema import setting


@dataclass(frozen=True)
class Device:
    """How the model is compiled for IPUs."""

    stochastic_rounding: str = setting(
        "off", "round 16-bit results up or down by chance; ri: alike on all replicas", flag="--stochastic-rounding",
        choices=("off", "on", "ri"), ipu_only=True,
    )  # fmt: skip
    half_partials: bool = setting(
        False, "sum products of convolutions and matrices in 16 bits", flag="--half-partials/--no-half-partials",
        ipu_only=True,
    )  # fmt: skip
    available_memory_proportion: Tuple[float, ...] = setting(
        (), "per cent of tile memory for convolutions and matrices: one for all, or two for each stage",
        flag="--available-memory-proportion", above=0, ipu_only=True,
    )  # fmt: skip
    recomputation: bool = setting(
        False, "compute activations again in the backward pass instead of keeping them",
        flag="--recomputation/--no-recomputation", ipu_only=True,
    )  # fmt: skip
    optimizer_state_offloading: bool = setting(
        False, "keep the optimizer's state outside of the IPUs",
        flag="--optimizer-state-offloading/--no-optimizer-state-offloading", ipu_only=True,
    )  # fmt: skip
    stable_norm: bool = setting(False, "a slower, more exact sum in normalisation layers", ipu_only=True)
    distributed_norm_replicas: int = setting(
        1, "neighbouring replicas that share batch statistics", at_least=1, ipu_only=True
    )
    internal_exchange_optimisation_target: Optional[str] = setting(
        None, "what the compiler favours between tiles", choices=("balanced", "cycles", "memory"), ipu_only=True
    )
    max_cross_replica_sum_buffer_size: Optional[int] = setting(
        None, "bytes of gradients summed over replicas at once", at_least=0, ipu_only=True
    )
    max_reduce_many_buffer_size: Optional[int] = setting(
        None, "bytes of reductions joined into one", at_least=0, ipu_only=True
    )
    min_remote_tensor_size: Optional[int] = setting(
        None, "bytes below which a tensor stays on the IPU", at_least=0, ipu_only=True
    )
    gather_conv_output: bool = setting(False, "gather the output of convolutions onto fewer tiles", ipu_only=True)
    fused_preprocessing: bool = setting(False, "the SDK's fused image normalisation", ipu_only=True)
    io_tiles: Optional[int] = setting(None, "tiles kept for input and output", at_least=0, ipu_only=True)
    prefetch_depth: Optional[int] = setting(None, "micro-batches sent ahead of their use", at_least=1, ipu_only=True)
    connection: str = setting(
        "always", "when the IPUs are attached; pre_compile attaches none", flag="--device-connection",
        choices=("always", "on_demand", "pre_compile"), ipu_only=True,
    )  # fmt: skip
    profile: bool = setting(
        False, "let Poplar write its reports into the run directory", flag="--profile/--no-profile", ipu_only=True
    )
