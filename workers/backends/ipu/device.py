"""The IPUs of this instance: the SDK's configuration from the settings, attached and seeded."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator

from ipulaunch.configs.settings.device import Device
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.topology.planning.refusals import ipus_needed
from ipulaunch.workers.backends.ipu.sdk import Sdk
from ipulaunch.workers.backends.ipu.statistics import learnt_statistics

# The IPU to compile for where none is attached: Mk2, as in the published application.
_VERSION = "ipu2"
# How far apart the seeds of two instances and of two updates lie.
_INSTANCES_APART, _UPDATES_APART = 1_000_003, 7_919


class IpuDevice:
    """The device, configured for training; validation changes how it rounds."""

    def __init__(self, sdk: Sdk, settings: WorkloadSettings, plan: Plan, index: int, *, is_placed: bool) -> None:
        self.sdk, self.settings, self.plan, self.index = sdk, settings, plan, index
        self.draws_apart = network_of(settings).drops_units
        self.update = 0  # after which the training begins
        self.has_drawn = False  # since the random numbers began
        # Keras divides a loss by it; gradients are summed over all replicas, whether the strategy knows of them or not.
        self.replicas_in_sync: int
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
        self._configure_compiler(is_placed)
        self._configure_numbers()
        attaches = self._configure_connection()
        ipus = ipus_needed(settings.pipeline)
        if is_placed:
            # PopDist looks for its device on the hardware, so a run that attaches none has to name it itself.
            popdist.tensorflow.set_ipu_config(config, ipus_per_replica=ipus, configure_device=attaches)
            if not attaches:
                config.auto_select_ipus = ipus * plan.replicas_per_instance
            self.attach()
            self.strategy = sdk.popdist_strategy()
            self.replicas_in_sync = plan.replicas
        else:  # one process alone, with all the replicas
            config.auto_select_ipus = ipus * plan.replicas_per_instance
            self.attach()
            self.strategy = ipu.ipu_strategy.IPUStrategy()
            self.replicas_in_sync = 1

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Models are made inside it: only those can run on IPUs."""
        with self.strategy.scope(), learnt_statistics():
            yield

    @property
    def reduces_metrics(self) -> bool:
        """Whether the strategy makes a metric the mean over all replicas; else the host sees the last one's."""
        return self.replicas_in_sync == self.plan.replicas

    def round_as(self, rounding: Any) -> None:
        """Round like this from now on: the device is configured anew, with the same replicas and IPUs."""
        config = self.config
        if rounding is not self.rounding:
            config.floating_point_behaviour.esr = self.rounding = rounding
            self.attach()

    def begin_after(self, update: int) -> None:
        """Draw the random numbers of the updates that follow.

        A resumed training does not repeat its first ones, and one whose program was loaded first begins anew.
        """
        if update != self.update or self.has_drawn:
            self.update = update
            self._seed()
        self.has_drawn = True

    def attach(self) -> None:
        """Configure the device, and begin its random numbers."""
        self.config.configure_ipu_system()
        self._seed()

    def _seed(self) -> None:
        # All replicas draw alike, as in the published application, unless each drops units of its own: the SDK tells
        # the replicas of an instance apart, but not the instances. Weights are rounded alike in both cases, since a
        # stable generator has a second seed for what is the same on all replicas: the mean of theirs.
        apart = self.update * _UPDATES_APART + (self.index * _INSTANCES_APART if self.draws_apart else 0)
        seed = (self.settings.training.seed + apart) % 2**31
        self.sdk.ipu.utils.reset_ipu_seed(seed, experimental_identical_replicas=not self.draws_apart)
        self.has_drawn = False

    def _configure_compiler(self, is_placed: bool) -> None:
        config, device = self.config, self.settings.device
        config.allow_recompute = device.recomputation
        convolutions, matmuls = _options_of(device, self.settings.pipeline.stages)
        convolutions["gatherConvOutput"] = "true" if device.gather_conv_output else "false"
        convolutions["enableConvDithering"] = "true" if device.conv_dithering else "false"
        config.convolutions.poplar_options = convolutions
        config.matmuls.poplar_options = matmuls
        # Instances compile the same program only if workers are laid out alike; so does a repeated run.
        alike = is_placed or self.settings.training.deterministic
        compilation = {"target.deterministicWorkers": "portable" if alike else "false"}
        if device.internal_exchange_optimisation_target is not None:
            compilation["opt.internalExchangeOptimisationTarget"] = device.internal_exchange_optimisation_target
        config.compilation_poplar_options = compilation
        algorithms = self.sdk.ipu.config.SchedulingAlgorithm
        config.scheduling.algorithm = {
            "CHOOSE_BEST": algorithms.CHOOSE_BEST,
            "CLUSTERING": algorithms.CLUSTERING,
            "POST_ORDER": algorithms.POST_ORDER,
            "LOOK_AHEAD": algorithms.LOOK_AHEAD,
            "SHORTEST_PATH": algorithms.SHORTEST_PATH,
        }[device.scheduling_algorithm]
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
        config.floating_point_behaviour.inv = device.fp_exceptions
        config.floating_point_behaviour.div0 = device.fp_exceptions
        config.floating_point_behaviour.oflo = device.fp_exceptions
        config.floating_point_behaviour.nanoo = device.nanoo
        config.floating_point_behaviour.esr = self.rounding
        config.norms.use_stable_statistics = device.stable_norm
        config.norms.experimental.distributed_batch_norm_replica_group_size = device.distributed_norm_replicas
        # Without it each replica would round its 16-bit weights in its own way, and they would drift apart. It also
        # keeps the generator's state from one device call to the next whatever runs between them.
        stable = self.settings.training.deterministic or device.stochastic_rounding != "off"
        config.experimental.enable_prng_stability = stable

    def _configure_connection(self) -> bool:
        """When to attach; returns whether IPUs are attached at all."""
        config, device = self.config, self.settings.device
        types = self.sdk.ipu.config.DeviceConnectionType
        if device.compile_only:
            config.device_connection.version = _VERSION
            config.device_connection.enable_remote_buffers = True
            config.device_connection.type = types.PRE_COMPILE
        elif device.connection == "on_demand":
            config.device_connection.enable_remote_buffers = True
            config.device_connection.type = types.ON_DEMAND
        return not device.compile_only


def stage_proportions(device: Device, stages: int) -> Any:
    """Each stage's shares of tile memory, for convolutions and for matrices; nothing if one share is for all."""
    shares = [str(value / 100) for value in device.available_memory_proportion]
    return list(zip(shares[::2], shares[1::2])) if len(shares) == 2 * stages else []


def _options_of(device: Device, stages: int) -> Any:
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
