"""A job that runs a PopDist program of the user's own."""

from __future__ import annotations

from typing import List

from ipulaunch.configs.messages import Message, note
from ipulaunch.configs.settings.schema import flag_of
from ipulaunch.configs.settings.sections import Launch as LaunchSettings
from ipulaunch.configs.settings.sections import Survival
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.launch import Launch, launch_program
from ipulaunch.launcher.launch.planning import UnnamedHosts
from ipulaunch.launcher.launch.program import OF_PROGRAMS, Program
from ipulaunch.launcher.launch.program_planning import plan_program
from ipulaunch.launcher.schedulers.task import Task
from ipulaunch.topology.planning.solver import Solution


class ProgramTask(Task):
    """A PopDist program of the user's own."""

    record = "program.json"
    command = "run"

    def __init__(self, program: Program, settings: LaunchSettings) -> None:
        self.own, self.settings, self.program = program, settings, program.words
        self.grace_s = program.survival.grace_s

    def plan(self, options: LaunchOptions, engine: Engine, unnamed: UnnamedHosts) -> Solution:
        return plan_program(options, engine, self.settings, unnamed=unnamed)

    def launch(self, solution: Solution, options: LaunchOptions, engine: Engine) -> Launch:
        return launch_program(solution, self.own, options, engine)

    def words(self, solution: Solution) -> List[str]:
        now, usual = self.own.survival, Survival()
        given = [name for name in OF_PROGRAMS if getattr(now, name) != getattr(usual, name)]
        return [f"{flag_of(Survival, name)}={getattr(now, name):g}" for name in given]

    def messages(self, *, in_pods: bool) -> List[Message]:
        text = "the program is called in the working directory of the image, where its paths must lead somewhere"
        return [note(text)] if in_pods else []
