from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest

from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.cli.main import cli
from ipulaunch.launcher.doctor import environment as worlds
from ipulaunch.launcher.doctor import places, report
from ipulaunch.launcher.doctor.diagnosis import Check, Diagnosis, UsedDirectory, amount, clean
from ipulaunch.launcher.doctor.environment import Environment, this_machine
from ipulaunch.launcher.doctor.examinations import diagnose, run_examinations
from ipulaunch.launcher.doctor.report import as_data, as_text, can_run

COMPILE = ("--compile-only", "--executable-cache-path", "/c")
CACHE = UsedDirectory("executable cache", Path("/c"), "--executable-cache-path", ("poprun", "direct"))

CHECKS = [
    Check("poprun, on IPUs", "poprun", "missing", "not on the PATH", "enable it", ("poprun",)),
    Check("openmpi, on CPUs", "mpirun", "ok", "Open MPI 5.0.8"),
    Check("this machine", "clock", "warning", "1970", "set it"),
    Check("host a", "ssh", "ok", "by ssh"),
    Check("host a", "clock", "ok", "within 1 s"),
]


def test_the_report_is_aligned_and_grouped() -> None:
    text = as_text(Diagnosis(), CHECKS, "utf-8")
    assert _plain(text).splitlines() == [
        "poprun, on IPUs",
        "  ! missing  poprun  not on the PATH",
        "                     fix: enable it",
        "",
        "openmpi, on CPUs",
        "  ✓ ok       mpirun  Open MPI 5.0.8",
        "",
        "this machine",
        "  ! warning  clock   1970",
        "                     fix: set it",
        "",
        "host a",
        "  ✓ ok       ssh     by ssh; good: clock",
        "",
        "poprun: not ready, missing: poprun",
        "openmpi: ready",
        "1 warning",
    ]


def test_what_the_plan_needs_and_lacks_is_an_error(make_plan: Callable[..., Any]) -> None:
    plan = make_plan(4, 2)
    for engine, mark, verdict in (("poprun", "✗", "cannot run here"), ("openmpi", "!", "can run here")):
        diagnosis = Diagnosis(plan=plan, engine=engine)
        text = _plain(as_text(diagnosis, CHECKS, "utf-8"))
        assert f"  {mark} missing  poprun" in text
        assert text.endswith(f"with {engine}, 2 instances: {verdict}")
        assert can_run(diagnosis, CHECKS) is (engine == "openmpi")
    assert can_run(Diagnosis(), CHECKS) is None


def test_a_terminal_without_marks_gets_letters() -> None:
    text = _plain(as_text(Diagnosis(), CHECKS, "ascii"))
    assert text.isascii()
    assert "  + ok       mpirun" in text


def test_verbose_shows_every_check_of_a_good_host() -> None:
    assert "within 1 s" in as_text(Diagnosis(), CHECKS, "utf-8", verbose=True)


def test_many_hosts_that_lack_something_are_not_all_named() -> None:
    checks = [Check(f"host h{n}", "ssh", "missing", "no answer", "try", ("poprun", "openmpi")) for n in range(20)]
    assert _plain(as_text(Diagnosis(), checks, "utf-8")).endswith("ssh of host h7 and 12 more")


def test_the_data_say_the_same(make_plan: Callable[..., Any]) -> None:
    data = as_data(Diagnosis(plan=make_plan(4, 2), engine="poprun"), CHECKS)
    assert data["can_run"] is False
    assert data["engines"] == {
        "poprun": {"ready": False, "missing": ["poprun"]},
        "openmpi": {"ready": True, "missing": []},
    }
    assert (data["plan"]["engine"], data["plan"]["instances"]) == ("poprun", 2)
    assert data["checks"][0] == {
        "group": "poprun, on IPUs",
        "name": "poprun",
        "state": "missing",
        "stops_the_plan": True,
        "found": "not on the PATH",
        "fix": "enable it",
    }
    assert as_data(Diagnosis(), CHECKS)["plan"] is None


def _plain(text: str) -> str:
    import click

    return click.unstyle(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (2048, "2 KiB"), (1 << 20, "1 MiB"), (3 << 29, "1.5 GiB"), (2000 << 30, "2,000 GiB")],
)
def test_amounts(size: int, text: str) -> None:
    assert amount(size) == text


@pytest.mark.parametrize(
    "said",
    [
        "HF_TOKEN=canary",
        "\x1b[31mHF_TOKEN=canary\x1b[0m",
        "use --api-key canary",
        "(MY_PASSWORD=canary)",
        "wget https://me:canary@host/x",
        "x='AWS_SECRET_ACCESS_KEY=canary'",
    ],
)
def test_findings_hold_no_secrets(said: str) -> None:
    found = clean(Check("g", "n", "ok", f"ssh: {said}", f"set {said}"))
    assert "canary" not in found.found + found.fix


def test_findings_are_one_line_of_a_length_that_can_be_read() -> None:
    found = clean(Check("g", "n", "ok", "a\nb\x07\x1b[2J " + "x" * 1000)).found
    assert found.startswith("a b x")
    assert found.isprintable()
    assert len(found) <= 300


def test_a_check_that_breaks_is_a_finding(make_environment: Callable[..., Environment]) -> None:
    def breaks(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
        raise ZeroDivisionError("no idea")

    (check,) = run_examinations([("g", "n", breaks)], Diagnosis(), make_environment())
    assert (check.state, check.found) == ("warning", "could not be checked: ZeroDivisionError: no idea")


def test_a_check_that_hangs_does_not_hold_up_the_others(make_environment: Callable[..., Environment]) -> None:
    end = threading.Event()

    def hangs(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
        end.wait(600)
        return []

    good = Check("g", "good", "ok", "fine")
    found = run_examinations(
        [("g", "slow", hangs), ("g", "good", lambda diagnosis, environment: [good])],
        Diagnosis(),
        make_environment(),
        2.0,
    )
    end.set()
    assert [(check.name, check.state) for check in found] == [("slow", "warning"), ("good", "ok")]
    assert "no answer within" in found[0].found


def test_an_empty_machine_is_diagnosed_without_an_error(
    make_environment: Callable[..., Environment], tmp_path: Path
) -> None:
    """Nothing the kernel usually shows is there; every check has a word for it."""
    environment = make_environment(root=tmp_path / "nothing", mpi="")
    checks = diagnose(Diagnosis(directory=tmp_path, python="/no/python"), environment)
    assert not [check for check in checks if "could not be checked" in check.found]
    assert all(check.fix for check in checks if check.state != "ok")


def test_ports() -> None:
    assert worlds._talk_to_self() == ""
    assert worlds._reach("127.0.0.1", 1, 1.0) != ""
    assert worlds._reach("a..b", 1, 1.0) != ""


@pytest.fixture()
def quick(monkeypatch: pytest.MonkeyPatch) -> List[Diagnosis]:
    """The command without its checks: what it would look at."""
    diagnoses: List[Diagnosis] = []
    monkeypatch.setattr(report, "diagnose", lambda diagnosis, environment: diagnoses.append(diagnosis) or CHECKS)
    return diagnoses


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param([], {"engines": ("poprun", "openmpi"), "plan": None, "hosts": ()}, id="bare"),
        pytest.param(["--engine", "openmpi"], {"engines": ("openmpi",), "engine": None}, id="engine"),
        pytest.param(["--hosts", "a,b[1-2]"], {"hosts": ("a", "b1", "b2")}, id="hosts"),
        pytest.param(["--python", "/p"], {"python": "/p"}, id="python"),
        pytest.param(["--run-dir", "/x/run"], {"run_dir": Path("/x/run"), "runs": Path("/x")}, id="run-dir"),
        pytest.param(["--pod", "4"], {"engine": "openmpi", "engines": ("poprun", "openmpi")}, id="pod"),
        pytest.param(["cosmoflow", "--pod", "4", "--engine", "openmpi"], {"engines": ("openmpi",)}, id="workload"),
        pytest.param(["cosmoflow", "--pod", "4", "--hosts", "a,b"], {"hosts": ("a", "b")}, id="workload-hosts"),
        pytest.param(["mnist", "--no-use-ipu"], {"engines": ("openmpi",)}, id="use-ipu"),
        pytest.param(["program", "--pod", "4"], {"is_own_program": True}, id="program"),
        pytest.param(["imagenet", "--pod", "4", "--no-rehearsal"], {"samples": "not named"}, id="no-data"),
        pytest.param(["cifar10", "--pod", "4"], {"needs_estimators": False}, id="keras"),
        pytest.param(["cifar10", "--ipus", "1", "--api", "estimator"], {"needs_estimators": True}, id="estimator"),
        pytest.param(["cosmoflow", "--pod", "4", "--executable-cache-path", "/c"], {"writes": (CACHE,)}, id="cache"),
        pytest.param(["program", "--pod", "4", "--executable-cache-path", "/c"], {"writes": (CACHE,)}, id="own-cache"),
    ],
)
def test_what_is_looked_at(
    words: List[str], expected: Dict[str, Any], ipulaunch: Callable[..., Any], quick: List[Diagnosis], fake_mpirun: Path
) -> None:
    assert ipulaunch("doctor", *words).code == 0
    assert {name: getattr(quick[0], name) for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        (["--engine", "direct"], None),
        (["--pod", "16", "--engine", "direct"], "any workload on pod16 with direct, 1 instance: cannot run here"),
        (["cosmoflow", "--pod", "16", "--engine", "direct"], "with direct, 1 instance: cannot run here"),
    ],
    ids=["bare", "pod", "workload"],
)
def test_one_process_is_looked_at_under_its_own_name(
    words: List[str],
    ends: Optional[str],
    ipulaunch: Callable[..., Any],
    quick: List[Diagnosis],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disabled = Check("poprun, on IPUs", "SDK", "missing", "not enabled", "enable it", ("poprun", "direct"))
    monkeypatch.setattr(report, "diagnose", lambda diagnosis, environment: quick.append(diagnosis) or [disabled])
    code, out, err = ipulaunch("doctor", *words)
    assert quick[0].engines == ("direct",)
    assert "direct: not ready, missing: SDK" in out.splitlines()
    if ends is None:
        assert (code, err) == (0, "")
    else:
        assert code == 4 and out.strip().endswith(ends)
        assert "error: this cannot run here with direct; missing: SDK" in err
    data = json.loads(ipulaunch("doctor", *words, "--json").out)
    assert list(data["engines"]) == ["direct"]
    assert ends is None or data["plan"]["engine"] == "direct"


@pytest.mark.parametrize("asked", ["runs/mnist-1", "mnist-1", "auto"])
def test_the_run_to_resume_is_that_of_the_launch(
    asked: str, ipulaunch: Callable[..., Any], quick: List[Diagnosis], fake_mpirun: Path, tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "mnist-1"
    (run / "checkpoints" / "update-00000008").mkdir(parents=True)
    (run / "job.yaml").write_text(to_yaml(Job("mnist", "cpu", resolve("mnist", rehearsal=True).settings)))
    (run / "plan.json").touch()
    assert ipulaunch("doctor", "mnist", "--engine", "openmpi", "--resume", asked).code == 0
    assert [place.path for place in quick[0].reads if place.flag == "--resume"] == [run]


def test_a_directory_without_the_records_of_the_workload_is_told(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.tfrecord").touch()
    place = UsedDirectory("data", tmp_path, "--data-dir", holds=("train/*.tfrecord", "validation/*.tfrecord"))
    found = places._readable(place)
    assert (found.state, found.found) == ("missing", f"{tmp_path} holds no validation/*.tfrecord")
    assert places._readable(place._replace(holds=place.holds[:1])).state == "ok"


def test_nothing_to_resume_is_nothing_to_look_at(
    ipulaunch: Callable[..., Any], quick: List[Diagnosis], fake_mpirun: Path
) -> None:
    assert ipulaunch("doctor", "mnist", "--engine", "openmpi", "--resume", "auto").code == 0
    assert not [place for place in quick[0].reads if place.flag == "--resume"]


@pytest.mark.parametrize(
    ("words", "vipu"),
    [
        ([], None),
        (["--vipu-server-host", "c", "--vipu-partition", "p"], ("c", 8090, "p", False)),
        (["cosmoflow", "--pod", "4", "--vipu-partition", "p", "--update-partition"], (None, 8090, "p", True)),
        (["cosmoflow", "--pod", "4", "--vipu-partition", "p", "--offline-mode"], None),
        (["cosmoflow", "--pod", "4", "--vipu-server-host", "c", "--vipu-server-port", "1"], ("c", 1, None, False)),
    ],
)
def test_the_controller_is_looked_at_when_asked(
    words: List[str], vipu: Any, ipulaunch: Callable[..., Any], quick: List[Diagnosis], fake_mpirun: Path
) -> None:
    assert ipulaunch("doctor", *words).code == 0
    assert quick[0].vipu == vipu


def test_the_controller_is_no_matter_where_nothing_is_attached(
    ipulaunch: Callable[..., Any], quick: List[Diagnosis], fake_mpirun: Path
) -> None:
    words = ["cosmoflow", "--pod", "4", "--engine", "poprun", *COMPILE, "--vipu-server-host", "c"]
    assert ipulaunch("doctor", *words).code == 4  # there is no poprun
    assert quick[0].vipu is None


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["cosmoflo"], 2, "did you mean cosmoflow?"),
        (["--json", "cosmoflow", "--pod", "4"], 2, "--json comes after the workload"),
        (["--num-ilds", "1", "program", "--pod", "4"], 2, "--num-ilds comes after the workload"),
        (["program", "--pod", "4", "--env", "1X"], 2, "not the name of a variable"),
        (["--host-layout", "2x2"], 2, "no system is named"),
        (["--hosts", "a,a"], 2, "names a twice"),
        (["--hosts", "a", "--hostfile", "f"], 2, "both given"),
        (["--python", ""], 2, "--python is empty"),
        (["imagenet"], 2, "no system is named"),
        (["cosmoflow", "--pod", "5"], 3, ""),
        (["--pod", "128", "--engine", "direct"], 3, "one process without poprun has at most 64"),
        (["cosmoflow", "--pod", "128", "--engine", "direct"], 3, "one process without poprun has at most 64"),
        (["cosmoflow", "--pod", "4", "--env", "1X"], 2, "not the name of a variable"),
        (["cosmoflow", "--pod", "4", "--engine", "poprun"], 4, "cannot run here with poprun; missing: poprun"),
        (["cosmoflow", "--pod", "4", "--resume", "none"], 5, "there is no run or checkpoint none"),
    ],
)
def test_refusals(
    words: List[str], code: int, said: str, ipulaunch: Callable[..., Any], quick: List[Diagnosis], fake_mpirun: Path
) -> None:
    outcome = ipulaunch("doctor", *words)
    assert (outcome.code, said in outcome.err) == (code, True), outcome


def test_json_stays_whole_when_something_is_missing(ipulaunch: Callable[..., Any], quick: List[Diagnosis]) -> None:
    code, out, err = ipulaunch("doctor", "cosmoflow", "--pod", "4", "--engine", "poprun", "--json")
    assert (code, json.loads(out)["can_run"]) == (4, False)
    assert err.startswith("error: ")


def test_colours_are_for_terminals(ipulaunch: Callable[..., Any], quick: List[Diagnosis]) -> None:
    assert "\x1b" not in ipulaunch("doctor").out


def test_it_is_listed() -> None:
    assert "doctor" in cli.list_commands(None)  # type: ignore[arg-type]


def test_this_machine_is_where_the_user_is(tmp_path: Path) -> None:
    assert this_machine().directory == tmp_path
