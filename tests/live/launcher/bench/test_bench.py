"""`ipulaunch bench` as a user runs it: variants, logs, files of results, exit codes."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ipulaunch.configs.benchmarks import read_specification, spec_files

FAKE = Path(__file__).parents[3] / "fakes" / "benchmark.py"
LONGEST_S = 1800  # bounds a hang
SPEC = f"""
common_options: &common
  data:
    throughput: {{regexp: 'rate: *(.*?) samples/sec', skip: 1}}
    loss: {{regexp: 'loss: (.*)', reduction_type: final}}
  derived: {{half: {{expr: '{{throughput}} / 2'}}}}
  output: [[samples/sec, throughput], [loss, loss]]
good: {{<<: *common, parameters: {{n: '1,2'}}, cmd: '{sys.executable} -IS {FAKE} print {{n}}'}}
failing: {{<<: *common, cmd: '{sys.executable} -IS {FAKE} fail'}}
silent: {{<<: *common, cmd: 'true'}}
missing: {{<<: *common, cmd: 'echo $NOT_HERE_AT_ALL'}}
broken: {{cmd: x, data: {{a: {{regexp: '(('}}}}}}
hanging: {{<<: *common, cmd: '{sys.executable} -IS {FAKE} hang'}}
"""

Bench = Callable[..., Any]


@pytest.fixture()
def start(tmp_path: Path, own_environment: Dict[str, str]) -> Callable[..., Any]:
    (tmp_path / "benchmarks.yml").write_text(SPEC)
    environ = {**own_environment, "MY_TOKEN": "s3cr3t-value"}

    def begin(*words: str) -> Any:
        line = [sys.executable, "-m", "ipulaunch.launcher", "bench", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(line, cwd=tmp_path, env=environ, stdout=pipe, stderr=pipe, text=True)

    return begin


@pytest.fixture()
def bench(start: Callable[..., Any]) -> Bench:
    def run(*words: str) -> Any:
        process = start("--spec", "benchmarks.yml", *words)
        out, err = process.communicate(timeout=LONGEST_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return run


def _values(place: Path, metric: str) -> Dict[str, Any]:
    found = json.loads((place / "benchmark_results.json").read_text())
    return {each["variant_name"]: each["results"][metric]["mean"] for each in found["variants"]}


@pytest.mark.core
def test_the_good_ones_run_whatever_is_wrong_with_the_others(bench: Bench, tmp_path: Path) -> None:
    names = ["good", "failing", "silent", "missing", "broken"]
    done = bench("--log-dir", "d", "--benchmark", *names, "god")
    place = tmp_path / "d"
    assert done.returncode == 2, done.stderr
    for text in (
        "there is no benchmark god\nhint: did you mean good?",
        "missing: the cmd needs $NOT_HERE_AT_ALL",
        "broken: the regexp of a is broken",
        "exit code 3\n  | loss: 0.5\n  | it broke, ***\n",
        "throughput: nothing in the logs matches rate:",
    ):
        assert text in done.stderr
    nothing = {"failing": None, "silent": None, "missing": None}
    assert _values(place, "throughput") == {"good_n_1": 30.0, "good_n_2": 30.0, **nothing}
    assert _values(place, "half") == {"good_n_1": 15.0, "good_n_2": 15.0, **nothing}
    assert _values(place, "loss") == {"good_n_1": 0.5, "good_n_2": 0.5, **nothing}
    rows = list(csv.DictReader((place / "benchmark_results.csv").read_text().splitlines()))
    assert [(row["Variant name"], row["exitcode"], row["outcome"]) for row in rows] == [
        ("good_n_1", "0", "ok"),
        ("good_n_2", "0", "ok"),
        ("failing", "3", "failed"),
        ("silent", "0", "no metric"),
        ("missing", "", "wrong specification"),
    ]
    assert (place / "good_n_1" / "stdout").read_text().startswith("rate: 10")
    assert (place / "good_n_1" / "stderr").read_text() == "loss: 0.5\n"
    assert (place.stat().st_mode & 0o777) == 0o700
    assert "good_n_1  ok                   samples/sec  30" in done.stdout


@pytest.mark.parametrize(
    ("names", "code"),
    [(["good"], 0), (["good", "silent"], 7), (["failing"], 7), (["failing", "missing"], 6), (["broken", "good"], 6)],
)
def test_exit_codes(bench: Bench, names: List[str], code: int) -> None:
    assert bench("--benchmark", *names).returncode == code


def test_rounds_take_turns_and_are_compared_with_earlier_ones(bench: Bench, tmp_path: Path) -> None:
    assert bench("--benchmark", "good", "--rounds", "2", "--log-dir", "one").returncode == 0
    path = tmp_path / "one" / "benchmark_results.json"
    earlier = json.loads(path.read_text())
    assert [len(each["rounds"]) for each in earlier["variants"]] == [2, 2]
    assert (tmp_path / "one" / "good_n_2" / "round-2" / "stdout").exists()
    for each in earlier["variants"]:
        for number, values in enumerate(one["values"] for one in each["rounds"]):
            values["throughput"] = 59.0 + 2 * number
    earlier["machine"]["host"] = "elsewhere"
    path.write_text(json.dumps(earlier))
    done = bench("--benchmark", "good", "--json", "--log-dir", "two", "--against", str(path))
    found = json.loads(done.stdout)
    assert found["changes"]["good_n_1"]["throughput"] == {
        "earlier": 60.0,
        "now": 30.0,
        "ratio": 0.5,
        "verdict": "outside the spread",
    }
    assert found["changes"]["good_n_1"]["loss"]["verdict"] == "within the spread"
    assert "the earlier results have 2 rounds, these 1" in done.stderr
    assert "from another machine: host elsewhere" in done.stderr


def test_stop_on_error_leaves_the_rest(bench: Bench, tmp_path: Path) -> None:
    done = bench("--benchmark", "failing", "good", "--stop-on-error", "--log-dir", "d", "--csv")
    assert done.returncode == 7
    outcomes = [row["outcome"] for row in csv.DictReader(done.stdout.splitlines())]
    assert outcomes == ["failed", "not run", "not run"]
    assert json.loads((tmp_path / "d" / "benchmark_results.json").read_text())["complete"] is False


@pytest.mark.core
def test_ctrl_c_leaves_partial_results_and_nothing_running(
    start: Callable[..., Any], tmp_path: Path, own_environment: Dict[str, str], lifeline: Any
) -> None:
    own_environment = {**own_environment, "LIFELINE": str(lifeline.path)}
    line = [sys.executable, "-m", "ipulaunch.launcher", "bench", "--spec", "benchmarks.yml", "--log-dir", "d"]
    names = ["--benchmark", "good", "hanging", "failing"]
    with subprocess.Popen(
        [*line, *names], cwd=tmp_path, env=own_environment, stderr=subprocess.PIPE, text=True
    ) as process:
        lifeline.wait_for(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 130 and "stopped by SIGINT: the results are partial" in err
    assert lifeline.has_ended()
    found = json.loads((tmp_path / "d" / "benchmark_results.json").read_text())
    assert found["complete"] is False
    assert [each["outcome"] for each in found["variants"]] == ["ok", "ok", "interrupted", "not run"]
    assert _values(tmp_path / "d", "throughput")["good_n_2"] == 30.0


def _shipped() -> List[str]:
    return [name for name in read_specification(spec_files([])).benchmarks if name.endswith("_rehearsal")]


def _run_shipped(start: Callable[..., Any], name: str) -> Any:
    process = start("--benchmark", name, "--json", "--log-dir", "d")
    out, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, err
    (found,) = json.loads(out)["variants"]
    return found


def test_the_smallest_shipped_benchmark_measures_what_the_run_recorded(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    results = _run_shipped(start, "mnist_rehearsal")["results"]
    (summary,) = (tmp_path / "d" / "mnist_rehearsal").glob("runs/*/summary.json")
    recorded = json.loads(summary.read_text())
    assert results["throughput"]["mean"] == pytest.approx(recorded["samples_per_s"], abs=0.06)
    assert results["loss"]["mean"] == pytest.approx(recorded["metrics"]["loss"], rel=1e-3)


@pytest.mark.night
@pytest.mark.parametrize("name", sorted(set(_shipped()) - {"mnist_rehearsal"}))
def test_every_shipped_rehearsal_gives_its_metrics(start: Callable[..., Any], name: str) -> None:
    """Night: each trains for up to a minute; the smallest of them runs by day."""
    if "serving" in name:
        pytest.importorskip("grpc", reason="needs the extra [serving]")
    assert all(each["mean"] for metric, each in _run_shipped(start, name)["results"].items() if "compil" not in metric)
