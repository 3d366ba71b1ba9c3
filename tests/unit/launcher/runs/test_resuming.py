from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.registry import ENGINES, engine_class
from ipulaunch.launcher.launch import launch_record
from ipulaunch.launcher.runs import running
from ipulaunch.topology.planning.plan import Plan, from_json, to_json

JOB = Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=True).settings)
Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, solve_for: Callable[..., Any]) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    plan: Plan = solve_for(4, 2).plan
    for placement in plan.placements:
        run.instance(placement.instance).mkdir(parents=True)
    run.plan.write_text(to_json(plan))
    run.job.write_text(to_yaml(JOB))
    return run


def test_a_run_that_is_done_is_left_alone(run: RunDirectory, ipulaunch: Run) -> None:
    for instance in (0, 1):
        run.done(instance).touch()
    code, out, err = ipulaunch("resume", "run")
    assert (code, out) == (0, "") and "run is done: there is nothing to resume" in err
    assert not run.attempts.exists()


@pytest.mark.parametrize("name", ["plan.json", "job.yaml"])
def test_what_is_no_run_is_refused(run: RunDirectory, name: str, ipulaunch: Run) -> None:
    (run.path / name).unlink()
    code, _, err = ipulaunch("resume", "run")
    assert code == 2 and name in err


def test_a_plan_that_was_changed_is_refused(run: RunDirectory, ipulaunch: Run) -> None:
    run.plan.write_text('{"format": 1, "placements": "__import__(\'os\')"}')
    code, _, err = ipulaunch("resume", "run")
    assert code == 5 and f"{run.plan}: this is not a plan" in err


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    """The launches that are attended to, without any being started."""
    launches: List[Any] = []

    def attend(launch: Any, directory: RunDirectory, display: Any, signals: Any) -> int:
        launches.append(launch)
        return 0

    monkeypatch.setattr(running, "attend", attend)
    for name in ENGINES:
        monkeypatch.setattr(engine_class(name), "require", lambda engine: None)
    return launches


def test_a_run_keeps_its_plan_unless_hosts_or_instances_are_given(
    run: RunDirectory, ipulaunch: Run, started: List[Any]
) -> None:
    before = from_json(run.plan.read_text())
    assert ipulaunch("resume", "run")[0] == 0
    assert started[0].solution.plan == before
    assert ipulaunch("resume", "run", "--num-instances", "4", "--host-layout", "1x4")[0] == 0
    plan = started[1].solution.plan
    assert (plan.instances, plan.replicas, plan.batch) == (4, before.replicas, before.batch)
    assert from_json(run.plan.read_text()) == plan
    assert started[1].command.argv[-2:] == ("--run-dir", str(run.path))


def test_a_run_is_launched_as_it_was(run: RunDirectory, ipulaunch: Run, started: List[Any]) -> None:
    run.launch_options.write_text(launch_record.to_json(LaunchOptions(python="/opt/python", env=("A=1", "B=2"))))
    code, _, err = ipulaunch("resume", "run", "--env", "B=3")
    assert code == 0 and "note: taken from the launch of the run: --python, --env\n" in err
    assert "/opt/python" in started[0].command.argv and started[0].command.env == {"A": "1", "B": "3"}
    kept = launch_record.from_json(run.launch_options.read_text(), "asked.json")
    assert (kept.python, kept.env) == ("/opt/python", ("A=1", "B=3"))
    assert ipulaunch("resume", "run")[0] == 0
    assert started[1].command.env == {"A": "1", "B": "3"}


@pytest.mark.parametrize("is_kept", [False, True], ids=["of now", "of before"])
def test_checkpoints_that_are_gone_are_told_of(
    is_kept: bool, run: RunDirectory, ipulaunch: Run, started: List[Any], tmp_path: Path
) -> None:
    attempt = RunDirectory(run.attempts / "1") if is_kept else run
    attempt.instance(0).mkdir(parents=True, exist_ok=True)
    attempt.events(0).write_text(
        '{"event": "checkpoint", "time_ns": 1, "path": "checkpoints/update-00000004", "update": 4}\n'
        '{"event": "checkpoint", "time_ns": 2, "path": "checkpoints/update-00000008", "update": 8}\n'
        '{"event": "update", "time_ns": 3, "update": 9, "samples_per_s": 1.0}\n'
    )
    code, _, err = ipulaunch("resume", "run")
    gone = f"there is no checkpoint in {run.checkpoints} now: the training starts from the beginning"
    assert code == 0 and f"warning: update 8 was kept, and {gone}\n" in err


def test_only_checkpoints_that_are_gone_are_told_of(run: RunDirectory, ipulaunch: Run, started: List[Any]) -> None:
    assert "warning" not in ipulaunch("resume", "run").err
    run.events(0).write_text('{"event": "checkpoint", "time_ns": 1, "path": "p", "update": 4}\n')
    (run.checkpoints / "update-00000004").mkdir(parents=True)
    assert "warning" not in ipulaunch("resume", "run").err


def test_paths_given_now_are_whole_for_the_next_time(run: RunDirectory, ipulaunch: Run, started: List[Any]) -> None:
    assert ipulaunch("resume", "run", "--python", "bin/python")[0] == 0
    kept = launch_record.from_json(run.launch_options.read_text(), "asked.json")
    assert kept.python == str(Path.cwd() / "bin" / "python")


def test_a_variable_that_is_not_set_any_more_is_asked_for(
    run: RunDirectory, ipulaunch: Run, started: List[Any]
) -> None:
    run.launch_options.write_text(launch_record.to_json(LaunchOptions(env=("MY_TOKEN",))))
    code, _, err = ipulaunch("resume", "run")
    assert (code, started) == (2, []) and "--env MY_TOKEN: it is not set here\nhint: export MY_TOKEN first" in err


def test_on_a_pod_the_partition_is_the_same(
    run: RunDirectory, ipulaunch: Run, started: List[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run.launch_options.write_text(
        launch_record.to_json(LaunchOptions(poprun={"vipu_partition": "p", "executable_cache_path": "/c"}))
    )
    assert ipulaunch("resume", "run", "--engine", "poprun")[0] == 0
    assert {"--vipu-partition=p", "--executable-cache-path=/c"} < set(started[0].command.argv)


@pytest.mark.parametrize(
    ("words", "system", "instances"),
    [
        (("--pod", "16"), "pod16", 2),
        (("--ipus", "4"), "4 IPUs", 2),
        (("--num-ilds", "1"), "4 IPUs", 2),
        (("--oversubscribe",), "4 IPUs", 2),
        (("--host-layout", "4x1"), "4 IPUs", 4),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_every_option_that_shapes_a_plan_makes_it_again(
    words: Any, system: str, instances: int, run: RunDirectory, ipulaunch: Run, started: List[Any]
) -> None:
    run.launch_options.write_text(launch_record.to_json(LaunchOptions(host_layout="1x8")))
    before = from_json(run.plan.read_text())
    assert ipulaunch("resume", "run", *words)[0] == 0
    plan = started[0].solution.plan
    assert plan.placements != before.placements and from_json(run.plan.read_text()) == plan
    assert (plan.system, plan.instances) == (system, instances)
    assert (plan.replicas, plan.batch) == (before.replicas, before.batch)


def test_a_system_that_is_too_small_is_refused(run: RunDirectory, ipulaunch: Run, started: List[Any]) -> None:
    for words in (("--ipus", "2"), ("--pod", "16", "--ipus", "2")):
        code, _, err = ipulaunch("resume", "run", *words)
        assert (code, started) == (3, [])
        assert "the run has 4 replicas x 1 IPU = 4 IPUs, and would continue with 2\n" in err


def test_other_instances_stay_on_the_hosts_of_the_run(
    run: RunDirectory, ipulaunch: Run, started: List[Any], solve_for: Callable[..., Any]
) -> None:
    run.plan.write_text(to_json(solve_for(4, 2, hosts=("a", "b")).plan))
    code, _, err = ipulaunch("resume", "run", "--engine", "poprun", "--num-instances", "4", "--host-layout", "1x4")
    assert (code, started[0].solution.plan.hosts) == (0, ("a", "b")), err


@pytest.mark.parametrize("option", ["--num-epochs", "--no-validation", "--side", "--set", "--config"])
def test_a_setting_is_answered_with_how_to_change_it(option: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("resume", "a", option, "3")
    assert (code, out) == (2, "")
    said = " ".join(err.split())
    assert f"No such option '{option}' here: a run continues with its own settings." in said
    assert f"To change them: ipulaunch WORKLOAD --resume RUN {option} ..." in said


def test_other_options_are_answered_with_near_misses(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("resume", "a", "--num-instance", "3")
    assert code == 2
    assert "--num-instances" in err
    assert "settings" not in err
