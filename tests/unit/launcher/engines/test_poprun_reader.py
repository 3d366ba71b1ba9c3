from __future__ import annotations

import shlex
from typing import Callable, List

import pytest

from ipulaunch.configs.errors import UsageError
from ipulaunch.launcher.engines.poprun import PoprunOptions, poprun_argv
from ipulaunch.launcher.engines.poprun_reader import options_of, read_line
from ipulaunch.launcher.engines.poprun_table import Sdk, parse_sdk
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.planning.plan import Plan

SDKS: List[Sdk] = [(2, minor) for minor in range(7)] + [(3, minor) for minor in range(5)]

# As published: a quoted text over several lines with leading blanks, both ways to give a value, booleans of all kinds.
PUBLISHED = r"""
poprun \
    -vv \
    --host 10.1.3.[101-104],10.1.4.[101-104] \
    --num-instances=64 \
    --num-replicas 128 \
    --ipus-per-replica=1 \
    --vipu-partition=p128 \
    --update-partition=no \
    --reset-partition 0 \
    --remove-partition=off \
    --print-topology=True \
    --mpi-global-args="
        --tag-output
        --mca btl_tcp_if_include 10.1.0.0/16" \
    --mpi-local-args="
        -x OPAL_PREFIX
        -x LD_LIBRARY_PATH" \
    --mpi-local-args="-x TMPDIR" \
    python3 train.py --num-instances 3 --config mk_resnet50
"""


def _said(line: str, sdk: Sdk = (3, 4)) -> str:
    with pytest.raises(UsageError) as caught:
        read_line(shlex.split(line), sdk)
    return f"{caught.value.message}; {caught.value.hint}"


def test_published_line() -> None:
    line = read_line(shlex.split(PUBLISHED.replace("\\\n", "")))
    numbers = [line.number(name, 1) for name in ("num-instances", "num-replicas", "ipus-per-replica", "num-ilds")]
    assert numbers == [64, 128, 1, 1]
    assert hostlist.parse(line.text("host") or "") == tuple(f"10.1.{r}.{h}" for r in (3, 4) for h in range(101, 105))
    assert [text.split() for text in line.options["mpi-global-args"]] == [
        ["--tag-output", "--mca", "btl_tcp_if_include", "10.1.0.0/16"]
    ]
    assert [text.split() for text in line.options["mpi-local-args"]] == [
        ["-x", "OPAL_PREFIX", "-x", "LD_LIBRARY_PATH"],
        ["-x", "TMPDIR"],
    ]
    assert line.program == ("python3", "train.py", "--num-instances", "3", "--config", "mk_resnet50")
    assert line.warnings == ()


def test_blank_after_a_comma_of_the_host_list() -> None:
    line = read_line(shlex.split("poprun --host '10.1.1.1, 10.1.1.2' --num-instances 2 --num-replicas 2 prog"))
    assert hostlist.parse(line.text("host") or "") == ("10.1.1.1", "10.1.1.2")


def test_short_host_option_and_a_path_to_poprun() -> None:
    line = read_line(["/opt/sdk/bin/poprun", "-H", "a,b", "prog"])
    assert (line.text("host"), line.program) == ("a,b", ("prog",))


@pytest.mark.parametrize("value", ["yes", "no", "1", "0", "true", "false", "on", "off", "Yes", "FALSE"])
@pytest.mark.parametrize("form", ["--print-topology={}", "--print-topology {}"], ids=["equals", "blank"])
def test_booleans_in_every_spelling(form: str, value: str) -> None:
    assert read_line(shlex.split(f"poprun {form.format(value)} prog")).text("print-topology") == value


@pytest.mark.parametrize(("word", "name"), [("-v", "verbose"), ("--verbose", "verbose"), ("-vv", "vv"), ("--vv", "vv")])
def test_log_levels(word: str, name: str) -> None:
    line = read_line(["poprun", word, "prog", "-vv"])
    assert (list(line.options), line.program, line.warnings) == ([name], ("prog", "-vv"), ())


def test_shortened_option_is_understood_with_a_warning() -> None:
    line = read_line(shlex.split("poprun --num-instance 2 --num-replicas 4 prog"))
    assert line.number("num-instances", 1) == 2
    assert line.warnings == ("--num-instance is short for --num-instances; write it out",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("poprun --num=ilds 4 prog", "did you mean --num-ilds?", id="equals-for-a-dash"),
        pytest.param(
            "poprun --vipu-server-host=10.1.3.101 --vipu-server-host=partition1 prog",
            "--vipu-server-host is given twice: '10.1.3.101' and 'partition1'",
            id="partition-given-as-the-server",
        ),
        pytest.param("poprun --vipu-partition= prog", "--vipu-partition is empty", id="misspelt-variable"),
        pytest.param("poprun --vipu-partition '' prog", "is the variable that it came from set?", id="unset-variable"),
        pytest.param(
            "poprun --vipu-partition --num-instances 2 prog", "--vipu-partition", id="unset-variable-without-quotes"
        ),
        pytest.param("poprun --num-instances 2 --num-replicas 4", "is a backslash missing", id="no-program"),
        pytest.param("poprun --num-instances 2 --num-replicas", "--num-replicas is the last word", id="no-value"),
        pytest.param("poprun --num-instnaces 2 prog", "did you mean --num-instances?", id="letters-exchanged"),
        pytest.param("poprun --ipu-per-replica=2 prog", "did you mean --ipus-per-replica?", id="letter-missing"),
        pytest.param("poprun -num-instances 2 prog", "did you mean --num-instances?", id="dash-missing"),
        pytest.param("poprun --num_replicas=2 prog", "did you mean --num-replicas?", id="underscore"),
        pytest.param("poprun --num-i 2 prog", "poprun has no option --num-i", id="short-for-two"),
        pytest.param("poprun --zzzzzz prog", "known: ", id="nothing-near"),
        pytest.param("poprun --num-instances two prog", "'two', expected a whole number", id="not-a-number"),
        pytest.param("poprun --num-instances=-2 prog", "'-2', expected a whole number", id="negative"),
        pytest.param("poprun --num-instances=² prog", "'²', expected a whole number", id="digit-that-is-no-number"),
        pytest.param("poprun --num-replicas 1234567890 prog", "more than any system has", id="long-number"),
        pytest.param("poprun --num-replicas twenty-five prog", "'twenty-five', expected a whole", id="long-word"),
        pytest.param("poprun --numa-aware maybe prog", "no --numa-aware", id="of-another-sdk"),
        pytest.param("poprun --print-topology maybe prog", "'maybe', expected yes or no", id="not-a-boolean"),
        pytest.param("poprun --print-topology --vv prog", "'--vv', expected yes or no", id="boolean-without-value"),
        pytest.param("mpirun -np 4 prog", "it starts with the word poprun", id="not-poprun"),
        pytest.param("", "it starts with the word poprun", id="nothing"),
    ],
)
def test_typing_errors_are_refused(line: str, said: str) -> None:
    assert said in _said(line)


def test_line_without_options_is_warned_of() -> None:
    line = read_line(["poprun", "python3", "train.py"])
    assert (line.program, len(line.warnings)) == (("python3", "train.py"), 1)
    assert "is a backslash missing?" in line.warnings[0]


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_needs_no_program(word: str) -> None:
    assert read_line(["poprun", word]).program == ()


@pytest.mark.parametrize(
    ("sdk", "option", "instead"),
    [
        pytest.param((3, 0), "--process-placement=spreadnuma", "; use --numa-aware yes", id="process-placement"),
        pytest.param((3, 1), "--vipu-allocation=a", "; use --vipu-cluster", id="vipu-allocation"),
        pytest.param((3, 2), "--allow-run-as-root=yes", "; use --mpi-global-args=--allow-run-as-root", id="root"),
        pytest.param((2, 5), "--sync-type=x", "", id="sync-type"),
    ],
)
def test_option_of_a_later_sdk_is_warned_of_with_what_to_use(sdk: Sdk, option: str, instead: str) -> None:
    name = option.partition("=")[0]
    later = (sdk[0], sdk[1] + 1)
    seen = f"{name} was first seen in SDK {later[0]}.{later[1]}"
    told = f"{seen}; the poprun of SDK {sdk[0]}.{sdk[1]} may not have it{instead}"
    assert read_line(["poprun", option, "prog"], sdk).warnings == (told,)
    assert read_line(["poprun", option, "prog"], later).warnings == ()


def test_option_that_is_gone_is_refused_with_what_to_use() -> None:
    said = "the poprun of SDK 3.1 has no --numa-aware; SDK 2.0 to 3.0 have it; use --process-placement spreadnuma"
    assert _said("poprun --numa-aware=yes prog", (3, 1)) == said
    assert read_line(["poprun", "--numa-aware=yes", "prog"], (3, 0)).warnings == ()


@pytest.mark.parametrize(("sdk", "is_told"), [((3, 1), False), ((3, 2), True), ((3, 4), True)], ids=str)
def test_a_deprecated_option_is_read_with_a_warning(sdk: Sdk, is_told: bool) -> None:
    line = read_line(["poprun", "--vipu-cluster=c", "prog"], sdk)
    said = "--vipu-cluster is deprecated from SDK 3.2 on; use --vipu-allocation"
    assert (line.text("vipu-cluster"), line.warnings) == ("c", (said,) if is_told else ())


@pytest.mark.parametrize("sdk", SDKS, ids=str)
def test_every_option_of_an_sdk_is_read(sdk: Sdk) -> None:
    values = {"int": "=7", "bool": "=yes", "text": "=words", "flag": ""}
    known = options_of(sdk)
    words = [f"--{option.name}{values[option.kind]}" for option in known.values()]
    assert list(read_line(["poprun", *words, "prog"], sdk).options) == list(known)


@pytest.mark.parametrize("sdk", SDKS, ids=str)
def test_our_own_lines_are_read_back(sdk: Sdk, make_plan: Callable[..., Plan]) -> None:
    program = ("python3", "-m", "train", "--num-replicas", "77", "")
    for replicas, instances, depth, hosts in [
        (1, 1, 1, 1),
        (16, 16, 1, 1),
        (4, 2, 4, 1),
        (64, 32, 2, 4),
        (32, 16, 8, 8),
    ]:
        plan = make_plan(replicas, instances, depth, hosts=[f"node{n:02}" for n in range(hosts)])
        options = PoprunOptions(
            sdk=sdk,
            given={"vipu_partition": "p", "vipu_server_timeout": 300, "reset_partition": False},
            forward=("A", "B"),
            mpi_global_args=("--mca a b",),
            run_as_root=True,
        )
        line = read_line(poprun_argv(plan, options, program), sdk)
        assert line.number("num-replicas", 1) == replicas
        assert line.number("num-instances", 1) == instances
        assert line.number("ipus-per-replica", 1) == depth
        assert line.number("num-ilds", 1) == max(1, replicas * depth // 64)
        assert hostlist.parse(line.text("host") or "") == plan.hosts
        assert (line.program, line.warnings) == (program, ())


@pytest.mark.parametrize(("text", "sdk"), [("3.3", (3, 3)), ("3.3.0", (3, 3)), ("2.0", (2, 0)), ("3.4.1", (3, 4))])
def test_sdk_versions(text: str, sdk: Sdk) -> None:
    assert parse_sdk(text) == sdk


@pytest.mark.parametrize("text", ["", "3", "3.x", "1.4", "3.5", "3.3.0.1", "v3.3", "-3.3", "3.²"])
def test_what_is_no_sdk_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_sdk(text)
    assert "2.0 to 3.4" in caught.value.hint
