"""The IPUs of this instance: the SDK's configuration from the settings, attached and seeded."""

from __future__ import annotations

from typing import Any, Dict

from ipulaunch.topology.popdist import Place
from ipulaunch.workers.backends.ipu_refusals import ipus_needed
from ipulaunch.workers.backends.ipu_sdk import Sdk

# What pre_compile compiles for, since no device is asked: Mk2, as the published application.
_VERSION = "ipu2"


class IpuDevice:
    """The device, configured for training; validation changes how it rounds."""

    def __init__(self, sdk: Sdk, settings: Any, place: Place, is_placed: bool) -> None:
        self.sdk, self.settings = sdk, settings
        popdist, ipu = sdk.popdist, sdk.ipu
        roundings = ipu.config.StochasticRoundingBehaviour
        self.no_rounding = roundings.OFF
        self.training_rounding = {
            "off": roundings.OFF,
            "on": roundings.ON,
            "ri": roundings.REPLICA_IDENTICAL_ONLY,
        }[settings.device.stochastic_rounding]
        self.rounding: Any = self.training_rounding
        self.config = config = ipu.config.IPUConfig()
        self._configure_compiler(place)
        self._configure_numbers()
        attaches = self._configure_connection()
        ipus = ipus_needed(settings.pipeline)
        if is_placed:
            sdk.join()
            # PopDist looks for its device on the hardware, so a run that attaches none has to name it itself.
            popdist.tensorflow.set_ipu_config(config, ipus_per_replica=ipus, configure_device=attaches)
            if not attaches:
                config.auto_select_ipus = ipus * place.local_replicas
            self._attach()
            self.strategy = sdk.popdist_strategy()
        else:
            config.auto_select_ipus = ipus
            self._attach()
            self.strategy = ipu.ipu_strategy.IPUStrategy()

    def round_as(self, rounding: Any) -> None:
        """Round like this from now on: the device is configured anew, with the same replicas and IPUs."""
        config = self.config
        if rounding is not self.rounding:
            config.floating_point_behaviour.esr = self.rounding = rounding
            self._attach()

    def _attach(self) -> None:
        ipu, config, settings = self.sdk.ipu, self.config, self.settings
        config.configure_ipu_system()
        # Replicas that have to round alike draw alike; otherwise each drops out units of its own.
        alike = settings.device.stochastic_rounding == "ri"
        ipu.utils.reset_ipu_seed(settings.training.seed, experimental_identical_replicas=alike)

    def _configure_compiler(self, place: Place) -> None:
        config, device = self.config, self.settings.device
        config.allow_recompute = device.recomputation
        convolutions, matmuls = _options_of(device, self.settings.pipeline.stages)
        convolutions["gatherConvOutput"] = "true" if device.gather_conv_output else "false"
        config.convolutions.poplar_options = convolutions
        config.matmuls.poplar_options = matmuls
        # Several instances compile the same program only if workers are laid out alike; so does a repeated run.
        alike = place.instances > 1 or self.settings.training.deterministic
        compilation = {"target.deterministicWorkers": "portable" if alike else "false"}
        if device.internal_exchange_optimisation_target is not None:
            compilation["opt.internalExchangeOptimisationTarget"] = device.internal_exchange_optimisation_target
        config.compilation_poplar_options = compilation
        if device.max_cross_replica_sum_buffer_size is not None:
            config.optimizations.maximum_cross_replica_sum_buffer_size = device.max_cross_replica_sum_buffer_size
        if device.max_reduce_many_buffer_size is not None:
            config.optimizations.maximum_reduce_many_buffer_size = device.max_reduce_many_buffer_size
        if device.min_remote_tensor_size is not None:
            config.optimizations.minimum_remote_tensor_size = device.min_remote_tensor_size
        if device.io_tiles:
            config.io_tiles.num_io_tiles = device.io_tiles
            config.io_tiles.place_ops_on_io_tiles = True

    def _configure_numbers(self) -> None:
        config, device = self.config, self.settings.device
        config.floating_point_behaviour.esr = self.rounding
        config.norms.use_stable_statistics = device.stable_norm
        config.norms.experimental.distributed_batch_norm_replica_group_size = device.distributed_norm_replicas
        # The generator's state then survives from one device call to the next whatever runs between them.
        stable = self.settings.training.deterministic or device.stochastic_rounding == "ri"
        config.experimental.enable_prng_stability = stable

    def _configure_connection(self) -> bool:
        """When to attach; returns whether IPUs are attached at all."""
        ipu, config, wanted = self.sdk.ipu, self.config, self.settings.device.connection
        types = ipu.config.DeviceConnectionType
        if wanted == "on_demand":
            config.device_connection.enable_remote_buffers = True
            config.device_connection.type = types.ON_DEMAND
        elif wanted == "pre_compile":
            config.device_connection.version = _VERSION
            config.device_connection.enable_remote_buffers = True
            config.device_connection.type = types.PRE_COMPILE
        return bool(wanted != "pre_compile")


def stage_proportions(device: Any, stages: int) -> Any:
    """Each stage's shares of tile memory, for convolutions and for matrices; nothing if one share is for all."""
    shares = [str(value / 100) for value in device.available_memory_proportion]
    return list(zip(shares[::2], shares[1::2])) if len(shares) == 2 * stages else []


def _options_of(device: Any, stages: int) -> Any:
    """The options of all convolutions and of all matrix products."""
    both: Dict[str, str] = {"partialsType": "half"} if device.half_partials else {}
    convolutions, matmuls = dict(both), dict(both)
    shares = stage_proportions(device, stages)
    if stages == 1 and shares:
        convolutions["availableMemoryProportion"], matmuls["availableMemoryProportion"] = shares[0]
    elif len(device.available_memory_proportion) == 1:
        share = str(device.available_memory_proportion[0] / 100)
        convolutions["availableMemoryProportion"] = matmuls["availableMemoryProportion"] = share
    return convolutions, matmuls
