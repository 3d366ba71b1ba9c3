"""A group of commands that says which of them was probably meant."""

from __future__ import annotations

from typing import Any, List

import click

from ipulaunch.configs.errors import near_miss


class NearMissGroup(click.Group):
    """Answers the name of a command that is not there with the nearest one."""

    what = "workload"  # there is none of that name

    def resolve_command(self, ctx: click.Context, args: List[str]) -> Any:
        is_unknown = args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx)
        if is_unknown and not ctx.resilient_parsing:  # completion in a shell shows no errors
            hint = near_miss(args[0], self.list_commands(ctx))
            raise click.UsageError(f"There is no {self.what} {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)
