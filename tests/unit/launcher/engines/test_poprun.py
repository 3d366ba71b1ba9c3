from __future__ import annotations

import shlex
from typing import Any, Callable, Dict, List, Sequence

import pytest

from ipulaunch.configs.errors import UsageError
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.poprun import PoprunOptions, poprun_argv
from ipulaunch.launcher.engines.poprun_table import Sdk
from ipulaunch.topology.planning.plan import Plan

MakePlan = Callable[..., Plan]

PROGRAM = ("python3", "train.py", "--flag", "two words")
NUMBERS = ("--num-instances=2", "--num-replicas=4", "--ipus-per-replica=1")


def test_default(make_plan: MakePlan) -> None:
    assert poprun_argv(make_plan(16, 16), PoprunOptions(), PROGRAM) == (
        "poprun",
        "--num-instances=16",
        "--num-replicas=16",
        "--ipus-per-replica=1",
        "--process-placement=spreadnuma",
        *PROGRAM,
    )


def test_several_hosts(make_plan: MakePlan) -> None:
    plan = make_plan(16, 4, 4, hosts=("pod1", "pod2", "a", "b-7"))
    assert poprun_argv(plan, PoprunOptions(given={"host_subnet": "10.1.0.0/16"}), PROGRAM) == (
        "poprun",
        "--host=pod[1-2],a,b-7",
        "--host-subnet=10.1.0.0/16",
        "--num-instances=4",
        "--num-replicas=16",
        "--ipus-per-replica=4",
        "--process-placement=spreadnuma",
        *PROGRAM,
    )


def test_one_named_host_is_named(make_plan: MakePlan) -> None:
    argv = poprun_argv(make_plan(4, 2, hosts=("pod1",)), PoprunOptions(), PROGRAM)
    assert argv == ("poprun", "--host=pod1", *NUMBERS, "--process-placement=spreadnuma", *PROGRAM)


def test_link_domains_are_given_from_two_on(make_plan: MakePlan) -> None:
    assert poprun_argv(make_plan(64, 8, 4, hosts=("h0", "h1", "h2", "h3")), PoprunOptions(), PROGRAM) == (
        "poprun",
        "--host=h[0-3]",
        "--num-instances=8",
        "--num-replicas=64",
        "--ipus-per-replica=4",
        "--num-ilds=4",
        "--process-placement=spreadnuma",
        *PROGRAM,
    )


NUMA, PLACED = "--numa-aware=yes", "--process-placement=spreadnuma"
TAGS, ROOT, OWN_ROOT = (
    "--mpi-global-args=--tag-output",
    "--mpi-global-args=--allow-run-as-root",
    "--allow-run-as-root=yes",
)

# What each SDK gets besides the numbers, and what more for root.
BY_SDK = {
    (2, 0): ((NUMA, TAGS), ROOT),
    (2, 1): ((NUMA, TAGS), ROOT),
    (2, 2): ((NUMA, TAGS), ROOT),
    (2, 3): ((NUMA, TAGS), ROOT),
    (2, 4): ((NUMA, TAGS), ROOT),
    (2, 5): ((NUMA, TAGS), ROOT),
    (2, 6): ((NUMA,), ROOT),
    (3, 0): ((NUMA,), ROOT),
    (3, 1): ((PLACED,), ROOT),
    (3, 2): ((PLACED,), ROOT),
    (3, 3): ((PLACED,), OWN_ROOT),
    (3, 4): ((PLACED,), OWN_ROOT),
}


@pytest.mark.parametrize("sdk", BY_SDK, ids=str)
def test_each_sdk_gets_its_own_options(sdk: Sdk, make_plan: MakePlan) -> None:
    options, for_root = BY_SDK[sdk]
    plan = make_plan(4, 2)
    assert poprun_argv(plan, PoprunOptions(sdk=sdk), PROGRAM) == ("poprun", *NUMBERS, *options, *PROGRAM)
    argv = poprun_argv(plan, PoprunOptions(sdk=sdk, run_as_root=True), PROGRAM)
    assert argv == ("poprun", *NUMBERS, *options, for_root, *PROGRAM)


def test_vipu_options(make_plan: MakePlan) -> None:
    given = {
        "vipu_partition": "p1",
        "vipu_server_host": "10.1.3.101",
        "vipu_server_port": 8091,
        "vipu_server_timeout": 3600,
        "vipu_allocation": "alloc",
        "update_partition": False,
        "reset_partition": False,
        "remove_partition": True,
        "executable_cache_path": "/cache/of us",
        "offline_mode": True,
        "print_topology": True,
        "sync_type": None,
    }
    assert poprun_argv(make_plan(4, 2), PoprunOptions(given=given), PROGRAM) == (
        "poprun",
        *NUMBERS,
        "--process-placement=spreadnuma",
        "--vipu-server-host=10.1.3.101",
        "--vipu-server-port=8091",
        "--vipu-server-timeout=3600",
        "--vipu-partition=p1",
        "--vipu-allocation=alloc",
        "--update-partition=no",
        "--reset-partition=no",
        "--remove-partition=yes",
        "--executable-cache-path=/cache/of us",
        "--offline-mode=yes",
        "--print-topology=yes",
        *PROGRAM,
    )


def test_variables_and_mpi_options_go_to_every_instance(make_plan: MakePlan) -> None:
    options = PoprunOptions(
        mpi_global_args=("--mca btl_tcp_if_include eno1", "--timestamp-output"),
        mpi_local_args=("-x OPAL_PREFIX -x PATH",),
        forward=("A", "B_2"),
        run_as_root=True,
    )
    assert poprun_argv(make_plan(4, 2), options, PROGRAM) == (
        "poprun",
        *NUMBERS,
        "--process-placement=spreadnuma",
        "--mpi-global-args=--mca btl_tcp_if_include eno1",
        "--mpi-global-args=--timestamp-output",
        "--allow-run-as-root=yes",
        "--mpi-local-args=-x OPAL_PREFIX -x PATH -x A -x B_2",
        *PROGRAM,
    )


def test_program_with_a_colon_is_kept_from_mpirun(make_plan: MakePlan) -> None:
    argv = poprun_argv(make_plan(4, 2), PoprunOptions(), ("prog", ":", "a b"))
    assert argv == ("poprun", *NUMBERS, "--process-placement=spreadnuma", "/bin/sh", "-c", "exec prog : 'a b'")


@pytest.mark.parametrize(
    ("sdk", "given", "said"),
    [
        pytest.param(
            (3, 1), {"vipu_allocation": "a"}, ["3.1 has no --vipu-allocation", "use --vipu-cluster"], id="3.1"
        ),
        pytest.param(
            (2, 0), {"vipu_allocation": "a"}, ["2.0 has no --vipu-allocation", "use --vipu-cluster"], id="2.0"
        ),
        pytest.param((2, 0), {"executable_cache_path": "/c"}, ["no --executable-cache-path", "2.1 to 3.4"], id="cache"),
        pytest.param((2, 5), {"host_subnet": "10.0.0.0/8"}, ["no --host-subnet", "2.6 to 3.4"], id="subnet"),
    ],
)
def test_option_the_sdk_lacks_is_refused(sdk: Sdk, given: Dict[str, Any], said: List[str], make_plan: MakePlan) -> None:
    plan = make_plan(4, 2, hosts=("h0", "h1"))
    with pytest.raises(UsageError) as caught:
        poprun_argv(plan, PoprunOptions(sdk=sdk, given=given), PROGRAM)
    for words in said:
        assert words in f"{caught.value.message}; {caught.value.hint}"


@pytest.mark.parametrize("sdk", [(3, 1), (3, 2)], ids=str)
def test_a_cluster_is_written_for_every_sdk(sdk: Sdk, make_plan: MakePlan) -> None:
    """Deprecated, and documented to the last: poprun takes it."""
    argv = poprun_argv(make_plan(4, 2), PoprunOptions(sdk=sdk, given={"vipu_cluster": "c"}), PROGRAM)
    assert argv == ("poprun", *NUMBERS, "--process-placement=spreadnuma", "--vipu-cluster=c", *PROGRAM)


@pytest.mark.parametrize("words", [("cosmoflow",), ("run", "--", "true")], ids=["workload", "program"])
def test_without_the_sdk_the_fix_is_told(words: Sequence[str], ipulaunch: Callable[..., Any]) -> None:
    name, *program = words
    code, _, err = ipulaunch(name, "--pod", "16", "--engine", "poprun", *program)
    assert (code, "hint: enable the SDK: source <sdk>/enable.sh" in err) == (4, True), err


TWO_HOSTS = ("run", "--pod", "16", "--hosts", "a,b", "--dry-run", "--engine", "poprun")
SDK_VARIABLES = {
    "OPAL_PREFIX": "/sdk",
    "CPATH": "/sdk/include",
    "TF_POPLAR_FLAGS": "--x",
    "POPLAR_ENGINE_OPTIONS": "{}",
    "POPLAR_TARGET_OPTIONS": "{}",
    "POPLAR_API_KEY": "hunter2hunter2",
}


def local_args(line: str) -> List[str]:
    return [word.partition("=")[2] for word in shlex.split(line) if word.startswith("--mpi-local-args=")]


def test_a_line_for_other_hosts_takes_what_the_sdk_sets_along(ipulaunch: Callable[..., Any]) -> None:
    assert local_args(ipulaunch(*TWO_HOSTS, "--", "prog").out) == ["-x OPAL_PREFIX -x CPATH"]
    alone = [word for word in TWO_HOSTS if word not in ("--hosts", "a,b")]
    assert local_args(ipulaunch(*alone, "--", "prog").out) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "-x OPAL_PREFIX -x CPATH -x POPLAR_ENGINE_OPTIONS -x TF_POPLAR_FLAGS"),
        (
            ("--env", "CPATH", "--mpi-local-args", "-x POPLAR_ENGINE_OPTIONS={} -x A=1"),
            "-x POPLAR_ENGINE_OPTIONS={} -x A=1 -x CPATH -x OPAL_PREFIX -x TF_POPLAR_FLAGS",
        ),
    ],
    ids=["alone", "merged"],
)
def test_variables_of_the_sdk_reach_other_hosts(
    options: Sequence[str], expected: str, ipulaunch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "find_poprun", lambda: "/sdk/bin/poprun")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    out = ipulaunch(*TWO_HOSTS, "--sdk-version", "3.3", *options, "--", "prog", env=SDK_VARIABLES).out
    assert local_args(out) == [expected]


def test_a_quote_that_is_not_closed_is_refused(ipulaunch: Callable[..., Any]) -> None:
    code, _, err = ipulaunch(*TWO_HOSTS, "--mpi-local-args", "'open", "--", "prog")
    assert (code, "--mpi-local-args has a quote that is not closed" in err) == (2, True)
