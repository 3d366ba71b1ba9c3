"""The state of one process with the SDK: its place among the instances, its IPUs, and what has been called so far."""

from __future__ import annotations

import enum
from typing import Any, Dict, List, Mapping, Optional

import numpy as np

from ipu_standin.calls import Calls
from ipu_standin.config import Category, number_of_ipus
from ipu_standin.pipelining import check_poplar_options
from ipu_standin.table import Table

ENGINE = "POPLAR_ENGINE_OPTIONS"
CONFIG = "tensorflow.python.ipu.config.IPUConfig"


class Sdk:
    """One SDK in one process."""

    def __init__(self, version: str, environ: Mapping[str, str]) -> None:
        self.table, self.environ = Table(version), environ
        self.calls = Calls(environ, lambda: self.instance)
        self.enums: Dict[str, Any] = {
            name: enum.Enum(name.rsplit(".", 1)[-1], members)  # type: ignore[misc]
            for name, members in self.table.enums.items()
        }
        self.joined = False
        self.ipus: Optional[int] = None  # of this instance, once configured
        self.io_tiles = 0  # as last configured
        self.makes_data_up = False  # as its flags said when it was first configured
        self.rounding, self.is_prng_stable = "OFF", False  # as last configured
        self.is_averaged = False  # whether a value that was just computed is the mean over replicas
        self.turn, self.is_crossed = 1, False  # of an Estimator's model: its replicas, and whether it sums over them

    def _count(self, name: str, default: int) -> int:
        return int(self.environ.get(f"POPDIST_{name}", default))

    @property
    def flags(self) -> List[str]:
        return self.environ.get("TF_POPLAR_FLAGS", "").split()

    @property
    def is_under_poprun(self) -> bool:
        return "POPDIST_NUM_TOTAL_REPLICAS" in self.environ

    @property
    def replicas(self) -> int:
        return self._count("NUM_TOTAL_REPLICAS", 1)

    @property
    def local_replicas(self) -> int:
        return self._count("NUM_LOCAL_REPLICAS", 1)

    @property
    def ipus_per_replica(self) -> int:
        return self._count("NUM_IPUS_PER_REPLICA", 1)

    @property
    def first_replica(self) -> int:
        return self._count("REPLICA_INDEX_OFFSET", 0)

    @property
    def instances(self) -> int:
        return self.replicas // self.local_replicas

    @property
    def instance(self) -> int:
        return self.first_replica // self.local_replicas

    def join(self) -> None:
        """Meet the other instances, as popdist.init() and Horovod's init() do."""
        if self.instances > 1 and not self.joined:
            from mpi4py import MPI

            found = (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size())
            if found != (self.instance, self.instances):
                raise RuntimeError(f"MPI has process {found}, POPDIST_* instance {self.instance} of {self.instances}")
        self.joined = True

    def sum_over_instances(self, values: Any) -> Any:
        """The sum of an array over all instances: what GCL does between IPUs, and MPI between hosts."""
        values = np.array(values)  # MPI takes no scalars
        if self.instances == 1:
            return values
        from mpi4py import MPI

        wide = values.astype(np.float32) if values.dtype == np.float16 else values  # MPI has no 16-bit floats
        total = wide.copy()
        MPI.COMM_WORLD.Allreduce(wide, total)
        return total.astype(values.dtype)

    def require_joined(self, who: str) -> None:
        if not self.joined:
            raise RuntimeError(f"{who}: the instances have not met; call init() first")


def make_config(sdk: Sdk) -> Any:
    """The class IPUConfig."""
    short = {name.rsplit(".", 1)[-1]: members for name, members in sdk.enums.items()}

    class IPUConfig(Category):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            def recorded(name: str, value: Any) -> None:
                sdk.calls.record(f"IPUConfig.{name} =", {"value": value})

            sdk.calls.checked("IPUConfig", sdk.table.classes[CONFIG], lambda: None)(*args, **kwargs)
            super().__init__(sdk.table.config, short, "", recorded)
            self.__dict__.update(device_ipus=None)

    def configure(config: Any) -> None:
        check_config(sdk, config)
        if config.__dict__["device_ipus"] is not None and number_of_ipus(config.auto_select_ipus):
            raise ValueError("auto_select_ipus and the device of PopDist are both set")
        if sdk.is_under_poprun and not config.experimental.multi_replica_distribution.process_count:
            raise RuntimeError("configure_ipu_system() before set_ipu_config(): every instance would train alone")
        ipus = selected_ipus(config)
        if not ipus:
            raise RuntimeError("configure_ipu_system() with no IPUs selected")
        if sdk.ipus not in (None, ipus):
            raise RuntimeError(f"{ipus} IPUs after {sdk.ipus}: the replicas of a run stay as they are")
        if sdk.ipus is None:
            sdk.makes_data_up = "--use_synthetic_data" in sdk.flags
        sdk.ipus = ipus
        sdk.io_tiles = config.io_tiles.num_io_tiles
        sdk.rounding = config.floating_point_behaviour.esr.name
        sdk.is_prng_stable = config.experimental.enable_prng_stability
        if sdk.environ.get(ENGINE):  # part of what an executable is looked for in the cache by
            sdk.calls.record(ENGINE, {"value": sdk.environ[ENGINE]})

    for name, signature in sdk.table.methods[CONFIG].items():

        def method(self: Any, *args: Any, _name: str = name, _signature: Any = signature, **kwargs: Any) -> Any:
            act = (lambda device: configure(self)) if _name == "configure_ipu_system" else None
            return sdk.calls.checked(f"IPUConfig.{_name}", _signature, act)(*args, **kwargs)

        setattr(IPUConfig, name, method)
    return IPUConfig


def is_by_index(config: Any) -> bool:
    """Whether PopDist has chosen the device, by its number among those of the host."""
    return config.__dict__["device_ipus"] is not None


def selected_ipus(config: Any) -> int:
    """The IPUs that a config asks for: PopDist's device, or so many."""
    return config.__dict__["device_ipus"] or number_of_ipus(config.auto_select_ipus)


def check_config(sdk: Sdk, config: Any) -> None:
    """What IPUConfig itself refuses when it is converted for the device, in the SDK's order and with its errors."""
    chosen = [config.select_ipus] if isinstance(config.select_ipus, int) else list(config.select_ipus)
    is_model = "--use_ipu_model" in sdk.environ.get("TF_POPLAR_FLAGS", "")
    if config.auto_select_ipus and config.select_ipus:
        raise Exception("auto_select_ipus and select_ipus are both set")
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"select_ipus has an index twice: {chosen}")
    if config.select_ipus and is_model:
        raise Exception("the IPU Model has no indices to select_ipus by")
    if config.io_tiles.num_io_tiles and config.norms.experimental.distributed_batch_norm_replica_group_size > 1:
        raise ValueError("distributed batch norm cannot be combined with IO tiles")
    for name in sdk.table.poplar_options:
        value = config
        for part in name.split("."):
            value = getattr(value, part)
        check_poplar_options(sdk.table, name, value)
    connection = config.device_connection
    if connection.type.name in ("PRE_COMPILE", "NEVER") and connection.version not in ("ipu1", "ipu2", "ipu21"):
        raise ValueError(f"device_connection.version is {connection.version!r}, and no device tells it")
    distribution = config.experimental.multi_replica_distribution
    if distribution.process_count and is_model:
        raise Exception("several instances cannot use the IPU Model")
    if distribution.process_count and not 0 <= distribution.process_index < distribution.process_count:
        raise ValueError(f"process_index {distribution.process_index} of {distribution.process_count}")
    if config.io_tiles.place_ops_on_io_tiles and not config.io_tiles.num_io_tiles:
        raise ValueError("place_ops_on_io_tiles needs num_io_tiles")
    if is_model and not config.ipu_model.version:
        raise ValueError("the IPU Model needs ipu_model.version")
    if config.norms.experimental.distributed_batch_norm_replica_group_size < 1:
        raise ValueError("distributed_batch_norm_replica_group_size is at least 1")


def set_ipu_config(sdk: Sdk, config: Any, ipus_per_replica: Optional[int], configure_device: bool) -> Any:
    """What popdist.tensorflow.set_ipu_config() does to a config."""
    if type(config).__name__ != "IPUConfig":
        raise TypeError(f"set_ipu_config() takes an IPUConfig, not {type(config).__name__}")
    if sdk.ipus is not None:
        raise RuntimeError("set_ipu_config() after configure_ipu_system()")
    if type(configure_device) is not bool or not (ipus_per_replica is None or type(ipus_per_replica) is int):
        raise TypeError("set_ipu_config(): ipus_per_replica is a whole number, configure_device a bool")
    if configure_device and config.device_connection.type.name in ("PRE_COMPILE", "NEVER"):
        raise RuntimeError("set_ipu_config() looks for a device, and the configuration attaches none")
    if ipus_per_replica not in (None, sdk.ipus_per_replica):
        raise ValueError(f"{ipus_per_replica} IPUs per replica, poprun was given {sdk.ipus_per_replica}")
    distribution = config.experimental.multi_replica_distribution
    distribution.__dict__["_values"].update(process_index=sdk.instance, process_count=sdk.instances)
    if configure_device:
        config.__dict__["device_ipus"] = sdk.local_replicas * sdk.ipus_per_replica
    return config
