"""A job that runs one of our workloads."""

from __future__ import annotations

from typing import List

from ipulaunch.configs.messages import Message
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.earlier_runs import about_resume, with_resume
from ipulaunch.launcher.launch.launch import Launch, launch_planned
from ipulaunch.launcher.launch.needs import require_images
from ipulaunch.launcher.launch.planning import UnnamedHosts
from ipulaunch.launcher.launch.workload_planning import plan_workload
from ipulaunch.launcher.schedulers.pinned import batch_words, setting_words
from ipulaunch.launcher.schedulers.task import Task
from ipulaunch.topology.planning.solver import Solution


class WorkloadTask(Task):
    """A training with one of our workloads."""

    record = "job.yaml"

    def __init__(self, resolved: Resolved, *, in_pods: bool) -> None:
        self.given, self.resolved = resolved, with_resume(resolved, elsewhere=in_pods)
        self.command, self.grace_s = resolved.workload, resolved.settings.survival.grace_s

    def plan(self, options: LaunchOptions, engine: Engine, unnamed: UnnamedHosts) -> Solution:
        return plan_workload(self.given, options, engine, unnamed=unnamed)

    def launch(self, solution: Solution, options: LaunchOptions, engine: Engine) -> Launch:
        require_images(self.command, self.resolved.settings.data)  # else the job would fail later, after the queue
        return launch_planned(solution, self.resolved, options, engine, None)

    def words(self, solution: Solution) -> List[str]:
        return [*batch_words(solution.plan), *setting_words(self.resolved)]

    def messages(self, *, in_pods: bool) -> List[Message]:
        return about_resume(self.given, self.resolved)
