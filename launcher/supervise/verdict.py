"""How a run ended: good only if the engine and every instance say so."""

from __future__ import annotations

import functools
import re
import shlex
import signal
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ipulaunch.configs.errors import INTERRUPTED, DataError, JobError, SettingsError, StoppedError
from ipulaunch.configs.runs.directory import RunDirectory, whole_run
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.launcher.supervise.stall import Hang
from ipulaunch.topology import Plan

_LOG_LINES = 12
_LOG_BYTES = 8192
# The last words of a process that has no memory left to say more with: of C++, and of the C library.
_NO_MEMORY = re.compile(r"std::bad_alloc|[Cc]annot allocate memory")


@dataclass(frozen=True)
class Verdict:
    """The end of a run in words and as an exit code."""

    exit_code: int
    headline: str
    details: Tuple[str, ...] = ()
    was_asked_to_stop: bool = False  # whatever became of it then


@dataclass(frozen=True)
class End:
    """What is known when the engine has ended: its exit code and last lines, and what the instances have recorded."""

    run: RunDirectory
    plan: Plan
    code: int
    engine_lines: Sequence[str]
    ours: bool  # workers, which must leave done.json; programs of users need not
    stopped_by: Optional[int] = None
    hung: Optional[Hang] = None
    ended_ns: Optional[int] = None  # when the launcher began to end the run, if it did
    kept: Optional[int] = None  # the update of the newest checkpoint
    is_direct: bool = False  # what ended is the only instance itself
    ask_hosts: Callable[[], Mapping[str, str]] = dict  # which host is in what trouble; asked where nothing else tells

    @property
    def instances(self) -> Iterator[int]:
        return (placement.instance for placement in self.plan.placements)

    @functools.cached_property
    def first_error(self) -> Optional[Tuple[int, Dict[str, Any]]]:
        return _first_error(self.run, self.plan, self.ended_ns)

    @functools.cached_property
    def missing(self) -> List[int]:
        """The instances that should have left done.json, and have not."""
        return [instance for instance in self.instances if self.ours and not self.run.done(instance).exists()]

    @functools.cached_property
    def lost_host(self) -> Optional[str]:
        return _lost("\n".join(self.engine_lines), self.plan)

    @property
    def engine_said(self) -> List[str]:
        return [f"{self.engine_tag}{line}" for line in self.engine_lines if line.strip()]

    @property
    def engine_tag(self) -> str:
        return "" if self.is_direct else "engine: "  # what is left then are lines of the launcher

    def failed(self, headline: str, *details: str) -> Verdict:
        return Verdict(JobError.exit_code, headline, (*details, *_how_to_resume(self.run)))


def judge(end: End) -> Verdict:
    """The verdict is that of the first explanation that fits."""
    verdict = next(filter(None, (explain(end) for explain in _EXPLANATIONS)))
    return replace(verdict, was_asked_to_stop=verdict.was_asked_to_stop or end.stopped_by is not None)


def _stopped(end: End) -> Optional[Verdict]:
    """All instances have left together, on request. Ctrl-C is still an interruption to whoever waits for the code."""
    if not end.ours or not all(end.run.stopped(instance).exists() for instance in end.instances):
        return None
    try:
        message = parse_json(read_text(end.run.stopped(0)))["message"]
    except (OSError, ValueError, KeyError, TypeError):
        message = "stopped on request"
    code = INTERRUPTED if end.stopped_by == signal.SIGINT else StoppedError.exit_code
    return Verdict(code, str(message), _how_to_resume(end.run), was_asked_to_stop=True)


def _done(end: End) -> Optional[Verdict]:
    is_good = end.code == 0 and not end.missing and end.first_error is None
    return Verdict(0, "done") if is_good and (end.ours or end.stopped_by is None) else None


def _interrupted(end: End) -> Optional[Verdict]:
    # A scheduler's signal may reach the engine's daemons on other hosts, and end them.
    if end.stopped_by is None or (end.first_error is not None and end.lost_host is None):
        return None
    return interrupted(end.run, end.stopped_by, ours=end.ours, kept=end.kept)


def _hung(end: End) -> Optional[Verdict]:
    if end.hung is None or end.stopped_by is not None:
        return None
    hint = [f"hint: {end.hung.hint}"] if end.hung.hint else []
    return end.failed(end.hung.said, *hint, *_log_tail(end.run, end.hung.instance))


def _host_lost(end: End) -> Optional[Verdict]:
    """Whatever the other hosts record then, is because of it."""
    if end.lost_host is None:
        return None
    return end.failed(f"host {end.lost_host} was lost: the engine's daemon there does not answer", *end.engine_said)


def _failed_first(end: End) -> Optional[Verdict]:
    if end.first_error is None:
        return None
    instance, record = end.first_error
    headline = f"{_who(end.plan, instance)} failed first: {record.get('type')}: {_first_line(record.get('message'))}"
    said = {f"  | error: {record.get('message')}", f"  | hint: {record.get('hint')}"}
    hint = [f"hint: {record['hint']}"] if record.get("hint") else []
    details = [*hint, *(line for line in _log_tail(end.run, instance) if line not in said)]
    code = _exit_code(record)
    if end.kept is not None or code not in (DataError.exit_code, SettingsError.exit_code):
        details += _how_to_resume(end.run)  # with the same settings, which are what is wrong if nothing was reached
    return Verdict(code, headline, tuple(details))


def _unrecorded(end: End) -> Optional[Verdict]:
    """The engine says that all is well, and the records do not."""
    if end.code != 0:
        return None
    first = end.missing[0]
    count = f"{len(end.missing)} of {end.plan.instances} have none"
    headline = f"{_who(end.plan, first)} ended without its done.json ({count})"
    return end.failed(headline, *end.engine_said, *_log_tail(end.run, first))


def _blamed_first(end: End) -> Optional[Verdict]:
    """An instance that left no record, and of which the engine has told."""
    if end.is_direct:
        how = f"was ended by signal {-end.code}" if end.code < 0 else f"ended with exit code {end.code}"
        blamed: Optional[Tuple[int, str]] = (0, how)
    else:
        blamed = _blamed("\n".join(end.engine_lines), end.plan, end.code)
    if blamed is None:
        return None
    instance, how = blamed
    headline = f"{_who(end.plan, instance)} failed first: it {how}"
    unkept = (f"{end.engine_tag}{_who(end.plan, instance)}| ", f"{end.engine_tag}output could not be kept")
    tail = [*(line for line in end.engine_said if line.startswith(unkept)), *_log_tail(end.run, instance)]
    if _NO_MEMORY.search("\n".join(tail)):
        headline += ", out of memory"
    is_killed = how.endswith("signal 9")
    hint = ["hint: if nobody did that, its host was out of memory: see dmesg there"] if is_killed else []
    return end.failed(headline, *hint, *tail)


def _engine_failed(end: End) -> Verdict:
    """Nobody tells why; perhaps the hosts do."""
    code = end.code
    headline = f"the engine ended with exit code {code}" if code > 0 else f"the engine was ended by {_signal(code)}"
    hosts = end.ask_hosts()
    if hosts:
        return end.failed(f"{_troubles(hosts)}; {headline}", *end.engine_said)
    silent = f"; {_who(end.plan, end.missing[0])} has left no record" if end.missing and code > 0 else ""
    return end.failed(headline + silent, *end.engine_said, *_whose_log(end))


def _whose_log(end: End) -> List[str]:
    """Where to read on. Open MPI does not name an instance that ends after another one has left."""
    if end.engine_said:
        return [f"log: {end.run.engine_log}"] if end.run.engine_log.exists() else []
    return _log_tail(end.run, end.missing[0]) if end.missing else [f"log: {end.run.path / 'instance-*' / 'log.txt'}"]


_EXPLANATIONS: Tuple[Callable[[End], Optional[Verdict]], ...] = (
    _stopped,
    _done,
    _interrupted,
    _hung,
    _host_lost,
    _failed_first,
    _unrecorded,
    _blamed_first,
    _engine_failed,
)


def interrupted(
    run: RunDirectory, stopped_by: int, what: str = "every instance was ended", *, ours: bool, kept: Optional[int]
) -> Verdict:
    """A run that a signal has ended. One that can be started again says so with its exit code, but for Ctrl-C."""
    headline = f"interrupted by {signal.Signals(stopped_by).name}: {what}"
    if ours:
        goes_on = f"started again, it continues from the checkpoint of update {kept}"
        begins = "there is no checkpoint yet: started again, it starts from the beginning"
        headline += f"; {begins if kept is None else goes_on}"
    code = StoppedError.exit_code if ours and stopped_by != signal.SIGINT else INTERRUPTED
    return Verdict(code, headline, _how_to_resume(run), was_asked_to_stop=True)


def not_started(run: RunDirectory, missing: Mapping[str, str]) -> Verdict:
    """An attempt that could not begin, as hosts are missing."""
    hint = "hint: --elastic-hosts restarts on the hosts that answer; ipulaunch resume has --hosts"
    return Verdict(JobError.exit_code, f"not started: {_troubles(missing)}", (hint, *_how_to_resume(run)))


def _troubles(hosts: Mapping[str, str]) -> str:
    return "; ".join(f"host {host} {what}" for host, what in hosts.items())


def _how_to_resume(run: RunDirectory) -> Tuple[str, ...]:
    """The line that continues a run, from its start where it has no checkpoint; programs of users have none."""
    if not run.job.exists():
        return ()
    return (f"resume: ipulaunch resume {shlex.quote(str(whole_run(run.path)))}",)


def _blamed(text: str, plan: Plan, code: int) -> Optional[Tuple[int, str]]:
    """The instance that Open MPI says ended first, and how; its number is that of the application context.

    Of an only instance it says nothing, but ends as it did.
    """
    killed = re.search(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)", text)
    exited = re.search(r"Process name: \[.*,(\d+)\]\s+Exit code: +(\d+)", text)
    left = re.search(r"process rank (\d+) with PID \d+ on node \S+ exiting\s+(improperly)", text)
    found = (
        (killed, "was ended by signal {}"),
        (exited, "ended with exit code {}"),
        (left, "ended with exit code 0 and without its done.json"),
    )
    for match, how in found:
        if match is not None and int(match.group(1)) < plan.instances:
            return int(match.group(1)), how.format(match.group(2))
    if plan.instances == 1 and code > 0 and not text.strip():
        return 0, f"ended with exit code {code}"
    return None


def _lost(text: str, plan: Plan) -> Optional[str]:
    """The host whose daemon Open MPI says it has lost, as the plan names it."""
    match = re.search(r"lost communication with a remote daemon.*?Remote daemon\s*: \S+ on node (\S+)", text, re.DOTALL)
    match = match or re.search(r"daemon failed to report back.*?Remote host:\s*(\S+)", text, re.DOTALL)
    if match is None:
        return None
    found = match.group(1)
    return next((host for host in plan.hosts if host.split(".")[0] == found.split(".")[0]), found)


def _first_line(message: Any) -> str:
    """What fits a headline; the rest is in the log."""
    return next((line for line in str(message).splitlines() if line.strip()), "")


def _exit_code(record: Dict[str, Any]) -> int:
    code = record.get("exit_code")
    return code if isinstance(code, int) and code else JobError.exit_code


def _signal(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _who(plan: Plan, instance: int) -> str:
    return f"{plan.placements[instance].host}:{instance}"


def _first_error(run: RunDirectory, plan: Plan, ended_ns: Optional[int]) -> Optional[Tuple[int, Dict[str, Any]]]:
    """The earliest error record, by its nanoseconds; those since we began to end the run are because of that."""
    found = []
    for placement in plan.placements:
        try:
            record = parse_json(read_text(run.error(placement.instance)))
        except (OSError, ValueError):
            continue
        if isinstance(record, dict):
            time_ns = record.get("time_ns")
            found.append((time_ns if isinstance(time_ns, int) else 0, placement.instance, record))
    if not found:
        return None
    time_ns, instance, record = min(found, key=lambda item: item[:2])
    return (instance, record) if ended_ns is None or time_ns < ended_ns else None


def _log_tail(run: RunDirectory, instance: int) -> List[str]:
    try:
        with run.log(instance).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
    except OSError:
        lines = []
    return [f"  | {line}" for line in lines] + [f"log: {run.log(instance)}"]
