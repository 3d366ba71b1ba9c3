from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipulaunch.launcher.engines.direct import direct_environment
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch import launch_record

Run = Callable[..., Any]
SYNTHETIC = "warning: the samples are synthetic: give --data-dir, or --synthetic-data cpu if that is meant\n"
DIRECT = ("--engine", "direct", "--dry-run")


def test_the_line_is_that_of_one_worker(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("cosmoflow", "--pod", "16", "--num-instances", "1", *DIRECT)
    assert (code, err) == (0, SYNTHETIC)
    assert out == (
        "python3 -m ipulaunch.workers cosmoflow --backend ipu --num-replicas 16 --set launch.num_instances=1\n"
    )


def test_a_pipeline_has_its_replicas(ipulaunch: Run) -> None:
    words = ("imagenet", "--pod", "16", "--config", "resnet50_16ipus_8k_bn_pipeline", "--dataset-path", "/d")
    data = json.loads(ipulaunch(*words, "--engine", "direct", "--json").out)
    assert data["argv"][3:8] == ["imagenet", "--backend", "ipu", "--num-replicas", "4"]
    assert (data["plan"]["replicas"], data["plan"]["ipus_per_replica"]) == (4, 4)
    assert [each["origin"] for each in data["decisions"] if each["name"] == "instances"] == ["--engine direct"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pod", "16", "--num-instances", "2"), "2 instances, and --engine direct starts 1 process"),
        (("--pod", "128"), "128 IPUs, and one process without poprun has at most 64 (R9)"),
        (("--pod", "16", "--hosts", "a,b"), "2 hosts named (a,b), and --engine direct starts 1 process on this"),
        (("--pod", "16", "--hosts", "elsewhere"), "1 host named (elsewhere), and --engine direct starts 1 process"),
    ],
)
@pytest.mark.parametrize("command", [("cosmoflow",), ("plan", "cosmoflow")], ids=["launch", "plan"])
def test_what_one_process_cannot_do_is_refused(
    words: Tuple[str, ...], said: str, command: Tuple[str, ...], ipulaunch: Run
) -> None:
    more = () if command[0] == "plan" else ("--dry-run",)
    code, out, err = ipulaunch(*command, *words, "--engine", "direct", *more)
    assert (code, out) == (3, "")
    assert f"error: {said}" in err


@pytest.mark.parametrize("command", [("run", "true"), ("plan", "program")], ids=["run", "plan"])
def test_programs_need_popdist(command: Tuple[str, ...], ipulaunch: Run) -> None:
    name, *rest = command
    words = (name, *rest, "--pod", "4", "--engine", "direct") if name == "plan" else (
        name, "--pod", "4", *DIRECT, *rest
    )  # fmt: skip
    code, _, err = ipulaunch(*words)
    assert (code, "--engine direct is for workloads" in err) == (2, True)


def test_without_the_sdk_nothing_starts(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("cosmoflow", "--pod", "4", "--engine", "direct")
    assert code == 4
    assert "the Poplar SDK is not enabled here" in err and "source <sdk>/enable.sh" in err


def test_the_walk_through_may_use_ipus_without_poprun(ipulaunch: Run) -> None:
    words = ("mnist", "--synthetic-data", "cpu", "--engine", "direct")
    assert ipulaunch(*words, "--use-ipu", "--dry-run").code == 0
    assert ipulaunch(*words, "--no-use-ipu", "--dry-run").code == 2


@pytest.mark.parametrize(
    ("poprun", "given", "environ", "expected"),
    [
        pytest.param({}, {}, {}, {}, id="nothing"),
        pytest.param(
            {"vipu_partition": "p", "vipu_server_host": "h", "vipu_server_port": 1, "vipu_server_timeout": 2}, {}, {},
            {
                "IPUOF_VIPU_API_PARTITION_ID": "p", "IPUOF_VIPU_API_HOST": "h",
                "IPUOF_VIPU_API_PORT": "1", "IPUOF_VIPU_API_TIMEOUT": "2",
            },
            id="controller",
        ),
        pytest.param(
            {"executable_cache_path": "/c"}, {"A": "b"}, {},
            {"TF_POPLAR_FLAGS": "--executable_cache_path=/c", "A": "b"}, id="cache",
        ),
        pytest.param(
            {"executable_cache_path": "/c"}, {}, {"TF_POPLAR_FLAGS": "--x"},
            {"TF_POPLAR_FLAGS": "--x --executable_cache_path=/c"}, id="flags-of-the-shell",
        ),
        pytest.param(
            {"executable_cache_path": "/c"}, {"TF_POPLAR_FLAGS": "--y"}, {"TF_POPLAR_FLAGS": "--x"},
            {"TF_POPLAR_FLAGS": "--y --executable_cache_path=/c"}, id="flags-of-an-option",
        ),
        pytest.param(
            {"executable_cache_path": "/c"}, {}, {"TF_POPLAR_FLAGS": "--executable_cache_path=/d"}, {}, id="cache-wins",
        ),
    ],
)  # fmt: skip
def test_options_of_poprun_that_are_variables(
    poprun: Dict[str, Any], given: Dict[str, str], environ: Dict[str, str], expected: Dict[str, str]
) -> None:
    assert direct_environment(poprun, given, environ) == expected


PARTITION = "IPUOF_VIPU_API_PARTITION_ID"


@pytest.mark.parametrize("engine", ["direct", "poprun"])
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        pytest.param(f"{PARTITION}=other", 2, id="another value"),
        pytest.param(PARTITION, 2, id="another value of the shell"),
        pytest.param(f"{PARTITION}=p", 0, id="the same value"),
        pytest.param("IPUOF_VIPU_API_HOST=h", 0, id="another variable"),
    ],
)
def test_a_variable_that_an_option_sets_otherwise_is_refused(
    asked: str, code: int, engine: str, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PARTITION, "of the shell")
    words = ("cosmoflow", "--pod", "4", "--engine", engine, "--dry-run", "--vipu-partition", "p", "--env", asked)
    found = ipulaunch(*words)
    assert found.code == code
    said = f"error: --vipu-partition p sets {PARTITION}, and --env asks for another value of it\n"
    assert found.err.startswith(said) == bool(code)
    assert (f"{asked.partition('=')[0]}=" in found.out) == (code == 0)


def test_a_variable_of_the_shell_gives_way_to_an_option(ipulaunch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARTITION, "of the shell")
    line = ipulaunch("cosmoflow", "--pod", "4", *DIRECT, "--vipu-partition", "p").out
    assert shlex.split(line)[0] == f"{PARTITION}=p"


def test_options_without_effect_are_told(ipulaunch: Run) -> None:
    more = ["--mpi-global-args=-x", "--no-allow-run-as-root", "--print-topology"]
    err = ipulaunch("cosmoflow", "--pod", "4", *DIRECT, *more).err
    flags = "--print-topology, --mpi-global-args, --allow-run-as-root"
    assert err == f"note: for poprun and MPI, without effect in one process: {flags}\n{SYNTHETIC}"


def test_compiling_ahead_keeps_its_executables(ipulaunch: Run) -> None:
    words = ("cosmoflow", "--pod", "4", *DIRECT, "--compile-only")
    assert ipulaunch(*words).code == 6
    code, out, err = ipulaunch(*words, "--executable-cache-path", "/c", "--vipu-partition", "p")
    assert code == 0
    assert shlex.split(out)[0] == "TF_POPLAR_FLAGS=--executable_cache_path=/c"
    assert err == f"note: no IPU is attached, so without effect: --vipu-partition\n{SYNTHETIC}"


@pytest.mark.parametrize(("engine", "kept"), [("direct", "direct"), ("poprun", None), ("openmpi", None)])
def test_a_run_is_resumed_as_it_was_launched(engine: str, kept: Any) -> None:
    assert launch_record.from_json(launch_record.to_json(LaunchOptions(engine=engine)), "asked.json").engine == kept


@pytest.mark.usefixtures("in_plain_directory")
def test_a_job_says_how_it_is_started(ipulaunch: Run) -> None:
    Path("site.yaml").write_text("vipu: {partition: 'slurm_{job_id}'}\n")
    words = ("submit", "cosmoflow", "--pod", "16", "--engine", "direct", "--scheduler", "slurm", "--dry-run")
    lines: List[str] = ipulaunch(*words, "--site", "./site.yaml").out.splitlines()
    found = [line.strip(" \\") for line in lines if line.startswith("    --")]
    for word in ("--engine=direct", "--num-instances=1", "--num-replicas=16"):
        assert word in found
    assert '--vipu-partition="slurm_${SLURM_JOB_ID}"' in found
