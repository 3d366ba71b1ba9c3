"""Batch arithmetic: how many samples a weight update takes, and how they are divided.

With M the micro-batch, R the replicas over all instances and A the accumulation steps, one weight update consumes
G = M x R x A samples. Position ((a x R) + r) x M + m of an update's samples is sample m of step a on replica r,
whatever the number of instances: that is what keeps one process and many the same training.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.text import counted


class Batch(NamedTuple):
    """How the samples of one weight update are divided."""

    micro_size: int
    replicas: int
    accumulation: int

    @property
    def global_size(self) -> int:
        return self.micro_size * self.replicas * self.accumulation

    @property
    def formula(self) -> str:
        return f"global batch {self.division}"

    @property
    def division(self) -> str:
        """The global size and its factors."""
        return (
            f"{self.global_size} = micro-batch {self.micro_size}"
            f" x {counted(self.replicas, 'replica')} x accumulation {self.accumulation}"
        )


def make_batch(
    micro_size: int,
    replicas: int,
    accumulation: Optional[int],
    global_size: Optional[int],
    turn: int = 1,
    least: int = 1,
) -> Tuple[Batch, List[str]]:
    """The batch, and a warning where the global size asked for had to be rounded.

    `turn` is how many micro-batches fill the schedule of a pipeline: what a global size is rounded to. `least` is how
    many an update has at least, if that is more than one turn.
    """
    if accumulation is not None and global_size is not None:
        raise SettingsError(
            f"global batch {global_size} and accumulation {accumulation} are both given; one follows from the other",
            hint="give --global-batch-size or --gradient-accumulation-count, not both",
        )
    if global_size is None:
        return Batch(micro_size, replicas, accumulation or max(turn, least)), []
    step = micro_size * replicas * turn
    batch = Batch(micro_size, replicas, max(least, turn * max(1, (2 * global_size + step) // (2 * step))))
    if batch.global_size == global_size:
        return batch, []
    is_short = least > turn and global_size < micro_size * replicas * least
    count = least if is_short else turn
    factors = f"{micro_size} x {replicas}" + (f" x {count} to fill the pipeline" if count > 1 else "")
    what = "less than" if is_short else "not a multiple of"
    arithmetic = f"a global batch of {global_size} is {what} {factors} = {micro_size * replicas * count}"
    return batch, [f"{arithmetic}: using {batch.global_size} with accumulation {batch.accumulation}"]


def updates_per_epoch(samples: int, batch: Batch, remainder: str) -> int:
    """Weight updates in one pass over the samples, when the rest that fills no batch is dropped or filled up."""
    updates = samples // batch.global_size if remainder == "drop" else -(-samples // batch.global_size)
    if not updates:
        raise SettingsError(
            f"{samples} training samples do not fill one {batch.formula}",
            hint="give more samples, fewer replicas, less accumulation, or --remainder repeat",
        )
    return updates


def samples_of(updates: range, samples: int, batch: Batch, remainder: str) -> int:
    """How many samples these updates take, counted from the start of training; padding does not count."""
    if remainder != "pad":
        return len(updates) * batch.global_size
    per_epoch = updates_per_epoch(samples, batch, remainder)

    def before(update: int) -> int:
        epochs, rest = divmod(update, per_epoch)
        return epochs * samples + rest * batch.global_size  # only the last update of an epoch is padded

    return before(updates.stop) - before(updates.start)
