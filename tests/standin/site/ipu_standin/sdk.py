"""The state of one process with the SDK: its place among the instances, its IPUs, and what has been called so far."""

from __future__ import annotations

import enum
from typing import Any, Dict, Mapping, Optional

from ipu_standin.calls import Calls
from ipu_standin.config import Category, number_of_ipus
from ipu_standin.table import Table

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

    def _count(self, name: str, default: int) -> int:
        return int(self.environ.get(f"POPDIST_{name}", default))

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
        if self.instances == 1:
            return values
        from mpi4py import MPI

        total = values.copy()
        MPI.COMM_WORLD.Allreduce(values, total)
        return total

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
        selected = number_of_ipus(config.auto_select_ipus)
        if config.__dict__["device_ipus"] is not None and selected:
            raise ValueError("auto_select_ipus and the device of PopDist are both set")
        if sdk.is_under_poprun and not config.experimental.multi_replica_distribution.process_count:
            raise RuntimeError("configure_ipu_system() before set_ipu_config(): every instance would train alone")
        sdk.ipus = config.__dict__["device_ipus"] or selected
        if not sdk.ipus:
            raise RuntimeError("configure_ipu_system() with no IPUs selected")

    for name, signature in sdk.table.methods[CONFIG].items():

        def method(self: Any, *args: Any, _name: str = name, _signature: Any = signature, **kwargs: Any) -> Any:
            act = (lambda device: configure(self)) if _name == "configure_ipu_system" else None
            return sdk.calls.checked(f"IPUConfig.{_name}", _signature, act)(*args, **kwargs)

        setattr(IPUConfig, name, method)
    return IPUConfig


def set_ipu_config(sdk: Sdk, config: Any, ipus_per_replica: Optional[int], configure_device: bool) -> Any:
    """What popdist.tensorflow.set_ipu_config() does to a config."""
    if type(config).__name__ != "IPUConfig":
        raise TypeError(f"set_ipu_config() takes an IPUConfig, not {type(config).__name__}")
    if sdk.ipus is not None:
        raise RuntimeError("set_ipu_config() after configure_ipu_system()")
    if type(configure_device) is not bool or not (ipus_per_replica is None or type(ipus_per_replica) is int):
        raise TypeError("set_ipu_config(): ipus_per_replica is a whole number, configure_device a bool")
    if ipus_per_replica not in (None, sdk.ipus_per_replica):
        raise ValueError(f"{ipus_per_replica} IPUs per replica, poprun was given {sdk.ipus_per_replica}")
    distribution = config.experimental.multi_replica_distribution
    distribution.__dict__["_values"].update(process_index=sdk.instance, process_count=sdk.instances)
    if configure_device:
        config.__dict__["device_ipus"] = sdk.local_replicas * sdk.ipus_per_replica
    return config
