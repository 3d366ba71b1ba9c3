from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Tuple

import click
import pytest

from ipulaunch.configs.errors import EXIT_CODES
from ipulaunch.configs.pods import HostEntry
from ipulaunch.configs.settings.schema import leaves
from ipulaunch.configs.settings.workloads import WORKLOADS, schema_of
from ipulaunch.launcher.cli.main import cli
from ipulaunch.launcher.engines import discovery
from ipulaunch.topology.machines.hosts import reference
from ipulaunch.topology.planning.plan import from_json

pytestmark = pytest.mark.core

Run = Callable[..., Any]

WORKER = "python3 -m ipulaunch.workers cosmoflow --backend ipu"
SYNTHETIC = "warning: the samples are synthetic: give --data-dir, or --synthetic-data cpu if that is meant\n"
POD16 = "poprun --num-instances=16 --num-replicas=16 --ipus-per-replica=1 --process-placement=spreadnuma"


def _commands(command: click.Command, path: Tuple[str, ...] = ()) -> Iterator[Tuple[Tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, (*path, name))


COMMANDS = dict(_commands(cli))


def test_commands() -> None:
    data = ["audit", "bench", "build", "build imagenet", "index", "make", "verify"]
    data += [f"make {name}" for name in ("cifar10", "cifar100", "cosmoflow", "imagenet", "mnist")]
    own = ["", "check", "data", *(f"data {name}" for name in data), "plan", "plan program", "run"]
    own += ["doctor", "doctor program", *(f"doctor {workload}" for workload in WORKLOADS)]
    own += ["bench", "cancel", "compare", "logs", "ps", "report", "resume", "status", "submit", "translate"]
    own += ["submit program", *(f"submit {workload}" for workload in WORKLOADS)]
    own += ["export", *(f"export {workload}" for workload in WORKLOADS)]
    own += ["capacity", *(f"capacity {workload}" for workload in WORKLOADS)]
    own += ["serve", "request", *(f"request {workload}" for workload in WORKLOADS)]
    workloads = [*WORKLOADS, *(f"plan {workload}" for workload in WORKLOADS)]
    assert sorted(map(" ".join, COMMANDS)) == sorted(own + workloads)


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "ipulaunch")
def test_help_lists_every_option(path: Tuple[str, ...], flag: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*path, flag)
    assert (code, err) == (0, "")
    words = out.replace(",", " ").replace("/", " ").split()
    for param in COMMANDS[path].params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help, f"{param.name} has no help"
            for option in (*param.opts, *param.secondary_opts):
                assert option in words


@pytest.mark.parametrize("workload", WORKLOADS)
def test_help_of_a_workload_has_its_settings(workload: str, ipulaunch: Run) -> None:
    words = ipulaunch(workload, "--help").out.replace(",", " ").split()
    flags = [leaf.about.flag.split("/")[0] for leaf in leaves(schema_of(workload)) if leaf.about.flag]
    assert flags
    assert [flag for flag in flags if flag not in words] == []


@pytest.mark.parametrize(
    ("path", "engine", "hosts"),
    [
        (("cosmoflow",), "poprun if the SDK is enabled", "this machine"),
        (("submit", "cosmoflow"), "poprun.", "as many as the plan needs"),
        (("plan", "cosmoflow"), "poprun.", "as many as come with the IPUs"),
        (("plan", "program"), "poprun.", "as many as come with the IPUs"),
        (("run",), "poprun if the SDK is enabled", "this machine"),
        (("resume",), "that of the run", "those of the run"),
    ],
)
def test_help_has_the_defaults_of_the_command(path: Tuple[str, ...], engine: str, hosts: str, ipulaunch: Run) -> None:
    text = " ".join(ipulaunch(*path, "--help").out.split())
    assert f"What starts the instances. Default: {engine}" in text
    assert f"a,b or host[0-3]. Default: {hosts}" in text


def test_help_has_the_exit_codes(ipulaunch: Run) -> None:
    lines = ipulaunch("--help").out.splitlines()
    for code, meaning in EXIT_CODES.items():
        assert any(line.split()[:2] == [str(code), meaning.split()[0]] for line in lines if line)


def test_version(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("--version")
    assert (code, err) == (0, "")
    name, version = out.split()
    assert name == "ipulaunch"
    assert version[0].isdigit()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("cosmoflw",), "did you mean cosmoflow?", id="workload"),
        pytest.param(("chekc",), "did you mean check?", id="command"),
        pytest.param(("xyzzy",), "known: bench, cancel, capacity, check, cifar10, ", id="nothing-near"),
        pytest.param(("plan", "cosmoflw"), "did you mean cosmoflow?", id="workload-of-plan"),
        pytest.param(("cosmoflow", "--pods", "16"), "--pod", id="option"),
        pytest.param(("cosmoflow", "--n-trian", "16"), "--n-train", id="setting"),
        pytest.param(("run", "--num-instance", "2", "--", "prog"), "--num-instances", id="option-of-run"),
    ],
)
def test_near_misses(words: Tuple[str, ...], said: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch(*words)
    assert (code, out) == (2, "")
    assert said in err


@pytest.fixture()
def files(tmp_path: Path) -> None:
    """What the bad inputs below refer to."""
    (tmp_path / "hosts").write_text("a\nb slots=2  # ours\n")
    (tmp_path / "no-hosts").write_text("# none\n")
    (tmp_path / "broken.yaml").write_text("data:\n  n_train: [1\n")
    (tmp_path / "object.yaml").write_text("data: !!python/object/apply:os.getcwd []\n")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "typo.yaml").write_text("data:\n  n_train: 8\n  n_vaild: 8\n")
    (tmp_path / "directory").mkdir()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param("--pod 17", 3, ["there is no POD 17", "--pod 16"], id="pod-17"),
        pytest.param("--pod moon", 3, ["there is no POD moon", "pod16"], id="pod-moon"),
        pytest.param("--pod 16 --ipus 32", 3, ["32", "16 IPUs"], id="more-ipus-than-the-pod"),
        pytest.param("--ipus 0", 2, ["--ipus"], id="no-ipus"),
        pytest.param("--pod 16 --ipus-per-replica 3", 3, ["3 IPUs per replica", "follows from"], id="depth-3"),
        pytest.param("--pod 4 --ipus-per-replica 8", 3, ["4 IPUs", "8 IPUs"], id="too-deep"),
        pytest.param("--pod 16 --num-replicas 32", 3, ["32", "16"], id="too-many-replicas"),
        pytest.param("--pod 16 --num-instances 5", 3, ["16 replicas", "5 instances", "4 or 8"], id="5-instances"),
        pytest.param(
            "--pod 16 --host-layout 1x4 --num-instances 8",
            3,
            ["8 instances", "4 cores", "--num-instances 4", "--oversubscribe"],
            id="more-instances-than-cores",
        ),
        pytest.param("--pod 128", 3, ["pod128 needs 2 hosts", "--hosts"], id="pod128-without-hosts"),
        pytest.param("--ipus 128", 3, ["128 IPUs need 2 hosts, and none are named"], id="128-ipus-without-hosts"),
        pytest.param(
            "--pod 256 --ipus 128", 3, ["128 IPUs of pod256 need 2 hosts", "'host[0-1]'"], id="part-without-hosts"
        ),
        pytest.param("--pod 16 --hosts a,,b", 2, ["a,,b", "hole"], id="hole"),
        pytest.param("--pod 16 --hosts a[0-3", 2, ["open bracket"], id="open-bracket"),
        pytest.param("--pod 16 --hosts a,b,a", 2, ["names a twice"], id="host-twice"),
        pytest.param("--pod 16 --hosts a --hostfile hosts", 2, ["--hosts and --hostfile"], id="both-hosts"),
        pytest.param("--pod 16 --hostfile missing", 2, ["missing"], id="no-host-file"),
        pytest.param("--pod 16 --hostfile no-hosts", 2, ["names no host"], id="host-file-without-hosts"),
        pytest.param("--pod 16 --host-layout 8", 2, ["NODESxCORES"], id="layout"),
        pytest.param("--pod 16 --engine slurm", 2, ["slurm"], id="engine"),
        pytest.param("--pod 16 --sdk-version 9.9", 2, ["9.9", "2.0 to 3.4"], id="sdk"),
        pytest.param("--pod 16 --sdk-version 3.0 --vipu-allocation a", 2, ["use --vipu-cluster"], id="option-of-sdk"),
        pytest.param(
            "--pod 16 --vipu-allocation a --vipu-cluster b",
            2,
            ["--vipu-allocation a and --vipu-cluster b are both given", "from SDK 3.2 on"],
            id="two-places-for-a-partition",
        ),
        pytest.param('--pod 16 --mpi-global-args "\\""', 2, ["--mpi-global-args has a quote"], id="global-quote"),
        pytest.param('--pod 16 --mpi-local-args "-x \'A"', 2, ["--mpi-local-args has a quote"], id="local-quote"),
        pytest.param("--pod 16 --set data.n_trian=3", 6, ["data.n_trian", "data.n_train?"], id="unknown-key"),
        pytest.param("--pod 16 --set n_train", 6, ["n_train", "section.key=value"], id="no-equals"),
        pytest.param("--pod 16 --set data=3", 6, ["data", "section"], id="section-as-value"),
        pytest.param("--pod 16 --set data.n_train=many", 6, ["'many'", "whole number"], id="wrong-kind"),
        pytest.param("--pod 16 --n-train 0", 6, ["--n-train", "at least 1"], id="out-of-range"),
        pytest.param("--pod 16 --n-train many", 6, ["--n-train", "many"], id="wrong-kind-of-option"),
        pytest.param("--pod 16 --optimizer adm", 6, ["adm", "adam"], id="choice"),
        pytest.param(
            "--pod 16 --global-batch-size 64 --gradient-accumulation-count 4", 6, ["64", "4", "both"], id="both-batches"
        ),
        pytest.param("--pod 16 --config-path missing.yaml", 6, ["missing.yaml"], id="no-config-file"),
        pytest.param("--pod 16 --config-path directory", 6, ["directory"], id="directory-as-config"),
        pytest.param("--pod 16 --config-path broken.yaml", 6, ["broken.yaml:", "not valid YAML"], id="broken-yaml"),
        pytest.param("--pod 16 --config-path object.yaml", 6, ["object.yaml:1", "refused"], id="python-in-yaml"),
        pytest.param("--pod 16 --config-path binary.yaml", 6, ["binary.yaml"], id="binary-yaml"),
        pytest.param("--pod 16 --config-path typo.yaml", 6, ["typo.yaml:3", "data.n_valid?"], id="typo-in-yaml"),
        pytest.param("--pod 16 --env 1A=x", 2, ["1A"], id="variable-name"),
        pytest.param("--pod 16 --env =x", 2, ["not the name of a variable"], id="no-variable-name"),
        pytest.param("--pod 16 --env NOT_SET_HERE", 2, ["NOT_SET_HERE", "=VALUE"], id="variable-not-set"),
        pytest.param("--pod 16 --env HF_TOKEN=hunter2", 2, ["HF_TOKEN", "secret"], id="secret"),
        pytest.param("--pod 16 --env MY_OPTIONS=--api-key=hunter2", 2, ["MY_OPTIONS=...", "api-key"], id="inside"),
    ],
)
def test_bad_inputs(words: str, code: int, said: List[str], ipulaunch: Run, files: None) -> None:
    result = ipulaunch("cosmoflow", "--dry-run", *shlex.split(words))
    assert (result.code, result.out) == (code, "")
    for text in said:
        assert text in result.err
    assert "hunter2" not in result.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("cosmoflow --pod 4 --weight-updates-per-epoch 100000000000000000", 6, "at most 1,000,000,000,000"),
        ("cosmoflow --pod 4 --num-epochs 100000000000000000000 --logs-per-epoch 1/3", 6, "at most 1,000,000,000,000"),
        ("cosmoflow --pod 4 --set data.n_train=99999999999999999999999", 6, "at most 1,000,000,000,000"),
        ("cosmoflow --pod 4 --n-conv-layers 10000", 6, "at most 20"),
        ("cosmoflow --pod 4 --n-conv-layers 20", 6, "--side"),
        ("cosmoflow --pod 4 --seed 2147483648", 6, "below 2,147,483,648"),
        ("mnist --num-replicas 1000000000000", 3, "1000000000000 IPUs, and a plan has at most 65536"),
        ("program --ipus 67108864 --engine openmpi", 3, "67108864 IPUs, and a plan has at most 65536"),
        ("program --ipus 1000000000000000000000", 3, "use --ipus 65536 or fewer"),
        ("program --pod 4 --ipus 1000000000000000000000", 3, "more than the 4 IPUs of pod4"),
        ("program --pod 4 --num-replicas 1000000000000000000000", 3, "but the system has 4"),
        ("program --pod 4 --num-instances 1000000000000000000000", 3, "every instance needs a replica"),
        ("program --pod 4 --num-ilds 1000000000000000000000", 3, "IPU-Link domains"),
        ("program --pod 4 --host-layout 9999x9999", 2, "99980001 cores"),
    ],
)
def test_numbers_without_end_are_refused_at_once(words: str, code: int, said: str, ipulaunch: Run) -> None:
    found, out, err = ipulaunch("plan", *words.split())
    assert (found, out) == (code, "")
    assert said in err


@pytest.mark.parametrize(
    "words",
    [
        "program --ipus 65536 --engine openmpi --host-layout 1x2",
        "program --pod 16 --engine openmpi --host-layout 256x256",
        "cosmoflow --pod 16 --num-epochs 1000000000000 --logs-per-epoch 1/4",
        "cosmoflow --pod 16 --n-train 1000000000000 --weight-updates-per-epoch 1000000000000",
    ],
)
def test_large_numbers_are_planned(words: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("plan", *words.split())
    assert code == 0, err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("plan program --ipus 12 --num-replicas 16", "use --num-replicas 8"),
        ("plan program --ipus 7 --ipus-per-replica 2", "use --ipus 4 or 8"),
        ("plan program --ipus 3 --ipus-per-replica 4", "use --ipus-per-replica 2"),
        ("plan program --pod 16 --ipus-per-replica 3", "use --ipus-per-replica 2 or 4"),
        ("plan program --pod 16 --num-replicas 12 --num-instances 4", "use --num-replicas 8 or 16"),
        ("mnist --pipelining --num-replicas 3 --dry-run", "use --num-replicas 2 or 4"),
        ("plan program --pod 16 --num-instances 3 --engine openmpi --host-layout 1x2", "use --num-instances 2"),
        ("plan program --pod 16 --num-instances 3 --engine openmpi --host-layout 1x4", "use --num-instances 2 or 4"),
    ],
)
def test_what_a_hint_names_is_taken(words: str, hint: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch(*words.split())
    assert code == 3 and err.endswith(f"hint: {hint}\n"), err
    _, flag, *values = hint.replace(" or", "").split()
    for value in values:  # what is given last counts
        assert ipulaunch(*words.split(), flag, value).code == 0


def test_value_of_a_secret_under_another_name_is_refused(ipulaunch: Run) -> None:
    words = ("cosmoflow", "--pod", "16", "--env", "PLAIN=hunter2hunter2", "--dry-run")
    code, out, err = ipulaunch(*words, env={"HF_TOKEN": "hunter2hunter2"})
    assert (code, out) == (2, "")
    assert "--env PLAIN=... would show the value of HF_TOKEN, a secret" in err
    assert "hunter2" not in err


def test_variable_with_an_unknown_key(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("cosmoflow", "--pod", "16", "--dry-run", env={"IPULAUNCH_DATA__N_TRIAN": "3"})
    assert (code, out) == (6, "")
    assert "IPULAUNCH_DATA__N_TRIAN" in err


def test_dry_run_is_one_line(ipulaunch: Run) -> None:
    assert ipulaunch("cosmoflow", "--pod", "16", "--dry-run") == (0, f"{POD16} {WORKER}\n", SYNTHETIC)


@pytest.mark.parametrize("size", ["--ipus", "--num-replicas"])
@pytest.mark.parametrize("pod", ["128", "256", "bow-pod256"])
def test_a_part_of_a_pod_needs_only_its_own_hosts(pod: str, size: str, ipulaunch: Run) -> None:
    for count in (1, 2, 16, 64):
        code, out, err = ipulaunch("cosmoflow", "--pod", pod, size, str(count), "--dry-run")
        assert code == 0 and "--host" not in out, err
    for count in (1, 2, 16, 64, 128):
        out = ipulaunch("plan", "cosmoflow", "--pod", pod, size, str(count), "--json").out
        assert len({place["host"] for place in json.loads(out)["plan"]["placements"]}) == max(1, count // 64)


def test_warnings_of_a_dry_run_go_to_stderr(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("cosmoflow", "--pod", "16", "--num-replicas", "8", "--dry-run")
    assert (code, out.count("\n")) == (0, 1)
    assert err.startswith("warning: ")
    assert "8 IPUs stay idle" in err


def test_program(ipulaunch: Run) -> None:
    code, out, _ = ipulaunch("run", "--pod", "16", "--dry-run", "--", "python3", "my train.py", "--pod", "4")
    line = "poprun --num-instances=8 --num-replicas=16 --ipus-per-replica=1 --process-placement=spreadnuma"
    assert (code, out) == (0, f"{line} python3 'my train.py' --pod 4\n")


def test_program_needs_no_dashes_in_front(ipulaunch: Run) -> None:
    words = ("run", "--pod", "16", "--dry-run")
    assert ipulaunch(*words, "prog", "--pod", "4") == ipulaunch(*words, "--", "prog", "--pod", "4")


def test_hosts_from_a_file(ipulaunch: Run, files: None) -> None:
    words = ("run", "--pod", "16", "--dry-run")
    given = ipulaunch(*words, "--hosts", "a,b", "prog")
    assert given.out.startswith("poprun --host=a,b --num-instances=16 --num-replicas=16 ")
    assert ipulaunch(*words, "--hostfile", "hosts", "prog").out == given.out


SMALL = "warning: the hosts are taken to be like this machine (2 cores); --host-layout says what they have"


@pytest.mark.parametrize("words", [("plan", "cosmoflow"), ("cosmoflow", "--dry-run"), ("run", "--dry-run", "prog")])
@pytest.mark.parametrize(
    ("hosts", "is_told"),
    [
        pytest.param("--hosts a,b", True, id="others"),
        pytest.param("--hostfile hosts", True, id="others-in-a-file"),
        pytest.param("--hosts a,b --host-layout 1x2", False, id="layout"),
        pytest.param("--hosts a,here", False, id="this-one-too"),
        pytest.param("--hosts localhost", False, id="localhost"),
        pytest.param("", False, id="none"),
    ],
)
def test_hosts_that_are_taken_to_be_like_this_one_are_told(
    hosts: str, is_told: bool, words: Tuple[str, ...], ipulaunch: Run, files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = reference("", HostEntry(numa_nodes=1, cores_per_node=2, threads_per_core=1), "discovered")
    monkeypatch.setattr("ipulaunch.topology.machines.hosts.discover", lambda name: here)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="here.example.org"))
    options = ("--pod", "16", "--engine", "openmpi", *hosts.split())
    code, _, err = ipulaunch(*words[:2], *options, *words[2:])
    assert (code, SMALL in err.splitlines()) == (0, is_told)


def test_a_plan_tells_nothing_of_the_batch_of_a_program(ipulaunch: Run) -> None:
    code, out, _ = ipulaunch("plan", "program", "--pod", "16", "--explain")
    assert code == 0 and out.startswith("16 IPUs = 16 replicas x 1; 8 instances x 2 replicas\n")
    assert "batch" not in out and "accumulation" not in out


def test_cores_of_other_hosts_are_said_to_be_those_of_this_one(ipulaunch: Run) -> None:
    words = ("plan", "cosmoflow", "--pod", "16", "--engine", "openmpi", "--explain")
    assert "(like this machine)" in ipulaunch(*words, "--hosts", "a,b").out
    assert "(discovered)" in ipulaunch(*words, "--hosts", "localhost").out
    assert "like this machine" not in ipulaunch(*words[:4], "--hosts", "a,b", "--explain").out  # no poprun here


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        pytest.param("--set data.n_train=64", {}, "--set data.n_train=64", id="set"),
        pytest.param("--set data.n-train=64", {}, "--set data.n_train=64", id="set-with-a-dash"),
        pytest.param("--n-train 64", {}, "--set data.n_train=64", id="option"),
        pytest.param("", {"IPULAUNCH_DATA__N_TRAIN": "64"}, "--set data.n_train=64", id="variable"),
        pytest.param("--config-path mine.yaml", {}, "--set training.seed=7 --set data.n_train=16", id="file"),
        pytest.param(
            "--config-path mine.yaml",
            {"IPULAUNCH_DATA__N_TRAIN": "32"},
            "--set training.seed=7 --set data.n_train=32",
            id="variable-beats-file",
        ),
        pytest.param(
            "--n-train 64", {"IPULAUNCH_DATA__N_TRAIN": "32"}, "--set data.n_train=64", id="option-beats-variable"
        ),
        pytest.param("--no-validation", {}, "--set training.validation=false", id="switch"),
        pytest.param("--learning-rate 1e-3", {}, "--set optimizer.learning_rate=0.001", id="number"),
        pytest.param("--num-epochs 3 --seed 5", {}, "--set training.num_epochs=3 --set training.seed=5", id="two"),
    ],
)
def test_settings_reach_the_worker(
    words: str, env: Dict[str, str], expected: str, ipulaunch: Run, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("data:\n  n-train: 16\ntraining: {seed: 7}\n")
    code, out, _ = ipulaunch("cosmoflow", "--pod", "16", "--dry-run", *words.split(), env=env)
    assert (code, out) == (0, f"{POD16} {WORKER} {expected}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [("--rehearsal", "--backend ipu --rehearsal\n"), ("--no-rehearsal", "--backend ipu\n"), ("", "--backend ipu\n")],
)
def test_rehearsal_on_request(words: str, said: str, ipulaunch: Run) -> None:
    assert ipulaunch("cosmoflow", "--pod", "16", "--dry-run", *words.split()).out.endswith(said)


def test_json_has_plan_and_command(ipulaunch: Run) -> None:
    words = ("cosmoflow", "--pod", "16", "--dry-run", "--env", "A=b c")
    code, out, _ = ipulaunch(*words, "--json")
    data = json.loads(out)
    assert code == 0
    assert data["engine"] == "poprun"
    assert data["env"] == {"A": "b c"}
    assert data["argv"] == [*POD16.split(), "--mpi-local-args=-x A", *WORKER.split()]
    assert from_json(json.dumps(data["plan"])).instances == 16
    assert {decision["name"] for decision in data["decisions"]} >= {"replicas", "instances", "ipus", "hosts"}
    assert ipulaunch(*words).out == "A='b c' " + shlex.join(data["argv"]) + "\n"


def test_json_of_a_plan(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("plan", "cosmoflow", "--pod", "128", "--json")
    data = json.loads(out)
    assert (code, err) == (0, "")
    assert from_json(json.dumps(data["plan"])).hosts == ("host0", "host1")
    assert data["rejected"]


def test_plan_shows_formula_picture_and_table(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("plan", "cosmoflow", "--pod", "16")
    lines = out.splitlines()
    assert (code, err) == (0, SYNTHETIC)
    assert lines[0].startswith("16 IPUs = 16 replicas x 1; 16 instances x 1 replica; global batch 16 = ")
    assert "├─ NUMA 0" in lines
    assert "poprun topology" in lines[-10]


def test_plan_names_the_engine_and_shows_all_instances_on_request(ipulaunch: Run) -> None:
    words = ("plan", "cosmoflow", "--pod", "64", "--host-layout", "8x16", "--engine", "openmpi", "--num-replicas", "32")
    code, out, _ = ipulaunch(*words, "--all")
    assert (code, "poprun" in out, "openmpi topology" in out) == (0, False, True)
    assert "more instances" not in out and "instance 31 " in out
    assert "16 more instances; ipulaunch plan --all shows them" in ipulaunch(*words).out


def test_explanation_says_where_numbers_come_from(ipulaunch: Run) -> None:
    words = (
        "plan",
        "cosmoflow",
        "--pod",
        "16",
        "--explain",
        "--num-instances",
        "8",
        "--set",
        "training.micro_batch_size=2",
    )
    out = ipulaunch(*words).out
    rows = {line.split("  ")[0].strip(): line.split() for line in out.splitlines() if "(" in line and ")" in line}
    assert rows["instances"][1:3] == ["8", "(--num-instances)"]
    assert rows["micro batch size"][3:5] == ["2", "(--set)"]
    assert rows["replicas"][1:3] == ["16", "(computed)"]
    assert rows["ipus per replica"][4] == "(default)"
    assert "instances not taken:" in out


@pytest.mark.parametrize(
    ("given", "row"),
    [((), "1  (default)"), (("--ipus-per-replica", "2"), "2  (--ipus-per-replica)"),
     (("--ipus-per-replica", "1"), "1  (--ipus-per-replica)")],
)  # fmt: skip
def test_explanation_of_a_program(given: Tuple[str, ...], row: str, ipulaunch: Run) -> None:
    out = ipulaunch("plan", "program", "--pod", "16", "--num-instances", "4", "--explain", *given).out
    (line,) = (line for line in out.splitlines() if line.startswith("ipus per replica"))
    assert " ".join(line.split()).startswith(f"ipus per replica {' '.join(row.split())} ")
    _, _, rest = out.partition("instances not taken:\n")
    assert "4" not in [line.split()[0] for line in rest.split("\n\n")[0].splitlines()]


@pytest.mark.parametrize("words", [("cosmoflow",), ("run", "--", "true")], ids=["workload", "program"])
@pytest.mark.parametrize(
    ("engine", "fix"),
    [("poprun", "enable the SDK: source"), ("openmpi", "pip install 'ipulaunch[cpu]'"), (None, "ipulaunch[cpu]")],
)
def test_no_engine(engine: str, fix: str, words: Any, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "find_mpirun", lambda: None)
    where = ("--pod", "4", "--host-layout", "1x4", *(("--engine", engine) if engine else ()))
    code, out, err = ipulaunch(words[0], *where, *words[1:])
    assert (code, out) == (4, "")
    assert fix in err
    assert not Path("runs").exists()


def test_root_is_allowed_and_told(ipulaunch: Run, fake_mpirun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    words = ("run", "--pod", "4", "--engine", "openmpi", "--host-layout", "1x4", "--dry-run")
    _, out, err = ipulaunch(*words, "prog")
    assert shlex.split(out)[1] == "--allow-run-as-root"
    assert "root" in err
    assert "--allow-run-as-root" not in ipulaunch(*words, "--no-allow-run-as-root", "prog").out


def test_line_for_another_machine_does_not_depend_on_us(ipulaunch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ipulaunch("cosmoflow", "--pod", "16", "--dry-run").out
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert ipulaunch("cosmoflow", "--pod", "16", "--dry-run") == (0, line, SYNTHETIC)


@pytest.mark.parametrize(
    "words",
    ["--vipu-partition p", "--no-reset-partition", "--offline-mode", "--executable-cache-path c", "--sdk-version 3.0"],
)
def test_options_without_effect_in_a_rehearsal_are_told(words: str, ipulaunch: Run, fake_mpirun: Path) -> None:
    where = ("run", "--pod", "4", "--engine", "openmpi", "--host-layout", "1x4", "--dry-run")
    code, _, err = ipulaunch(*where, *words.split(), "prog")
    assert code == 0
    assert words.split()[0].replace("--no-", "--") in err.replace("--no-", "--")
    assert ipulaunch(*where, "prog").err == ""


@pytest.mark.parametrize("words", ["--openmpi-version 4", "--host-subnet 10.0.0.0/8"])
def test_options_without_effect_on_a_pod_are_told(words: str, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("run", "--pod", "4", "--dry-run", *words.split(), "prog")
    assert code == 0
    assert words.split()[0] in err


def test_threads_that_are_set_already_are_told(
    ipulaunch: Run, fake_mpirun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    words = ("run", "--pod", "4", "--engine", "openmpi", "--host-layout", "1x4", "--dry-run", "prog")
    assert "OMP_NUM_THREADS=3" in ipulaunch(*words).err


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        pytest.param("ipulaunch cos", ["cosmoflow"], id="workload"),
        pytest.param("ipulaunch plan cos", ["cosmoflow"], id="workload-of-plan"),
        pytest.param("ipulaunch cosmoflow --poo", ["--pooling-type"], id="option"),
        pytest.param("ipulaunch cosmoflow --engine ", ["poprun", "openmpi", "direct"], id="choice"),
        pytest.param("ipulaunch nonsense --po", [], id="unknown-command"),
        pytest.param("ipulaunch cosmoflow --pod bow-pod1", ["bow-pod16", "bow-pod128"], id="pod"),
        pytest.param(
            "ipulaunch imagenet --config resnet50_infer_bs1", [f"resnet50_infer_bs{n}" for n in (1, 16)], id="preset"
        ),
        pytest.param("ipulaunch submit cosmoflow --site e", ["epcc-eidf"], id="site"),
        pytest.param("ipulaunch mnist --set data.n_", ["data.n_train=", "data.n_valid="], id="setting"),
        pytest.param("ipulaunch mnist --model cifar_resnet8 --pipeline-splits fc_", ["fc_layer"], id="layer"),
        pytest.param("ipulaunch mnist --model nonsense --pipeline-splits c", [], id="layer-of-no-network"),
        pytest.param("ipulaunch status no-such-run", [], id="run"),
    ],
)
def test_completion(line: str, offered: List[str], ipulaunch: Run) -> None:
    words = line.split(" ")
    env = {"_IPULAUNCH_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    code, out, err = ipulaunch(env=env)
    assert (code, err) == (0, "")
    assert sorted(entry.partition(",")[2] for entry in out.split()) == sorted(offered)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EIO, "Input/output error", "runs/a/plan.json"), "runs/a/plan.json: Input/output error"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError("a reason without a number"), "a reason without a number"),
    ],
)
def test_what_the_machine_refuses_is_told_in_a_line(
    error: OSError, said: str, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("ipulaunch.launcher.cli.commands.ps.statuses", fail)
    assert ipulaunch("ps") == (4, "", f"error: {said}\nhint: see ipulaunch doctor\n")


def test_a_directory_that_was_removed(ipulaunch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, out, err = ipulaunch("doctor")
    monkeypatch.chdir(tmp_path)
    assert (code, out) == (4, "")
    assert err == "error: the directory that you are in has been removed\nhint: cd into one that is there\n"


def test_a_reader_that_goes_away_is_no_failure(ipulaunch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("ipulaunch.launcher.cli.commands.ps.statuses", fail)
    assert ipulaunch("ps").err == ""
