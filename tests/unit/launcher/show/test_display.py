from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest

from ipulaunch.configs.messages import note
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import (
    CheckpointWritten,
    Event,
    Log,
    Resumed,
    Started,
    Training,
    Validation,
    WarningEvent,
)
from ipulaunch.configs.runs.job import Job
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.show import display, live_display
from ipulaunch.launcher.show.display import Display, make_display
from ipulaunch.launcher.show.live_display import LiveDisplay, fill
from ipulaunch.launcher.supervise.endings import Restart
from ipulaunch.launcher.supervise.progress import Follower, Recorded, RunProgress
from ipulaunch.launcher.supervise.verdict import Verdict
from ipulaunch.topology.capacity.energy import energy_of
from ipulaunch.topology.capacity.ranges import exactly
from ipulaunch.topology.planning.solver import Fact

MakeLaunch = Callable[..., Launch]

JOB = Job("cosmoflow", "cpu", None)
SUMMARY = {
    "samples_per_s": 40.26,
    "samples_per_s_by_instance": [float(n) for n in range(10)],
    "metrics": {"loss": 0.123456, "val_loss": 1234.5678},
    "checkpoint": "checkpoints/16",
}


class Clock:
    """Stands still until it is moved."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture()
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(display, "time", clock)
    monkeypatch.setattr(live_display, "time", clock)
    return clock


@pytest.fixture()
def plain(clock: Clock) -> Display:
    return Display(io.StringIO(), io.StringIO())


@pytest.fixture()
def live(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveDisplay]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    drawn = LiveDisplay(Terminal(), Terminal())
    yield drawn
    drawn.end()


def _talk(shown: Display) -> str:
    text = shown.stream.getvalue()  # type: ignore[attr-defined]
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def _output(shown: Display) -> str:
    text: str = shown.output.getvalue()  # type: ignore[attr-defined]
    return text


def _training() -> Tuple[RunProgress, List[Recorded]]:
    progress = RunProgress(2)
    training, log = Training(35, 2, 8, 0, 3), Log(2, 20.0, 8, 1, {"loss": 0.25})
    recorded = [Recorded(instance, 1, training) for instance in (0, 1)] + [Recorded(i, 2, log) for i in (0, 1)]
    for instance, _, event in recorded:
        progress.take(instance, event)
    return progress, recorded


def test_start_says_what_runs_where(plain: Display, make_launch: MakeLaunch, run_directory: RunDirectory) -> None:
    plain.announce(make_launch(["x"], job=JOB, messages=(note("as root"),)), run_directory)
    talk = _talk(plain)
    for words in (
        "cosmoflow on 4 IPUs: an engine of the tests",
        "note: as root",
        "4 = 4 replicas x 1",
        "2 with 2 replicas and 64 cores each, on localhost",
        "4 = micro-batch 1 x 4 replicas x accumulation 1",
    ):
        assert words in talk
    assert _output(plain) == ""


def test_start_passes_warnings_on(
    plain: Display, make_launch: MakeLaunch, run_directory: RunDirectory, solve_for: Callable[..., Any]
) -> None:
    solution = solve_for(4, 4, layout=(1, 2), oversubscribe=True)
    assert solution.messages
    plain.announce(make_launch(["x"], solution=solution, messages=solution.messages), run_directory)
    for message in solution.messages:
        assert f"warning: {message.text}\n" in _talk(plain)


def test_run_is_named_relative_to_where_we_are(
    plain: Display, make_launch: MakeLaunch, run_directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.announce(make_launch(["x"]), run_directory)
    assert _talk(plain).splitlines()[-1].split() == ["run", "run"]
    monkeypatch.chdir("/")
    plain.conclude(Verdict(0, "done"), RunDirectory(Path("/elsewhere/run")), {})
    assert _talk(plain).splitlines()[-1].split() == ["run", "elsewhere/run"]


def test_milestones_are_those_of_instance_0(plain: Display) -> None:
    plain.show(*_training())
    assert _talk(plain).splitlines() == [
        "training: 2 epochs of 8 weight updates; 3 samples left out per epoch",
        "epoch 1/2: loss 0.25",
    ]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (WarningEvent("rounded"), "warning: rounded"),
        (Resumed("runs/a/checkpoints/8", 8), "resumed after update 8: runs/a/checkpoints/8"),
        (Validation(7, 8, 1, {"val_loss": 0.5}, "update-8"), "validation of update-8: val_loss 0.5"),
        (Validation(7, 8, 1, {"val_loss": 0.5}), "validation of the weights: val_loss 0.5"),
        (Log(2, 2.0, 4, 0.5, {"loss": 0.25}), "epoch 0.5/2: loss 0.25"),
        (CheckpointWritten("checkpoints/8", 8), ""),
    ],
    ids=["warning", "resumed", "validation", "validation of no checkpoint", "half an epoch", "checkpoint"],
)
def test_events_that_are_shown(event: Event, line: str, plain: Display) -> None:
    plain.show(RunProgress(1), [Recorded(0, 1, event)])
    assert _talk(plain) == (f"{line}\n" if line else "")


def test_a_warning_is_told_once(plain: Display) -> None:
    recorded = Recorded(0, 1, WarningEvent("rounded"))
    plain.warn("rounded")
    plain.show(RunProgress(1), [recorded, recorded])
    assert _talk(plain) == "warning: rounded\n"


def test_start_of_a_single_replica_counts_in_the_singular(
    plain: Display, make_launch: MakeLaunch, run_directory: RunDirectory, solve_for: Callable[..., Any]
) -> None:
    training = (Fact("pipeline", "2 stages"), Fact("IPU only", "device.profile = true", in_plan_only=True))
    solution = solve_for(1, 1, layout=(1, 1))._replace(training=training)
    plain.announce(make_launch(["x"], job=JOB, solution=solution), run_directory)
    assert [" ".join(line.split()) for line in _talk(plain).splitlines()] == [
        "cosmoflow on 1 IPU: an engine of the tests",
        "IPUs 1 = 1 replica x 1",
        "instances 1 with 1 replica and 1 core, on localhost",
        "batch 1 = micro-batch 1 x 1 replica x accumulation 1",
        "pipeline 2 stages",
        "run run",
    ]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"best": {"checkpoint": "update-8", "epoch": 1, "val_loss": 0.5}}, "best update-8, epoch 1: val_loss 0.5"),
        ({"best": {"epoch": 1, "update": 8, "val_loss": 0.5}}, None),
        ({"target": {"value": 0.98, "reached_by": {"checkpoint": "update-8"}}}, "target 0.98: reached by update-8"),
        ({"target": {"value": 0.98, "reached_by": {"update": 8}}}, "target 0.98: reached by the weights"),
        ({"target": {"value": 0.98, "reached_by": None}}, "target 0.98: not reached"),
        ({"judged_by": "val_mae", "target": {"value": 2, "reached_by": None}}, "target val_mae 2: not reached"),
        (
            {"judged_by": "val_mae", "best": {"checkpoint": "c", "epoch": 1, "val_mae": 2}},
            "best c, epoch 1 (by val_mae): val_mae 2",
        ),
    ],
    ids=["best", "no checkpoint", "target", "target without checkpoint", "target not reached", "measure", "best by"],
)  # fmt: skip
def test_end_names_the_best_and_the_target(
    more: Dict[str, Any], line: Optional[str], plain: Display, run_directory: RunDirectory
) -> None:
    plain.conclude(Verdict(0, "done"), run_directory, {**SUMMARY, **more})
    lines = [" ".join(line.split()) for line in _talk(plain).splitlines()]
    assert [text for text in lines if text.startswith(("best", "target"))] == ([line] if line else [])


def test_end_of_an_evaluation_has_no_throughput(plain: Display, run_directory: RunDirectory) -> None:
    plain.conclude(Verdict(0, "done"), run_directory, {"metrics": {"val_loss": 0.5}})
    assert [line.split()[0] for line in _talk(plain).splitlines()] == ["done", "final", "run"]


def test_position_without_metrics(plain: Display, clock: Clock) -> None:
    clock.now += 100
    plain.show(RunProgress(1, updates={0: 3}, rates={0: 2.0}, total_updates=8), [])
    assert _talk(plain) == "update 3/8, 2.0 samples/s\n"


@pytest.mark.parametrize(
    ("times", "told"),
    [
        pytest.param({0: {"data": 0.2, "device": 9.8}, 1: {"data": 3.8, "device": 6.2}}, "38 %", id="one waits"),
        pytest.param({1: {"data": 1.0, "device": 9.0, "validation": 90.0}}, "10 %", id="of the training"),
        pytest.param({0: {"data": 0.9, "device": 9.1}}, "", id="too little"),
        pytest.param({0: {}}, "", id="nothing"),
    ],
)
def test_an_instance_that_waits_for_data_is_told_where_it_matters(
    times: Dict[int, Dict[str, float]], told: str, plain: Display, clock: Clock, run_directory: RunDirectory
) -> None:
    clock.now += 100
    plain.show(RunProgress(2, updates={0: 3}, rates={0: 2.0}, total_updates=8, times=dict(times)), [])
    assert _talk(plain) == f"update 3/8, 2.0 samples/s{told and f', waiting for data {told}'}\n"
    plain.conclude(Verdict(0, "done"), run_directory, {**SUMMARY, "times_s_by_instance": [*times.values()]})
    lines = [" ".join(line.split()) for line in _talk(plain).splitlines()]
    assert [line for line in lines if line.startswith("time ")] == ([f"time waiting for data {told}"] if told else [])


def test_position_is_written_every_few_seconds(plain: Display, clock: Clock) -> None:
    progress, _ = _training()
    for number in range(120):
        clock.now += 0.1
        progress.updates[0] = 8 + number // 60
        plain.show(progress, [])
    lines = _talk(plain).splitlines()  # two updates in 12 seconds, each said once
    assert lines == [
        "update 8/16, 40.0 samples/s, loss 0.25, about 1 s left",
        "update 9/16, 40.0 samples/s, loss 0.25, about 1 s left",
    ]


def test_nothing_is_written_before_the_first_update(plain: Display, clock: Clock) -> None:
    clock.now += 100
    plain.show(RunProgress(2), [])
    assert _talk(plain) == ""


def test_output_of_instances_goes_to_stdout(plain: Display) -> None:
    plain.echo("localhost:1", "text [bold] :x: grüße")
    assert (_output(plain), _talk(plain)) == ("localhost:1| text [bold] :x: grüße\n", "")


def test_end_of_a_good_run(plain: Display, clock: Clock, run_directory: RunDirectory) -> None:
    clock.now += 61.4
    plain.conclude(Verdict(0, "done"), run_directory, SUMMARY)
    assert [" ".join(line.split()) for line in _talk(plain).splitlines()] == [
        "done in 61 s",
        "throughput 40.3 samples/s in total",
        "by instance 0: 0.0 1: 1.0 2: 2.0 3: 3.0 4: 4.0 5: 5.0 6: 6.0 7: 7.0",
        "8: 8.0 9: 9.0",
        "final loss 0.1235, val_loss 1235",
        "checkpoint checkpoints/16",
        "run run",
    ]


def test_end_of_a_run_on_ipus_has_its_energy(plain: Display, run_directory: RunDirectory) -> None:
    energy = energy_of("bow-pod16", 16, exactly(0.5)).as_data()
    plain.conclude(Verdict(0, "done"), run_directory, {**SUMMARY, "energy": energy})
    [line] = [line for line in _talk(plain).splitlines() if line.startswith("  energy")]
    assert line.split(maxsplit=1)[1] == (
        "8 IPU-hours, about 2.5 kWh (estimate: 4 x 1.25 kW (Bow-2000, average), without hosts)"
    )


def test_end_of_a_failed_run(plain: Display, clock: Clock, run_directory: RunDirectory) -> None:
    clock.now += 2
    plain.conclude(
        Verdict(5, "failed first", "a", 0, hint="try again", log_lines=("last words",)), run_directory, SUMMARY
    )
    lines = _talk(plain).splitlines()
    assert lines[:3] == ["exit code 5 after 2 s: a:0 failed first", "hint: try again", "  | last words"]
    assert [line.split() for line in lines[3:]] == [["run", "run"]]


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_broken_records_do_not_stop_the_display(
    kind: str, request: pytest.FixtureRequest, make_launch: MakeLaunch, run_directory: RunDirectory
) -> None:
    shown: Display = request.getfixturevalue(kind)
    shown.announce(make_launch(["x"], job=JOB), run_directory)
    shown.begin()
    broken = ["{}", "{", '{"time_ns": 1}', '{"event": "training"}', '{"event": "log", "time_ns": 2}', "null"]
    run_directory.events(0).write_text("\n".join(broken) + "\n")
    with contextlib.closing(Follower(run_directory, 2)) as follower:
        shown.show(follower.progress, follower.look())


def test_terminal_gets_a_picture(live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory) -> None:
    live.announce(make_launch(["x"], job=JOB), run_directory)
    live.begin()
    live.show(RunProgress(2), [])
    assert live.live is not None
    live.live.refresh()
    assert "importing TensorFlow: 0 of 2 instances are ready · 0 s" in _talk(live)
    live.show(*_training())
    live.live.refresh()
    for words in ("instance 1", "update 8/16 · 40.0 samples/s · loss 0.25 · about 1 s left", "epoch 1/2: loss 0.25"):
        assert words in _talk(live)


def test_picture_is_gone_at_the_end(live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory) -> None:
    live.announce(make_launch(["x"], job=JOB), run_directory)
    live.begin()
    live.show(*_training())
    live.end()
    live.end()
    assert live.stream.getvalue().rindex("\x1b[?25h") > live.stream.getvalue().rindex("\x1b[?25l")  # type: ignore[attr-defined]
    live.conclude(Verdict(0, "done"), run_directory, SUMMARY)
    assert "done in 0 s\n" in _talk(live)


def test_every_attempt_has_its_picture(live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory) -> None:
    live.announce(make_launch(["x"], job=JOB), run_directory)
    for _ in range(2):
        live.begin()
        live.show(*_training())
        assert live.live is not None
        live.end()
        assert live.live is None


def test_position_of_an_attempt_that_begins_before_the_end_of_the_last(plain: Display, clock: Clock) -> None:
    for update in (8, 4):
        plain.begin()
        clock.now += 10
        plain.show(RunProgress(1, {0: update}, total_updates=16), [])
    assert _talk(plain).splitlines() == ["update 8/16, 0.0 samples/s", "update 4/16, 0.0 samples/s"]


def test_terminal_that_vanishes_stops_nothing(
    terminal: Any, make_launch: MakeLaunch, run_directory: RunDirectory
) -> None:
    shown = LiveDisplay(terminal.stream, terminal.stream)
    shown.announce(make_launch(["x"], job=JOB), run_directory)
    shown.begin()
    terminal.vanish()
    shown.show(*_training())
    assert shown.live is not None
    shown.live.refresh()
    shown.stopping("SIGHUP", "this update", 60.0)
    shown.warn("the disk is almost full")
    shown.end()
    shown.begin()
    shown.end()
    shown.conclude(Verdict(75, "stopped"), run_directory, SUMMARY)


def test_many_instances_are_summed_up(live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory) -> None:
    live.announce(make_launch(["x"], job=JOB), run_directory)
    live.begin()
    progress, _ = _training()
    progress.instances = 100
    live.show(progress, [])
    assert live.live is not None
    live.live.refresh()
    assert "+ 92 more" in _talk(live)


@pytest.mark.parametrize("text", ["a[bold]b[/bold]", "host:100:x:1", "[1,2]", "grüße \\[x]"])
def test_text_is_drawn_as_it_is(
    text: str, live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory
) -> None:
    live.announce(make_launch(["x"], job=JOB), run_directory)
    live.begin()
    live.echo("h:0", text)
    live.line(f"note: {text}")
    assert f"h:0| {text}" in _talk(live)
    assert f"note: {text}" in _talk(live)


def test_long_lines_are_not_broken(live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory) -> None:
    live.announce(make_launch(["x"], job=JOB), run_directory)
    live.begin()
    live.line("log: /a/" + "long/" * 60 + "path")
    assert "log: /a/" + "long/" * 60 + "path\n" in _talk(live)


def test_program_of_a_user_gets_no_picture(
    live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory
) -> None:
    live.announce(make_launch(["x"]), run_directory)
    live.begin()
    live.show(RunProgress(2), [])
    live.echo("h:0", "text")
    assert live.live is None
    assert _output(live) == "h:0| text\n"


def test_output_that_is_not_the_terminal_stays_apart(
    live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory
) -> None:
    live.output = io.StringIO()
    live.announce(make_launch(["x"], job=JOB), run_directory)
    live.begin()
    live.echo("h:0", "text")
    assert _output(live) == "h:0| text\n"
    assert "text" not in _talk(live)


@pytest.mark.parametrize(
    ("stream", "kind"), [(io.StringIO(), Display), (Terminal(), LiveDisplay)], ids=["file", "terminal"]
)
def test_display_depends_on_stderr(stream: io.StringIO, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    made = make_display(verbose=True)
    assert type(made) is kind
    assert (made.stream, made.output, made.verbose) == (stream, sys.stdout, True)


def test_what_is_prepared_before_a_training_is_shown_now_and_then(plain: Display, clock: Clock) -> None:
    plain.trains = True
    for second in range(13):
        clock.now = 2000.0 + second
        plain.show(RunProgress(1, preparing=f"indexing: {second} of 19 files"), [])
    assert _talk(plain).splitlines() == ["indexing: 6 of 19 files, 6 s", "indexing: 12 of 19 files, 12 s"]


def test_what_is_prepared_is_in_the_picture(
    live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory
) -> None:
    live.announce(make_launch(["x"], job=JOB), run_directory)
    live.begin()
    live.show(RunProgress(2, preparing="staging: 3 of 10 MiB"), [])
    live.end()
    assert "staging: 3 of 10 MiB · 0 s" in _talk(live)


IN_BOTH = {0: Started("a"), 1: Started("a")}
ON_IPUS = {0: Started("a", backend="ipu")}


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (RunProgress(2, started={0: Started("a")}), "importing TensorFlow: 1 of 2 instances are ready"),
        (RunProgress(2, joining={0}), "importing TensorFlow: 1 of 2 instances are ready"),
        (RunProgress(1), "importing TensorFlow"),
        (RunProgress(2, started=IN_BOTH), "making the network"),
        (RunProgress(2, started=IN_BOTH, preparing="staging: 3 of 10 MiB"), "staging: 3 of 10 MiB"),
        (RunProgress(2, started=IN_BOTH, total_updates=8), "building the first update"),
        (
            RunProgress(1, started=ON_IPUS, total_updates=8),
            "compiling the program, or loading it from the cache",
        ),
        (RunProgress(1, started=ON_IPUS, is_loading=True), "loading the program"),
        (RunProgress(1, {0: 8}, started={0: Started("a")}, total_updates=8), "all updates are made"),
        (
            RunProgress(1, {0: 8}, total_updates=8, preparing="validating: 3 of 10 micro-batches"),
            "validating: 3 of 10 micro-batches",
        ),
    ],
)
def test_every_phase_is_told_in_the_same_words_by_both_displays(
    progress: RunProgress,
    said: str,
    plain: Display,
    live: LiveDisplay,
    clock: Clock,
    make_launch: MakeLaunch,
    run_directory: RunDirectory,
) -> None:
    plain.announce(make_launch(["x"], job=JOB), run_directory)
    shown = len(_talk(plain))
    for _ in range(40):
        clock.now += 1
        plain.show(progress, [])
    assert _talk(plain)[shown:].splitlines() == [f"{said}, 6 s", f"{said}, 37 s"]
    live.announce(make_launch(["x"], job=JOB), run_directory)
    live.begin()
    live.show(progress, [])
    clock.now += 7
    live.show(progress, [])
    live.end()
    assert f"{said} · 7 s" in _talk(live)


@pytest.mark.parametrize("width", [30, 80, 140])
def test_the_picture_fits_any_terminal(
    width: int, live: LiveDisplay, make_launch: MakeLaunch, run_directory: RunDirectory
) -> None:
    progress, recorded = _training()
    live.announce(make_launch(["x"], job=JOB), run_directory)
    live.begin()
    live.console.width = width
    live.show(progress, recorded)
    with live.console.capture() as captured:
        live.console.print(live._picture(progress))
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", captured.get()).splitlines()
    assert all(len(line) <= width for line in lines)
    assert any(line.strip("━╸╺─ ") == "" for line in lines), "the bar has a line of its own"
    assert "update 8/16" in "\n".join(lines) and "about 1 s left" in "\n".join(lines)
    assert any(line.startswith("instance 1") for line in lines) == (width >= 72)


@pytest.mark.parametrize("width", [12, 30, 80, 140])
def test_lines_break_between_what_they_tell(width: int) -> None:
    parts = ["update 12/2048", "1234.5 samples/s", "loss 0.1234, accuracy 0.5", "about 2 h 10 min left"]
    lines = fill(parts, width).splitlines()
    assert all(len(line + "^C") < width for line in lines), "the terminal would break the line, and leave it behind"
    assert " ".join(lines).replace(" · ", " ").split() == " ".join(parts).split(), "nothing is cut off"
    if width >= 30:
        assert all(any(part in line for line in lines) for part in parts)


def test_programs_of_users_may_be_silent(
    plain: Display, clock: Clock, make_launch: MakeLaunch, run_directory: RunDirectory
) -> None:
    plain.announce(make_launch(["x"]), run_directory)
    shown = len(_talk(plain))
    clock.now += 100
    plain.show(RunProgress(2), [])
    assert _talk(plain)[shown:] == ""


def test_a_failure_that_is_restarted_does_not_ask_for_a_resume(plain: Display) -> None:
    failed = Verdict(7, "failed first", "localhost", 1, hint="see dmesg", resume="ipulaunch resume a")
    plain.restarting(failed, Restart(1, 2, 5.0), "from the newest checkpoint")
    assert _talk(plain).splitlines() == [
        "failed: localhost:1 failed first",
        "hint: see dmesg",
        "restart 1 of 2 in 5 s, from the newest checkpoint",
    ]
