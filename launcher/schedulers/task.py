"""What a job runs: one of our workloads, or a program of the user's own."""

from __future__ import annotations

import abc
from typing import ClassVar, List, Tuple

from ipulaunch.configs.messages import Message
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.launch.planning import UnnamedHosts
from ipulaunch.topology.planning.solver import Solution


class Task(abc.ABC):
    """What a job calls ipulaunch for."""

    record: ClassVar[str]  # a file that its run has from its first start on
    command: str  # of ipulaunch
    grace_s: float  # to stop
    program: Tuple[str, ...] = ()  # the words behind the options

    @abc.abstractmethod
    def plan(self, options: LaunchOptions, engine: Engine, unnamed: UnnamedHosts) -> Solution:
        """Its plan."""

    @abc.abstractmethod
    def launch(self, solution: Solution, options: LaunchOptions, engine: Engine) -> Launch:
        """Its launch, once it is planned."""

    @abc.abstractmethod
    def words(self, solution: Solution) -> List[str]:
        """Its own options, beside those of the launch."""

    @abc.abstractmethod
    def messages(self, *, in_pods: bool) -> List[Message]:
        """What the user should know about it."""
