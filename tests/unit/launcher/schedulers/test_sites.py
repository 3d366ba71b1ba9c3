"""Sites: the shipped ones, and those of users."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.sites import Site, read_site, shipped_sites

pytestmark = pytest.mark.core

Run = Callable[..., Any]
SUBMIT = ("submit", "cosmoflow", "--pod", "16", "--dry-run")


@pytest.mark.parametrize("name", shipped_sites())
def test_shipped_site_says_where_its_facts_are_from(name: str) -> None:
    text = shipped_sites()[name].read_text(encoding="utf-8")
    assert text.startswith("# An example")
    assert "\n# Facts " in text
    assert f"--site {name}" in text or "--site ./my-copy.yaml" in text
    assert read_site(name).scheduler is not None


def test_empty_site_is_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").touch()
    assert read_site(str(tmp_path / "empty.yaml")) == Site()


def test_unknown_site_is_answered_with_the_near_one() -> None:
    with pytest.raises(SettingsError, match="there is no site epcc-eid") as caught:
        read_site("epcc-eid")
    assert "did you mean epcc-eidf?" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schedular: slurm", "my.yaml:1: schedular is not a setting"),
        ("vipu:\n  partion: x", "my.yaml:2: vipu.partion is not a setting"),
        ("scheduler: lsf", "my.yaml:1: scheduler is 'lsf', expected one of slurm, kubernetes, pbs"),
        ("slurm: {ask_for: gpus}", "slurm.ask_for is 'gpus'"),
        ("vipu: {server_port: 70000}", "vipu.server_port is 70000"),
        ("environment: x", "expected a section"),
        ("environment: {lines: {a: b}}", "expected a list of lines"),
        ("defaults: {directives: ''}", "defaults.directives is '', expected a list of lines"),
        ("container: {command: 'a \"b'}", "expected a list of words"),
        ("a: &b [1]\nc: *b", "aliases are refused"),
        ("!!python/object:os.system {}", "is refused"),
    ],
)
def test_wrong_lines_are_refused(text: str, said: str, ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(text)
    code, out, err = ipulaunch(*SUBMIT, "--site", "my.yaml")
    assert (code, out) == (6, "")
    assert said in err


def test_missing_file(ipulaunch: Run) -> None:
    code, _, err = ipulaunch(*SUBMIT, "--site", "./none.yaml")
    assert code == 6
    assert "there is no file none.yaml" in err


@pytest.mark.parametrize(
    "text",
    [
        "environment: {modules: ['x; reboot']}",
        "environment: {enable: ['/a b']}",
        "environment: {enable: ['$(reboot)']}",
        'environment: {lines: ["a\\nb"]}',
        "vipu: {partition: '$(reboot)'}",
        "vipu: {partition: 'a{other}'}",
        "vipu: {allocation: '{job_id}$(reboot)'}",
        "vipu: {cluster: 'a b'}",
        "defaults: {account: 'a b'}",
        "defaults: {directives: ['reboot']}",
        "container: {image: 'a b'}",
    ],
)
def test_hostile_sites_are_refused(text: str, ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(text)
    code, out, _ = ipulaunch(*SUBMIT, "--scheduler", "slurm", "--site", "my.yaml")
    assert (code in (2, 6), out) == (True, "")


def test_command_line_wins_over_the_site(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(
        "scheduler: pbs\ndefaults: {account: a, partition: p, time: '10:00:00', requeue: true}\nvipu: {partition: v}\n"
    )
    out = ipulaunch(*SUBMIT, "--site", "my.yaml").out
    assert "#PBS -A a\n#PBS -q p\n" in out
    assert "    --vipu-partition=v \\\n" in out
    more = ("--scheduler", "slurm", "--account", "b", "--time", "30", "--no-requeue", "--vipu-partition", "w")
    out = ipulaunch(*SUBMIT, "--site", "my.yaml", *more).out
    for line in ("--account=b", "--partition=p", "--time=00:30:00", "--no-requeue"):
        assert f"#SBATCH {line}\n" in out
    assert "    --vipu-partition=w \\\n" in out


def test_allocation_takes_the_place_of_the_cluster_of_the_site(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("scheduler: slurm\nvipu: {cluster: c}\n")
    assert "--vipu-cluster=c" in ipulaunch(*SUBMIT, "--site", "my.yaml").out
    out = ipulaunch(*SUBMIT, "--site", "my.yaml", "--vipu-allocation", "a").out
    assert ("--vipu-allocation=a" in out, "--vipu-cluster" in out) == (True, False)


def test_plugin_is_asked_for_ipus_only_where_it_is(ipulaunch: Run) -> None:
    assert "#SBATCH --ipus=16\n" in ipulaunch(*SUBMIT, "--site", "alcf-bow-pod64").out
    assert "--ipus=16" not in ipulaunch(*SUBMIT, "--site", "host-mapping").out
    assert "--ipus=16" not in ipulaunch(*SUBMIT, "--scheduler", "slurm").out


@pytest.mark.parametrize("name", ["partition", "allocation", "cluster"])
def test_number_of_a_job_stands_for_its_placeholder(name: str, ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(f"vipu: {{{name}: '{{job_id}}_b'}}")
    site = ("--site", "my.yaml", "--scheduler")
    assert f'    --vipu-{name}="${{SLURM_JOB_ID}}_b" \\\n' in ipulaunch(*SUBMIT, *site, "slurm").out
    assert f'    --vipu-{name}="${{PBS_JOBID%%.*}}_b" \\\n' in ipulaunch(*SUBMIT, *site, "pbs").out
    code, _, err = ipulaunch(*SUBMIT, *site, "kubernetes", "--container-image", "x")
    assert code == 2
    assert "jobs of this scheduler have no number" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vipu:\n  server_host: 'v{job_id}'", "my.yaml:2: vipu.server_host has {job_id}"),
        ("environment: {lines: ['export RUN={job_id}']}", "my.yaml:1: environment.lines has {job_id}"),
        ("defaults: {directives: ['--comment={job_id}']}", "my.yaml:1: defaults.directives has {job_id}"),
    ],
)
def test_placeholder_that_nothing_replaces_is_refused(text: str, said: str, ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(text)
    code, out, err = ipulaunch(*SUBMIT, "--site", "my.yaml", "--scheduler", "slurm")
    assert (code, out) == (6, "")
    assert f"{said}, which is for vipu.partition, vipu.allocation, vipu.cluster alone" in err


def test_variable_of_a_shell_is_no_placeholder(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("environment: {lines: ['echo ${job_id}']}")
    assert "\necho ${job_id}\n" in ipulaunch(*SUBMIT, "--site", "my.yaml", "--scheduler", "slurm").out


def test_network_is_named_for_several_hosts_only(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("scheduler: slurm\nnetwork: {interface: ib0, subnet: 10.1.5.0/24}")
    one = ipulaunch(*SUBMIT, "--site", "my.yaml").out
    two = ipulaunch(*SUBMIT, "--site", "my.yaml", "--nodes", "2").out
    assert "ib0" not in one
    assert "10.1" not in one
    assert "--mpi-global-args='--mca btl_tcp_if_include ib0 --mca oob_tcp_if_include ib0'" in two
    assert "--host-subnet=10.1.5.0/24" in two


def test_network_is_named_beside_other_options_for_mpi(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("scheduler: slurm\nnetwork: {interface: ib0}")
    words = (*SUBMIT, "--site", "my.yaml", "--nodes", "2", "--mpi-global-args")
    out = ipulaunch(*words, "--timestamp-output").out
    assert "--mpi-global-args=--timestamp-output \\\n" in out
    assert "--mpi-global-args='--mca btl_tcp_if_include ib0 --mca oob_tcp_if_include ib0'" in out
    assert "ib0" not in ipulaunch(*words, "--mca btl_tcp_if_include eno1").out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("environment: {lines: 'export FOO=a,b'}", "\nexport FOO=a,b\n"),
        ("environment: {lines: ['export FOO=a,b', 'cd /']}", "\nexport FOO=a,b\ncd /\n"),
        ("environment: {modules: 'a, b'}", "\nmodule load a\nmodule load b\n"),
        ("defaults: {directives: '--constraint=a,b'}", "\n#SBATCH --constraint=a,b\n"),
        ("container: {image: i, command: 'apptainer exec --bind /a,/b'}", " exec \\\n    --bind \\\n    /a,/b"),
        ("container: {image: i, command: [run, 'a b']}", " -- run 'a b' i ipulaunch cosmoflow \\\n"),
    ],
)
def test_one_text_is_one_line_or_the_words_of_a_command(text: str, line: str, ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(f"scheduler: slurm\n{text}\n")
    assert line in ipulaunch(*SUBMIT, "--site", "my.yaml").out


@pytest.mark.parametrize(
    ("text", "instances", "cores"),
    [
        ("kubernetes: {cpu: 8}", 2, 8),
        ("hosts: {layout: 1x12}", 2, 12),
        ("hosts: {layout: 1x4}\nkubernetes: {cpu: 8}", 1, 8),
    ],
)
def test_a_pod_is_planned_with_its_cores(text: str, instances: int, cores: int, ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(f"scheduler: kubernetes\n{text}\n")
    pod = (*SUBMIT, "--site", "my.yaml", "--container-image", "x", "--volume", "a:/a")
    code, out, err = ipulaunch(*pod)
    assert (code, "host" in err) == (0, False)
    assert f"--num-instances={instances} " in out
    assert f"cpu: {cores}\n" in out
    assert ipulaunch(*pod, "--num-instances", "16").code == 3


def test_a_pod_as_large_as_the_hosts_of_pods_is_said(ipulaunch: Run) -> None:
    pod = (*SUBMIT, "--scheduler", "kubernetes", "--container-image", "x", "--volume", "a:/a")
    _, out, err = ipulaunch(*pod)
    assert "cpu: 128\n" in out
    assert "note: the Pod asks for 128 cores, planned for a host of a POD; --host-layout, or kubernetes.cpu of" in err
    assert ipulaunch(*pod, "--host-layout", "1x16").err.count("\n") == 1  # the samples are synthetic
