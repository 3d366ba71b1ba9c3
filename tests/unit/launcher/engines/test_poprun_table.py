"""Every option of poprun, from our command line to poprun's, to the record of a run and to the script of a job."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from typing import Any, Callable, List, Optional, Tuple

import click
import pytest

from ipulaunch.launcher.cli.main import cli
from ipulaunch.launcher.engines.poprun_table import NEWEST, OFFERED, OPTIONS, Option, is_given, sdk_text
from ipulaunch.launcher.launch import launch_record

Run = Callable[..., Any]
VALUES = {"int": "1", "text": "some words"}
# What the plan says, what both engines have, and what is of no use in a launch.
NOT_OFFERED = ("host", "num-instances", "num-replicas", "ipus-per-replica", "num-ilds")
NOT_OFFERED += ("mpi-global-args", "mpi-local-args", "allow-run-as-root", "help", "version", "version-format")


def value_of(option: Option) -> str:
    if option.is_path:
        return "/some/place"
    return "1:-x A=b" if option.repeatable else VALUES.get(option.kind, "")


def asked(option: Option) -> List[str]:
    return [f"--{option.flag}" if option.kind in ("bool", "flag") else f"--{option.flag}={value_of(option)}"]


def written(option: Option) -> str:
    if option.kind == "flag":
        return f"--{option.name}"
    return f"--{option.name}={'yes' if option.kind == 'bool' else value_of(option)}"


def of_sdk(option: Option) -> Tuple[str, ...]:
    return ("--sdk-version", sdk_text(min(option.last, NEWEST)))


def words_of(line: str) -> List[str]:
    return shlex.split(line)


def test_every_option_is_offered_or_is_ours_to_say() -> None:
    assert [option.name for option in OPTIONS if not option.help] == sorted(
        NOT_OFFERED, key=[option.name for option in OPTIONS].index
    )


@pytest.mark.parametrize("option", OFFERED.values(), ids=OFFERED)
def test_each_reaches_poprun(option: Option, ipulaunch: Run) -> None:
    where = ("run", "--pod", "4", "--hosts", "a,b", *of_sdk(option), "--dry-run")
    code, out, err = ipulaunch(*where, *asked(option), "--", "prog")
    assert code == 0, err
    assert Counter(words_of(out))[written(option)] == 1
    plain = words_of(ipulaunch(*where, "--", "prog").out)
    replaced = [word for word in plain if word.startswith(f"--{option.name}=")]  # what is the default
    assert [word for word in words_of(out) if word != written(option)] == [w for w in plain if w not in replaced]


@pytest.mark.parametrize("option", [o for o in OFFERED.values() if o.kind == "bool"], ids=lambda option: option.name)
def test_each_switch_can_be_off(option: Option, ipulaunch: Run) -> None:
    where = ("run", "--pod", "4", *of_sdk(option), "--dry-run")
    assert f"--{option.name}=no" in words_of(ipulaunch(*where, f"--no-{option.flag}", "--", "prog").out)


@pytest.mark.usefixtures("in_plain_directory")
@pytest.mark.parametrize("option", OFFERED.values(), ids=OFFERED)
def test_each_is_in_the_call_of_a_job(option: Option, ipulaunch: Run) -> None:
    words = ("submit", "cosmoflow", "--pod", "4", "--scheduler", "slurm", "--nodes", "2", "--dry-run", *of_sdk(option))
    given = [word.replace("some words", "name") for word in asked(option)]
    code, out, err = ipulaunch(*words, *given)
    assert code == 0, err
    lines = [line.strip(" \\") for line in out.splitlines()]
    assert sum(shlex.split(line) == given for line in lines if line.startswith("--")) == 2  # begun and started again


@pytest.mark.parametrize("option", OFFERED.values(), ids=OFFERED)
def test_each_is_told_where_it_has_no_effect(option: Option, ipulaunch: Run) -> None:
    words = ("cosmoflow", "--pod", "4", "--engine", "openmpi", "--host-layout", "1x4", "--dry-run")
    code, _, err = ipulaunch(*words, *asked(option))
    assert (code, f"for poprun only, without effect in a rehearsal: --{option.flag}\n" in err) == (0, True)


def test_help_says_which_sdks_have_an_option(ipulaunch: Run) -> None:
    text = " ".join(ipulaunch("run", "--help").out.split())
    assert "V-IPU allocation to create the partition in (SDK 3.2 and later)." in text
    assert "V-IPU cluster to create the partition in (deprecated since SDK 3.2)." in text
    assert "Bind instances to NUMA nodes, the default, or not (up to SDK 3.0)." in text


def _commands(command: click.Command, path: Tuple[str, ...] = ()) -> Any:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, (*path, name))


def test_no_command_has_two_options_of_one_name() -> None:
    for path, command in _commands(cli):
        options = [param for param in command.params if isinstance(param, click.Option)]
        flags = Counter(flag for option in options for flag in (*option.opts, *option.secondary_opts))
        names = Counter(str(option.name) for option in options)
        assert [name for name, count in (flags + names).items() if count > 1] == [], path


@pytest.mark.parametrize("option", [o for o in OFFERED.values() if o.kind == "bool"], ids=lambda option: option.name)
@pytest.mark.parametrize(("word", "written_as"), [("no", "no"), ("0", "no"), ("False", "no"), ("yes", "yes")])
@pytest.mark.parametrize("program", [("--", "prog"), ("prog",)], ids=["dashes", "bare"])
def test_switches_take_a_word_as_they_do_for_poprun(
    option: Option, word: str, written_as: str, program: Tuple[str, ...], ipulaunch: Run
) -> None:
    where = ("run", "--pod", "4", "--dry-run", *of_sdk(option))
    own = (f"--{option.flag}", "no")  # of the program
    for words in ([f"--{option.flag}", word], [f"--{option.flag}={word}"]):
        found = words_of(ipulaunch(*where, *words, *program, *own).out)
        assert [each for each in found if each.startswith(f"--{option.name}=")] == [f"--{option.name}={written_as}"]
        assert found[-3:] == ["prog", *own]


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (("--update-partition", "no"), None),
        (("--update-partition", "--", "yes"), "yes"),
        (("--vipu-partition", "--update-partition", "yes"), "yes"),
    ],
    ids=["only a word", "after dashes", "after a value"],
)
def test_a_program_may_be_called_yes(words: Tuple[str, ...], program: Optional[str], ipulaunch: Run) -> None:
    code, out, err = ipulaunch("run", "--pod", "4", "--dry-run", *words)
    if program is None:
        assert (code, "there is no program to run" in err) == (2, True)
    else:
        assert words_of(out)[-1] == program


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cosmoflow", "-v"), []),
        (("cosmoflow", "-vv"), ["--vv"]),
        (("cosmoflow", "--vv"), ["--vv"]),
        (("cosmoflow", "--poprun-verbose"), ["--verbose"]),
        (("run", "-v"), ["--verbose"]),
        (("run", "-vv"), ["--vv"]),
    ],
    ids=" ".join,
)
def test_how_much_poprun_logs(words: Tuple[str, ...], told: List[str], ipulaunch: Run) -> None:
    command, *flags = words
    program = ("--", "prog") if command == "run" else ()
    out = ipulaunch(command, "--pod", "4", "--dry-run", *flags, *program).out
    assert [word for word in words_of(out) if word in ("--verbose", "--vv", "-v", "-vv")] == told


RUN = ("run", "--pod", "4", "--num-instances", "2", "--dry-run")


@pytest.mark.usefixtures("in_plain_directory")
def test_options_that_nobody_knows_are_passed_on_as_they_are(ipulaunch: Run) -> None:
    more = ("--poprun-args", "--new 'two words'", "--poprun-args=--other=1", "--vv")
    out = ipulaunch(*RUN, *more, "--", "prog", "--x").out
    assert words_of(out)[-6:] == ["--vv", "--new", "two words", "--other=1", "prog", "--x"]
    data = json.loads(launch_record.to_json(launch_record.LaunchOptions(poprun_args=("--new 1",))))
    assert data["poprun_args"] == ["--new 1"]
    script = ipulaunch("submit", "cosmoflow", "--pod", "4", "--scheduler", "slurm", "--dry-run", *more[:2]).out
    assert "--poprun-args='--new '\"'\"'two words'\"'\"''" in script


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(("--poprun-args", "prog"), 2, "which poprun would take for the program", id="no-option"),
        pytest.param(("--poprun-args", "'open"), 2, "--poprun-args has a quote that is not closed", id="quote"),
        pytest.param(
            ("--poprun-args=--num-replicas=2",), 2, "--poprun-args has --num-replicas, and the line", id="plan"
        ),
        pytest.param(("--vv", "--poprun-args=--vv"), 2, "--poprun-args has --vv, and the line has it", id="twice"),
        pytest.param(("--poprun-args=--api-key=hunter2",), 2, "an argument for poprun", id="secret"),
        pytest.param(("--only-output-from-instance=2",), 3, "2 of 2 instances, which are numbered from 0", id="output"),
        pytest.param(("--instance-mpi-local-args=-x A",), 2, "'-x A' is refused", id="no-instance"),
        pytest.param(("--instance-mpi-local-args=0:",), 2, "'0:' is refused", id="no-words"),
        pytest.param(("--instance-mpi-local-args=0:'",), 2, "has a quote that is not closed", id="quote-of-instance"),
        pytest.param(("--instance-mpi-local-args=2:-x A",), 3, "is for instance 2 of 2 instances", id="instance"),
        pytest.param(("--numa-aware",), 2, "the poprun of SDK 3.4 has no --numa-aware", id="gone"),
        pytest.param(("--sync-type=x", "--sdk-version=2.5"), 2, "SDK 2.5 has no --sync-type", id="not-yet"),
        pytest.param(("--import-config=",), 2, "--import-config is empty", id="empty"),
    ],
)
def test_what_is_refused(words: Tuple[str, ...], code: int, said: str, ipulaunch: Run) -> None:
    found, out, err = ipulaunch(*RUN, *words, "--", "prog")
    assert (found, out) == (code, ""), err
    assert said in err


def test_an_option_that_may_be_repeated_may_also_be_among_the_others(ipulaunch: Run) -> None:
    words = ("--instance-mpi-local-args=0:-x A", "--poprun-args", "'--instance-mpi-local-args=1:-x B'")
    out = words_of(ipulaunch(*RUN, *words, "--", "prog").out)
    assert out[-3:-1] == ["--instance-mpi-local-args=0:-x A", "--instance-mpi-local-args=1:-x B"]


def test_the_output_of_one_instance_hides_errors(ipulaunch: Run) -> None:
    err = ipulaunch(*RUN, "--only-output-from-instance", "1", "--", "prog").err
    assert "note: --only-output-from-instance 1 hides the errors of 1 other instance" in err
    alone = [word for word in RUN if word not in ("--num-instances", "2")]
    assert ipulaunch(*alone, "--num-instances", "1", "--only-output-from-instance", "0", "--", "prog").err == ""


@pytest.mark.parametrize("sdk", ["2.1", "2.5", "2.6", "3.4"])
@pytest.mark.parametrize("more", [(), ("--mpi-global-args=--tag-output",)], ids=["alone", "twice"])
def test_output_is_tagged_once(sdk: str, more: Tuple[str, ...], ipulaunch: Run) -> None:
    out = ipulaunch(*RUN, "--sdk-version", sdk, "--tag-output", *more, "--", "prog").out
    assert [word for word in words_of(out) if "tag-output" in word] == ["--mpi-global-args=--tag-output"]


@pytest.mark.parametrize("value", [None, (), [], {}], ids=str)
def test_what_is_empty_was_not_given(value: Any) -> None:
    assert not is_given(value)


@pytest.mark.parametrize("value", [False, 0, "", "a", (0,), {"a": None}], ids=repr)
def test_no_is_an_answer(value: Any) -> None:
    assert is_given(value)
