"""Running benchmarks: every variant, round after round, with its logs, its numbers and the files of results."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from ipulaunch.configs.benchmarks import COMPILE_TIME
from ipulaunch.configs.runs.directory import write_whole
from ipulaunch.configs.text import utc
from ipulaunch.launcher.bench import results as files
from ipulaunch.launcher.bench import variants
from ipulaunch.launcher.bench.compile_time import compile_seconds
from ipulaunch.launcher.bench.metrics import extract, lines_of
from ipulaunch.launcher.bench.one_round import run_command
from ipulaunch.launcher.bench.preparing import Prepared
from ipulaunch.launcher.bench.progress import PlainProgress
from ipulaunch.launcher.bench.results import DURATION, NO_METRIC, OK, Round
from ipulaunch.launcher.supervise.stop_signals import StopSignals


class Session:
    """Runs prepared variants and writes their results after each."""

    def __init__(
        self,
        prepared: Sequence[Prepared],
        log_dir: Path,
        environ: Mapping[str, str],
        signals: StopSignals,
        progress: PlainProgress,
    ) -> None:
        self.prepared, self.log_dir, self.environ = prepared, log_dir, environ
        self.signals, self.progress = signals, progress
        self.started = utc()

    def run(self, *, rounds: int, timeout_s: float, stop_on_error: bool) -> Dict[str, Any]:
        """Run all rounds of all variants; the results, as the file has them. Variants take turns, round by round."""
        good = [each for each in self.prepared if not each.result.error]
        turns = [(number, each) for number in range(1, rounds + 1) for each in good]
        is_stopped = False
        self.log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # logs may hold whatever commands print
        with contextlib.closing(self.progress):
            for position, (number, each) in enumerate(turns, 1):
                if is_stopped or self.signals.requests:
                    break
                if each.result.rounds and each.result.outcome != OK:
                    continue  # it has no result any more
                title = f"[{position}/{len(turns)}] {each.result.variant.name}"
                self.progress.begin(
                    title + (f", round {number} of {rounds}" if rounds > 1 else ""), each.result.command
                )
                logs = each.logs / f"round-{number}" if rounds > 1 else each.logs
                done = self._run_round(each, logs, timeout_s)
                each.result.rounds.append(done)
                self.progress.end(each.result.variant.benchmark, done)
                is_stopped = stop_on_error and done.outcome != OK
                self._write(rounds, is_complete=False)
        return self._write(rounds, is_complete=not self.signals.requests and not is_stopped)

    def _run_round(self, each: Prepared, logs: Path, timeout_s: float) -> Round:
        variant = each.result.variant
        benchmark = variant.benchmark
        logs.mkdir(parents=True, exist_ok=True)
        out, err = logs / "stdout", logs / "stderr"
        started = utc()
        ending = run_command(
            each.command,
            self.environ,
            variants.working_directory(benchmark, logs),
            out,
            err,
            timeout_s=variants.timeout_of(benchmark, timeout_s),
            signals=self.signals,
            look=lambda seconds: self.progress.look(seconds, (out, err)),
        )
        values: Dict[str, Optional[float]] = {}
        outcome, problems = ending.outcome, tuple(filter(None, (ending.problem,)))
        with out.open("rb") as output, err.open("rb") as errors:
            if outcome == OK:
                processes = variants.mpirun_processes(variants.command_line(variant))
                values, problems = extract(benchmark, variant.parameters, lines_of((output, errors)), processes)
                outcome = NO_METRIC if problems else OK
                output.seek(0)
                errors.seek(0)
            values[DURATION], values[COMPILE_TIME] = ending.seconds, compile_seconds(lines_of((output, errors)))
        return Round(outcome, ending.exit_code, values, started, utc(), out, err, problems)

    def _write(self, rounds: int, *, is_complete: bool) -> Dict[str, Any]:
        """Write the results so far as JSON and CSV."""
        results = [each.result for each in self.prepared]
        found = files.document(results, rounds=rounds, started=self.started, is_complete=is_complete)
        write_whole(self.log_dir / files.JSON_FILE, files.as_json(found))
        write_whole(self.log_dir / files.CSV_FILE, files.as_csv(results))
        return found
