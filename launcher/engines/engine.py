"""An engine: what starts the instances of a launch. Each engine is one module of this folder; see registry.py."""

from __future__ import annotations

import abc
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar

from ipulaunch.configs.messages import Message, note
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.topology import Plan

# What an engine may need of a machine beside Python; the doctor looks for it.
SDK, POPRUN, MPI = "the Poplar SDK", "poprun", "Open MPI"

AnEngine = TypeVar("AnEngine", bound="Engine")


class CommandRequest(NamedTuple):
    """What an engine makes a command from."""

    plan: Plan
    program: Tuple[str, ...]  # what every instance runs
    options: LaunchOptions
    forward: Tuple[str, ...] = ()  # names of variables that the instances get
    env: Mapping[str, str] = {}  # the values of those that the command line sets
    stall_timeout_s: float = float("inf")  # after which an instance without a sign of life is considered hung


@dataclass(frozen=True)
class Engine(abc.ABC):
    """One way to start instances. The defaults below are those of an engine that starts any program on any host."""

    is_here: bool = False  # whether this machine has it
    reason: str = ""  # why ipulaunch chose it, if the user did not

    name: ClassVar[str]
    summary: ClassVar[str]  # what the user reads when a run starts
    backend: ClassVar[str]  # what computes: "ipu" or "cpu"
    needs: ClassVar[Tuple[str, ...]]  # of SDK, POPRUN and MPI
    wraps_programs: ClassVar[bool] = False  # a module of ours starts a user's program in each instance
    spreads_over_pod: ClassVar[bool] = False  # without --hosts it runs on the hosts of the POD, else on this machine
    asks_hosts: ClassVar[bool] = False  # ipulaunch asks each host over ssh before it starts instances there
    tags_output: ClassVar[bool] = True  # whether it tells which instance has written a line

    @property
    def is_rehearsal(self) -> bool:
        return self.backend == "cpu"

    @property
    def about(self) -> str:
        return f"{self.summary} ({self.reason})" if self.reason else self.summary

    @classmethod
    @abc.abstractmethod
    def of_this_machine(cls: Type[AnEngine], reason: str = "") -> AnEngine:
        """The engine as it is here: `is_here` says whether it can start anything."""

    @abc.abstractmethod
    def require(self) -> None:
        """Refuse to start anything where this machine lacks the engine."""

    @abc.abstractmethod
    def command(self, request: CommandRequest) -> Tuple[Command, List[Message]]:
        """The command that starts all instances, and what the user should know about it."""

    def offline(self, options: LaunchOptions) -> Tuple[LaunchOptions, List[Message]]:
        """The options for --compile-only, which attaches no IPU."""
        return options, []

    def instances(self, given: Optional[int], ipus: int, hosts: Sequence[str]) -> Optional[int]:
        """The number of instances to plan with; None where the plan decides. Refuses what the engine cannot start."""
        return given

    def require_programs(self) -> None:  # noqa: B027 - most engines start any program
        """Refuse to start programs other than our workers, if the engine cannot."""

    def python(self, options: LaunchOptions) -> str:
        """The Python of the instances. A path of this machine means nothing on another one."""
        return options.python or (sys.executable if self.is_here else "python3")

    def worker(self, workload: str, options: LaunchOptions) -> List[str]:
        """The words that start a worker, before its own options."""
        return [self.python(options), "-m", "ipulaunch.workers", workload, "--backend", self.backend]

    def plan_words(self, plan: Plan) -> List[str]:
        """Options of a worker that tell it of the plan what the engine does not."""
        return []

    def program(
        self, words: Sequence[str], options: LaunchOptions, run_dir: Optional[Path]
    ) -> Tuple[List[str], List[Message]]:
        """The words that start a program of the user; what waits for it may record how it ends in a run directory."""
        return list(words), []


def allows_root(engine: Engine, options: LaunchOptions) -> Tuple[bool, List[Message]]:
    """Whether MPI must be told that it may run as root."""
    if options.allow_run_as_root is not None:
        return options.allow_run_as_root, []
    if engine.is_here and os.geteuid() == 0:
        return True, [note("running as root: ipulaunch allows MPI to do so")]
    return False, []


def flags(keys: Sequence[str]) -> str:
    """Options by their names in Python, as the user writes them."""
    return ", ".join("--" + key.replace("_", "-") for key in keys)
