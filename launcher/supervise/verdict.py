"""How a run ended. It is good only if the engine and every instance say so."""

from __future__ import annotations

import functools
import re
import shlex
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ipulaunch.configs.errors import INTERRUPTED, DataError, JobError, SettingsError, StoppedError
from ipulaunch.configs.runs.directory import RunDirectory, whole_run
from ipulaunch.configs.runs.last_records import Failed, asks_to_continue, read_failed, read_stopped
from ipulaunch.launcher.supervise.blame import Blame, blamed_by_engine, blamed_by_records
from ipulaunch.launcher.supervise.instance_logs import Unkept
from ipulaunch.launcher.supervise.stall import Hang
from ipulaunch.topology import Plan

_LOG_LINES = 12
_LOG_BYTES = 8192
# The last words of a process that has no memory left to say more with: of C++, and of the C library.
_NO_MEMORY = re.compile(r"std::bad_alloc|[Cc]annot allocate memory")
_KILLED_HINT = "if nobody did that, its host was out of memory: see dmesg there"


@dataclass(frozen=True)
class Verdict:
    """How an attempt ended, and what helps to understand it."""

    exit_code: int
    reason: str  # a sentence, about the instance where there is one
    host: str = ""
    instance: Optional[int] = None  # the instance that failed first
    hint: str = ""
    engine_lines: Tuple[str, ...] = ()  # what the engine said last
    unkept_lines: Tuple[str, ...] = ()  # output of instances for which there was no room in their logs
    log_lines: Tuple[str, ...] = ()  # the end of the log
    log: Optional[Path] = None  # where to read on
    resume: str = ""  # the command that continues the run
    restarts: int = 0  # before this attempt
    max_restarts: int = 0
    preemptions: int = 0  # with this one
    max_preemptions: int = 0
    was_asked_to_stop: bool = False  # whether or not it did
    asks_to_continue: bool = False  # a program of the user's own, by itself

    @property
    def headline(self) -> str:
        """One line."""
        who = "" if self.instance is None else f"{self.host}:{self.instance} "
        return f"{who}{self.reason}{self._preempted}"

    @property
    def _preempted(self) -> str:
        if not self.preemptions:
            return ""
        if self.preemptions > self.max_preemptions:
            return f"; preempted {self.preemptions} times, and --max-preemptions is {self.max_preemptions}"
        return f" (preemption {self.preemptions} of {self.max_preemptions})"


@dataclass(frozen=True)
class End:
    """What is known when the engine has ended: its exit code and last lines, and what the instances have recorded."""

    run: RunDirectory
    plan: Plan
    code: int
    engine_lines: Sequence[str]
    ours: bool  # workers, which must leave done.json; programs of users need not
    stopped_by: Optional[int] = None
    unkept: Sequence[Unkept] = ()
    hung: Optional[Hang] = None
    ended_ns: Optional[int] = None  # when the launcher began to end the run, if it did
    kept: Optional[int] = None  # the update of the newest checkpoint
    is_direct: bool = False  # what ended is the only instance itself
    ask_hosts: Callable[[], Mapping[str, str]] = dict  # what is wrong with which host; asked if all else fails

    @property
    def instances(self) -> Iterator[int]:
        return (placement.instance for placement in self.plan.placements)

    @functools.cached_property
    def first_error(self) -> Optional[Tuple[int, Failed]]:
        """The earliest error of an instance; those since the launcher began to end the run are because of that."""
        records = ((instance, read_failed(self.run, instance)) for instance in self.instances)
        found = [(instance, record) for instance, record in records if record is not None]
        if not found:
            return None
        instance, record = min(found, key=lambda one: (one[1].time_ns, one[0]))
        return (instance, record) if self.ended_ns is None or record.time_ns < self.ended_ns else None

    @functools.cached_property
    def first_exit(self) -> Optional[Blame]:
        """The program of a user that failed first."""
        return None if self.ours else blamed_by_records(self.run, self.plan, self.ended_ns)

    @functools.cached_property
    def blame(self) -> Optional[Blame]:
        """The instance that ended first, by the records of programs or the words of the engine."""
        if self.is_direct:
            return Blame(0, signal=max(0, -self.code), exit_code=max(0, self.code))
        return self.first_exit or blamed_by_engine("\n".join(self.engine_lines), self.plan, self.code)

    @functools.cached_property
    def missing(self) -> List[int]:
        """The instances that should have left done.json, and have not."""
        return [instance for instance in self.instances if self.ours and not self.run.done(instance).exists()]

    @functools.cached_property
    def lost_host(self) -> Optional[str]:
        return _lost("\n".join(self.engine_lines), self.plan)

    def who(self, instance: int) -> str:
        return f"{self.plan.placements[instance].host}:{instance}"

    def engine_said(self) -> Verdict:
        """A failure, with what the engine said."""
        lines = tuple(line for line in self.engine_lines if line.strip())
        return replace(self.failed(), engine_lines=lines, unkept_lines=self.unkept_lines())

    def failed(self) -> Verdict:
        """A failure without a reason yet."""
        return Verdict(JobError.exit_code, "", resume=_how_to_resume(self.run))

    def blaming(self, verdict: Verdict, instance: int, reason: str) -> Verdict:
        return replace(verdict, reason=reason, host=self.plan.placements[instance].host, instance=instance)

    def with_log(self, verdict: Verdict, instance: int, without: Sequence[str] = ()) -> Verdict:
        """The verdict with the end of an instance's log."""
        lines = tuple(line for line in last_lines(self.run.log(instance)) if line not in without)
        return replace(verdict, log_lines=lines, log=self.run.log(instance))

    def unkept_lines(self, instance: Optional[int] = None) -> Tuple[str, ...]:
        """What could not be kept of one instance, or of all, and why."""
        return tuple(
            each.line if each.instance is None else f"{self.who(each.instance)}| {each.line}"
            for each in self.unkept
            if instance is None or each.instance in (instance, None)
        )


def judge(end: End) -> Verdict:
    """The verdict is that of the first explanation that fits."""
    verdict = next(filter(None, (explain(end) for explain in _EXPLANATIONS)))
    return replace(verdict, was_asked_to_stop=verdict.was_asked_to_stop or end.stopped_by is not None)


def _stopped(end: End) -> Optional[Verdict]:
    """All instances have stopped together, on request. After Ctrl-C, the exit code is still that of an interruption."""
    if not end.ours or not all(end.run.stopped(instance).exists() for instance in end.instances):
        return None
    code = INTERRUPTED if end.stopped_by == signal.SIGINT else StoppedError.exit_code
    return Verdict(code, read_stopped(end.run, 0).message, resume=_how_to_resume(end.run), was_asked_to_stop=True)


def _done(end: End) -> Optional[Verdict]:
    is_good = end.code == 0 and not end.missing and end.first_error is None and end.first_exit is None
    return Verdict(0, "done") if is_good and (end.ours or end.stopped_by is None) else None


def _to_be_continued(end: End) -> Optional[Verdict]:
    """The program of a user that ended first asks for another start; after a request to stop, any of them can."""
    if end.ours:
        return None
    instance = asks_to_continue(end.run, end.instances) if end.stopped_by is not None else None
    if instance is None and end.blame is not None and end.blame.exit_code == StoppedError.exit_code:
        instance = end.blame.instance
    if instance is None:
        return None
    code = INTERRUPTED if end.stopped_by == signal.SIGINT else StoppedError.exit_code
    verdict = Verdict(code, "", resume=_how_to_resume(end.run), asks_to_continue=end.stopped_by is None)
    return end.blaming(verdict, instance, f"asks to be continued: it ended with exit code {StoppedError.exit_code}")


def _interrupted(end: End) -> Optional[Verdict]:
    # A scheduler's signal may reach the engine's daemons on other hosts, and end them.
    if end.stopped_by is None or (end.first_error is not None and end.lost_host is None):
        return None
    return interrupted(end.run, end.stopped_by, ours=end.ours, kept=end.kept)


def _hung(end: End) -> Optional[Verdict]:
    if end.hung is None or end.stopped_by is not None:
        return None
    verdict = replace(end.failed(), reason=end.hung.said, hint=end.hung.hint)
    return end.with_log(verdict, end.hung.instance)


def _host_lost(end: End) -> Optional[Verdict]:
    """Errors on other hosts are consequences of the lost host."""
    if end.lost_host is None:
        return None
    reason = f"host {end.lost_host} was lost: the engine's daemon there does not answer"
    return replace(end.engine_said(), reason=reason)


def _failed_first(end: End) -> Optional[Verdict]:
    if end.first_error is None:
        return None
    instance, record = end.first_error
    verdict = end.blaming(end.failed(), instance, f"failed first: {record.type}: {record.first_line}")
    verdict = replace(verdict, exit_code=record.exit_code, hint=record.hint)
    if end.kept is None and record.exit_code in (DataError.exit_code, SettingsError.exit_code):
        verdict = replace(verdict, resume="")  # with the same settings, which are what is wrong
    return end.with_log(verdict, instance, without=(f"error: {record.message}", f"hint: {record.hint}"))


def _unrecorded(end: End) -> Optional[Verdict]:
    """The engine says that all is well, and the records do not."""
    if end.code != 0 or not end.missing:
        return None
    first = end.missing[0]
    count = f"{len(end.missing)} of {end.plan.instances} have none"
    verdict = end.blaming(end.engine_said(), first, f"ended without its done.json ({count})")
    return end.with_log(verdict, first)


def _blamed_first(end: End) -> Optional[Verdict]:
    """An instance that left no record of its own, and that another record or the engine names."""
    blame = end.blame
    if blame is None:
        return None
    unkept = end.unkept_lines(blame.instance)
    verdict = end.with_log(replace(end.failed(), unkept_lines=unkept), blame.instance)
    has_memory = not _NO_MEMORY.search("\n".join((*unkept, *verdict.log_lines)))
    reason = f"failed first: it {blame.text}{'' if has_memory else ', out of memory'}"
    hint = _KILLED_HINT if blame.signal == signal.SIGKILL else ""
    return end.blaming(replace(verdict, hint=hint), blame.instance, reason)


def _engine_failed(end: End) -> Verdict:
    """No record and no line of the engine says why; perhaps the hosts do."""
    code, verdict = end.code, end.engine_said()
    reason = f"the engine ended with exit code {code}" if code > 0 else f"the engine was ended by {_signal(code)}"
    hosts = end.ask_hosts()
    if hosts:
        return replace(verdict, reason=f"{_troubles(hosts)}; {reason}")
    silent = f"; {end.who(end.missing[0])} has left no record" if end.missing and code > 0 else ""
    verdict = replace(verdict, reason=reason + silent)
    # Open MPI does not name an instance that ends after another one has left.
    if verdict.engine_lines or verdict.unkept_lines:
        return replace(verdict, log=end.run.engine_log if end.run.engine_log.exists() else None)
    if end.missing:
        return end.with_log(verdict, end.missing[0])
    return replace(verdict, log=end.run.path / "instance-*" / "log.txt")


_EXPLANATIONS: Tuple[Callable[[End], Optional[Verdict]], ...] = (
    _stopped,
    _done,
    _to_be_continued,
    _interrupted,
    _hung,
    _host_lost,
    _failed_first,
    _unrecorded,
    _blamed_first,
    _engine_failed,
)


def interrupted(
    run: RunDirectory,
    stopped_by: int,
    what: str = "every instance was ended",
    *,
    ours: bool,
    kept: Optional[int] = None,
    goes_on: bool = False,
) -> Verdict:
    """A run that a signal has ended. One that can be started again says so with its exit code, but for Ctrl-C.

    A program `goes_on` only if it was about to be started again: one that was ended may have nothing to go on from.
    """
    reason = f"interrupted by {signal.Signals(stopped_by).name}: {what}"
    if ours:
        continues = f"started again, it continues from the checkpoint of update {kept}"
        begins = "there is no checkpoint yet: started again, it starts from the beginning"
        reason += f"; {begins if kept is None else continues}"
    code = StoppedError.exit_code if (ours or goes_on) and stopped_by != signal.SIGINT else INTERRUPTED
    return Verdict(code, reason, resume=_how_to_resume(run), was_asked_to_stop=True)


def not_started(run: RunDirectory, missing: Mapping[str, str]) -> Verdict:
    """An attempt that could not begin, as hosts are missing."""
    hint = "--elastic-hosts restarts on the hosts that answer; ipulaunch resume has --hosts"
    return Verdict(JobError.exit_code, f"not started: {_troubles(missing)}", hint=hint, resume=_how_to_resume(run))


def _troubles(hosts: Mapping[str, str]) -> str:
    return "; ".join(f"host {host} {what}" for host, what in hosts.items())


def _how_to_resume(run: RunDirectory) -> str:
    """The command that continues a run, from its start where it has no checkpoint."""
    can_resume = run.job.exists() or run.program.exists()
    return f"ipulaunch resume {shlex.quote(str(whole_run(run.path)))}" if can_resume else ""


def _lost(text: str, plan: Plan) -> Optional[str]:
    """The host whose daemon Open MPI says it has lost, as the plan names it."""
    match = re.search(r"lost communication with a remote daemon.*?Remote daemon\s*: \S+ on node (\S+)", text, re.DOTALL)
    match = match or re.search(r"daemon failed to report back.*?Remote host:\s*(\S+)", text, re.DOTALL)
    if match is None:
        return None
    found = match.group(1)
    return next((host for host in plan.hosts if host.split(".")[0] == found.split(".")[0]), found)


def _signal(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def last_lines(log: Path) -> List[str]:
    """The end of a log."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LOG_BYTES))
            return file.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
    except OSError:
        return []
