"""The settings of the IPU itself: a rehearsal on CPUs records them and cannot apply them."""

from __future__ import annotations

from typing import Optional, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.schema import Settings, setting


class Device(Settings):
    """How the model is compiled for IPUs."""

    stochastic_rounding: str = setting(
        "off", "round 16-bit results up or down at random; ri: the same on all replicas", flag="--stochastic-rounding",
        choices=("off", "on", "ri"), ipu_only=True, spellings={"replica_identical_only": "ri"},
    )  # fmt: skip
    half_partials: bool = setting(
        False, "sum the products of convolutions and matrix multiplications in 16 bits",
        flag="--half-partials/--no-half-partials",
        ipu_only=True,
    )  # fmt: skip
    available_memory_proportion: Tuple[float, ...] = setting(
        (), "per cent of tile memory for convolutions and matrix multiplications: one number for all, or two per stage",
        flag="--available-memory-proportion", above=0, ipu_only=True,
    )  # fmt: skip
    recomputation: bool = setting(
        False, "compute activations again in the backward pass instead of keeping them",
        flag="--recomputation/--no-recomputation", ipu_only=True,
    )  # fmt: skip
    fp_exceptions: bool = setting(
        False, "stop at an invalid operation, a division by zero or an overflow",
        flag="--fp-exceptions/--no-fp-exceptions", ipu_only=True,
    )  # fmt: skip
    nanoo: bool = setting(
        False, "turn 16-bit results that overflow into NaN; without it, into the largest number",
        flag="--nanoo/--no-nanoo", ipu_only=True,
    )  # fmt: skip
    optimizer_state_offloading: bool = setting(
        False, "keep the optimizer's state in memory outside the IPUs",
        flag="--optimizer-state-offloading/--no-optimizer-state-offloading", ipu_only=True,
    )  # fmt: skip
    stable_norm: bool = setting(
        False, "a slower, more exact sum in normalisation layers", flag="--stable-norm/--no-stable-norm", ipu_only=True
    )
    distributed_norm_replicas: int = setting(
        1, "neighbouring replicas that share batch statistics", flag="--dbn-replica-group-size", at_least=1,
        ipu_only=True,
    )  # fmt: skip
    internal_exchange_optimisation_target: Optional[str] = setting(
        None, "what the compiler favours between tiles", flag="--internal-exchange-optimization-target",
        choices=("balanced", "cycles", "memory"), ipu_only=True,
    )  # fmt: skip
    max_cross_replica_sum_buffer_size: Optional[int] = setting(
        None, "bytes of gradients summed over replicas at once", flag="--max-cross-replica-buffer-size", at_least=0,
        ipu_only=True,
    )  # fmt: skip
    max_reduce_many_buffer_size: Optional[int] = setting(
        None, "bytes of reductions joined into one", flag="--max-reduce-many-buffer-size", at_least=0, ipu_only=True
    )
    min_remote_tensor_size: Optional[int] = setting(
        None, "bytes below which a tensor stays on the IPU", flag="--min-remote-tensor-size", at_least=0, ipu_only=True
    )
    gather_conv_output: bool = setting(
        False, "gather the output of convolutions onto fewer tiles",
        flag="--gather-conv-output/--no-gather-conv-output", ipu_only=True,
    )  # fmt: skip
    conv_dithering: bool = setting(
        False, "start each convolution on a different tile, so that memory fills evenly",
        flag="--conv-dithering/--no-conv-dithering", ipu_only=True,
    )  # fmt: skip
    scheduling_algorithm: str = setting(
        "CHOOSE_BEST", "how the compiler orders operations", flag="--scheduling-algorithm",
        choices=("CHOOSE_BEST", "CLUSTERING", "POST_ORDER", "LOOK_AHEAD", "SHORTEST_PATH"), ipu_only=True,
    )  # fmt: skip
    fused_preprocessing: bool = setting(
        False, "the SDK's fused image normalisation", flag="--fused-preprocessing/--no-fused-preprocessing",
        ipu_only=True,
    )  # fmt: skip
    io_tiles: Optional[int] = setting(None, "tiles kept for input and output", at_least=0, ipu_only=True)
    prefetch_depth: Optional[int] = setting(
        None, "micro-batches sent ahead of their use", flag="--prefetch-depth", at_least=1, ipu_only=True
    )
    outfeed_depth: Optional[int] = setting(
        None, "results of micro-batches kept until the host takes them", at_least=1, ipu_only=True
    )
    connection: str = setting(
        "on_demand", "when the IPUs are attached: before compiling, or once they are needed",
        flag="--device-connection", choices=("always", "on_demand"), ipu_only=True,
    )  # fmt: skip
    accelerator_side_reduction: bool = setting(
        False, "reduce losses and metrics over the replicas in each step on the device (SDK 3.1 and later)",
        flag="--accelerator-side-reduction/--no-accelerator-side-reduction", ipu_only=True,
    )  # fmt: skip
    compile_only: bool = setting(
        False, "compile into the executable cache, without IPUs, and train nothing",
        flag="--compile-only/--no-compile-only", ipu_only=True,
    )  # fmt: skip
    profile: bool = setting(
        False, "write Poplar's reports to the run directory", flag="--profile/--no-profile", ipu_only=True
    )

    def __post_init__(self) -> None:
        most = max(self.available_memory_proportion, default=0.0)
        if most > 100:
            raise SettingsError(
                f"an available memory proportion of {most:g} per cent", hint="60 is six tenths of the memory of a tile"
            )
