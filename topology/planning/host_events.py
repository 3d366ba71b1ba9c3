"""When the host acts during a training: logs, checkpoints, and the device calls between them."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import List, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.sections import Training
from ipulaunch.configs.text import counted, either
from ipulaunch.topology.planning.batch import Batch, updates_per_epoch
from ipulaunch.topology.planning.rules import divisors


class HostEvents(NamedTuple):
    """The updates, counted from 1, after which the host acts."""

    epochs: int
    updates_per_epoch: int
    log_every: int  # updates; 0: only at the end
    checkpoint_every: int  # updates; 0: never
    first_checkpoint: int  # the update after which the first is written; 0: one period into the training
    updates_per_call: int  # the device runs this many before it returns to the host

    @property
    def total_updates(self) -> int:
        return self.epochs * self.updates_per_epoch

    @property
    def calls(self) -> int:
        return self.total_updates // self.updates_per_call

    def logs_at(self, update: int) -> bool:
        """Whether metrics are written after this update."""
        return update == self.total_updates or (self.log_every > 0 and update % self.log_every == 0)

    def saves_at(self, update: int) -> bool:
        """Whether a checkpoint is written after this update."""
        since = update - self.first_checkpoint
        is_due = since >= 0 and (update == self.total_updates or since % max(1, self.checkpoint_every) == 0)
        return self.checkpoint_every > 0 and is_due


def events_of(training: Training, samples: int, batch: Batch) -> Tuple[HostEvents, List[str]]:
    """When the host acts in a training on this many samples, if the job trains; and the warnings."""
    if not training.training:
        return HostEvents(0, 1, log_every=0, checkpoint_every=0, first_checkpoint=0, updates_per_call=1), []
    return host_events(
        training.num_epochs,
        training.weight_updates_per_epoch or updates_per_epoch(samples, batch, training.remainder),
        training.logs_per_epoch,
        training.ckpts_per_epoch,
        training.first_ckpt_epoch,
    )


def in_calls_of(events: HostEvents, batches: int, accumulation: int) -> HostEvents:
    """The events with device calls of so many micro-batches of a replica; all of them must fall between two calls."""
    longest = events.updates_per_call * accumulation
    if batches % accumulation or longest % batches:
        possible = [n * accumulation for n in divisors(events.updates_per_call)]
        near = min(possible, key=lambda steps: abs(steps - batches))
        raise SettingsError(
            f"--batches-per-step is {batches}, and the host hears of the training every {longest} micro-batches of a"
            f" replica, {accumulation} to an update",
            hint=f"use --batches-per-step {near}, or other --logs-per-epoch and --ckpts-per-epoch",
        )
    return events._replace(updates_per_call=batches // accumulation)


class _Kind(NamedTuple):
    """What logs and checkpoints are called."""

    noun: str
    flag: str
    refusal: str


_LOGS = _Kind("logs", "--logs-per-epoch", "not possible to log {period} epochs at a time for {epochs}")
_CHECKPOINTS = _Kind("checkpoints", "--ckpts-per-epoch", "not possible to save every {period} epochs for {epochs}")


def host_events(
    epochs: int,
    updates_per_epoch: int,
    logs_per_epoch: Fraction,
    ckpts_per_epoch: Optional[Fraction],
    first_ckpt_epoch: Fraction = Fraction(0),
) -> Tuple[HostEvents, List[str]]:
    """When the host acts, and a warning for each frequency that could not be kept."""
    all_epochs = saved_epochs = counted(epochs, "epoch")
    epochs_left = math.floor(epochs - first_ckpt_epoch)
    if first_ckpt_epoch:
        saved_epochs = f"the {counted(epochs_left, 'epoch')} after epoch {first_ckpt_epoch}"
    log_every, warnings = _period(_LOGS, logs_per_epoch, updates_per_epoch, epochs, all_epochs)
    more: List[str] = []
    if ckpts_per_epoch is None:
        checkpoint_every = _with_logs(log_every, updates_per_epoch, epochs_left)
    else:
        checkpoint_every, more = _period(_CHECKPOINTS, ckpts_per_epoch, updates_per_epoch, epochs_left, saved_epochs)
    exact = first_ckpt_epoch * updates_per_epoch
    first_checkpoint = _nearest(exact, [math.floor(exact), math.ceil(exact)]) or math.ceil(exact)
    # gcd(x, 0) is x, so an event that never happens does not shorten the calls.
    periods = (log_every, checkpoint_every, first_checkpoint if checkpoint_every else 0)
    call = functools.reduce(math.gcd, periods, epochs * updates_per_epoch)
    if checkpoint_every and first_checkpoint != exact:
        more.append(
            f"epoch {first_ckpt_epoch} ends after {float(exact):g} updates of {updates_per_epoch} per epoch: the first"
            f" checkpoint follows update {first_checkpoint}, with device calls of {counted(call, 'update')}"
        )
    events = HostEvents(epochs, updates_per_epoch, log_every, checkpoint_every, first_checkpoint, updates_per_call=call)
    if not log_every:
        calls = f", after one device call of {call} updates" if events.calls == 1 else ""
        warnings.append(f"0 logs per epoch: metrics are written once, at the end of the training{calls}")
    return events, warnings + more


def _period(kind: _Kind, per_epoch: Fraction, updates: int, epochs: int, over: str) -> Tuple[int, List[str]]:
    """The updates from one event to the next, 0 for none; and a warning if they differ from the request."""
    if not per_epoch:
        return 0, []
    if per_epoch >= 1:
        events = _nearest(per_epoch, divisors(updates))
        warning = f"{per_epoch} {kind.noun} per epoch do not divide its {updates} updates: using {events}"
        return updates // events, [] if events == per_epoch else [warning]
    wanted = 1 / per_epoch
    period = _nearest(wanted, [math.floor(wanted), math.ceil(wanted)])
    if epochs % period:
        below = max(divisor for divisor in divisors(epochs) if divisor < period)
        above = [divisor for divisor in divisors(epochs) if divisor > period][:1]
        frequencies = either(Fraction(1, divisor) for divisor in [below, *above])
        raise SettingsError(kind.refusal.format(period=period, epochs=over), hint=f"use {kind.flag} {frequencies}")
    epochs_of_period = "every epoch" if period == 1 else f"every {period} epochs"
    warning = f"{per_epoch} {kind.noun} per epoch are {wanted} epochs apart: using {epochs_of_period}"
    return period * updates, [] if period == wanted else [warning]


def _with_logs(log_every: int, updates: int, epochs: int) -> int:
    """The updates between checkpoints if the user gives no frequency: an epoch's, or those between rarer logs.

    So no checkpoint splits a device call that the logs leave whole.
    """
    longer = log_every or epochs * updates
    return longer if longer > updates and epochs * updates % longer == 0 else updates


def _nearest(wanted: Fraction, numbers: List[int]) -> int:
    return min(numbers, key=lambda number: (abs(number - wanted), number))
