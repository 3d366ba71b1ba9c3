"""`ipulaunch bench`: run benchmarks from specification files."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

import click

from ipulaunch.configs.benchmarks import Benchmark, Specification, read_specification, spec_files
from ipulaunch.configs.errors import (
    INTERRUPTED,
    IpulaunchError,
    JobError,
    SettingsError,
    StoppedError,
    UsageError,
    near_miss,
)
from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.launcher.bench.comparing import read_earlier
from ipulaunch.launcher.bench.preparing import prepare
from ipulaunch.launcher.bench.progress import make_progress
from ipulaunch.launcher.bench.results import JSON_FILE, NOT_RUN, OK, WRONG, VariantResult
from ipulaunch.launcher.bench.running import Session
from ipulaunch.launcher.cli import bench_output
from ipulaunch.launcher.cli.options import PATH
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.supervise.stop_signals import StopSignals

_LISTS = {"--spec", "--benchmark"}  # --spec a.yml b.yml is --spec a.yml --spec b.yml, as published


class BenchCommand(click.Command):
    """A command whose lists are written as in the published one."""

    def parse_args(self, ctx: click.Context, args: List[str]) -> List[str]:
        return super().parse_args(ctx, _repeated(args))


def _repeated(args: Sequence[str]) -> List[str]:
    """The words of the command line, with the option in front of each of its values."""
    words: List[str] = []
    option = ""  # the list that we are in
    for word in args:
        if word.startswith("-"):
            name = word.partition("=")[0]
            option = name if name in _LISTS else ""
            words.append(word)
        else:
            words += [option, word] if option and words[-1] != option else [word]
    return words


@click.command("bench", cls=BenchCommand)
@click.option(
    *("--spec", "patterns"),
    multiple=True,
    metavar="FILE...",
    help="Specification files, also with wildcards. Default: the shipped ones.",
)
@click.option("--benchmark", "names", multiple=True, metavar="NAME...", help="Benchmarks to run. Default: all.")
@click.option("--log-dir", type=PATH, help="Directory for logs and results. Default: bench-TIME.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=math.inf,
    metavar="SECONDS",
    help="Longest time of a variant; an entry of the specification may have a shorter one. Default: none.",
)
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True, help="How often each variant runs.")
@click.option("--stop-on-error", is_flag=True, help="Stop at the first error instead of running the rest.")
@click.option("--include-convergence", is_flag=True, help="Also run long trainings, whose names end in _conv.")
@click.option("--against", type=PATH, metavar="FILE|DIR", help="Compare with the results of an earlier call.")
@click.option("--list", "lists", is_flag=True, help="List benchmarks and variants, and stop.")
@click.option("--dry-run", is_flag=True, help="Print the commands and stop.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the results as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print the results, the list or the commands as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    patterns: Tuple[str, ...],
    names: Tuple[str, ...],
    log_dir: Optional[Path],
    timeout_s: float,
    rounds: int,
    stop_on_error: bool,
    include_convergence: bool,
    against: Optional[Path],
    lists: bool,
    dry_run: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Run benchmarks from specification files in the published format of benchmarks.yml."""
    if as_csv and (as_json or lists or dry_run):
        raise UsageError("--csv prints results: leave out --json, --list and --dry-run")
    earlier = None if against is None else read_earlier(against)
    found = read_specification(spec_files(patterns))
    chosen, errors = _choose(found, names, include_convergence or lists)
    show_messages(found.messages)
    for error in errors:
        _show(error)
    if lists:
        bench_output.print_list(chosen, as_json)
        ctx.exit(_exit_code(errors, []))
    log_dir = (log_dir or Path(f"bench-{time.strftime('%Y%m%d-%H%M%S')}")).absolute()
    prepared = prepare(chosen, os.environ, log_dir)
    results = [each.result for each in prepared]
    for wrong in filter(None, (result.error for result in results)):
        click.echo(f"error: {wrong}", err=True)
    show_messages(bench_output.grouped(chosen))
    if dry_run:
        bench_output.print_commands(prepared, timeout_s, as_json)
        ctx.exit(_exit_code(errors, results))
    if not errors and not results:
        raise UsageError("there is nothing to run", hint=_nothing(found))
    has_errors = bool(errors) or any(result.error for result in results)
    if all(result.error for result in results) or (stop_on_error and has_errors):
        ctx.exit(_exit_code(errors, results))
    _require_new(log_dir)
    with StopSignals() as signals:
        session = Session(prepared, log_dir, os.environ, signals, make_progress(sys.stderr, secret_values(os.environ)))
        data = session.run(rounds=rounds, timeout_s=timeout_s, stop_on_error=stop_on_error)
    bench_output.print_results(data, results, earlier, as_data=as_json, as_rows=as_csv)
    click.echo(f"results: {log_dir / JSON_FILE}", err=True)
    if signals.first is not None:
        click.echo(f"stopped by {signal.Signals(signals.first).name}: the results are partial", err=True)
        ctx.exit(INTERRUPTED if signals.first == signal.SIGINT else StoppedError.exit_code)
    ctx.exit(_exit_code(errors, results))


def _choose(
    found: Specification, names: Sequence[str], with_convergence: bool
) -> Tuple[List[Benchmark], List[IpulaunchError]]:
    """The benchmarks to run, in the order given, and what is wrong with those and with the names."""
    errors: List[IpulaunchError] = [*found.errors]
    if not names:
        chosen = [each for each in found.benchmarks.values() if with_convergence or not each.is_convergence]
        return chosen, [*errors, *found.wrong.values()]
    for name in names:
        if name in found.wrong:
            errors.append(found.wrong[name])
        elif name in found.others:
            errors.append(UsageError(f"{name} is no benchmark", hint=found.others[name]))
        elif name not in found.benchmarks:
            hint = (
                near_miss(name, (*found.benchmarks, *found.wrong)) if found.benchmarks else "the specification has none"
            )
            errors.append(UsageError(f"there is no benchmark {name}", hint=hint))
    return [found.benchmarks[name] for name in dict.fromkeys(names) if name in found.benchmarks], errors


def _nothing(found: Specification) -> str:
    if found.benchmarks:
        return "every benchmark is a convergence test: add --include-convergence"
    return "no entry of the specification has a cmd"


def _require_new(log_dir: Path) -> None:
    if (log_dir / JSON_FILE).exists():
        raise UsageError(f"{log_dir} has the results of an earlier call", hint="give another --log-dir")


def _exit_code(errors: Sequence[IpulaunchError], results: Sequence[VariantResult]) -> int:
    """What went wrong, as one code: the command line before the specification before a failed benchmark."""
    if any(isinstance(error, UsageError) for error in errors):
        return UsageError.exit_code
    outcomes = {result.outcome for result in results}
    if errors or WRONG in outcomes:
        return SettingsError.exit_code
    return JobError.exit_code if outcomes - {OK, NOT_RUN} else 0


def _show(error: IpulaunchError) -> None:
    click.echo(f"error: {error.message}", err=True)
    if error.hint:
        click.echo(f"hint: {error.hint}", err=True)
