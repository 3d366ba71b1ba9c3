"""Groups of commands: with the nearest name to a wrong one, and with one command for each workload."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import click

from ipulaunch.configs.errors import near_miss
from ipulaunch.configs.settings.workloads import SUMMARIES


class NearMissGroup(click.Group):
    """Answers the name of a command that is not there with the nearest one."""

    what = "workload"  # there is none of that name

    def resolve_command(self, ctx: click.Context, args: List[str]) -> Any:
        is_unknown = args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx)
        if is_unknown and not ctx.resilient_parsing:  # completion in a shell shows no errors
            hint = near_miss(args[0], self.list_commands(ctx))
            raise click.UsageError(f"There is no {self.what} {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


class WorkloadGroup(NearMissGroup):
    """One command for each workload, made when it is used, and those that are added."""

    make: Callable[[str], click.Command]

    def for_each_workload(self, make: Callable[[str], click.Command]) -> Callable[[str], click.Command]:
        """The decorator of the function that makes the command of a workload."""
        self.make = make
        return make

    def list_commands(self, ctx: click.Context) -> List[str]:
        return [*SUMMARIES, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        return self.make(name) if name in SUMMARIES else super().get_command(ctx, name)
