from __future__ import annotations

import json
import shlex
from typing import Any, Callable, List

import pytest

Run = Callable[..., Any]

GOOD = "poprun --num-instances=16 --num-replicas=16 python3 train.py --num-replicas 3"


def test_good_line(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("check", "--", *shlex.split(GOOD))
    assert (code, err) == (0, "")
    assert out.splitlines() == ["16 IPUs = 16 replicas x 1; 16 instances on 1 host; 1 IPU-Link domain", "ok"]


def test_dashes_before_the_line_may_be_left_out(ipulaunch: Run) -> None:
    assert ipulaunch("check", *shlex.split(GOOD)) == ipulaunch("check", "--", *shlex.split(GOOD))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("--num-instances=5 --num-replicas=16", ["16 replicas", "5 instances", "R1", "4 or 8"], id="R1"),
        pytest.param("--num-instances=4 --num-replicas=2", ["4 instances for 2 replicas", "R2"], id="R2"),
        pytest.param("--num-instances=0", ["0 instances for 1 replica", "R2"], id="no-instance"),
        pytest.param("--num-replicas=0", ["1 instance for 0 replicas", "R2"], id="no-replica"),
        pytest.param("--host=a,b,c --num-instances=4 --num-replicas=4", ["4 instances", "3 hosts", "R3"], id="R3"),
        pytest.param("--num-replicas=3", ["3 replicas", "3 IPUs", "power of two", "R5"], id="R5"),
        pytest.param("--num-replicas=4 --ipus-per-replica=3", ["3 IPUs per replica", "R6", "2 or 4"], id="R6"),
        pytest.param("--num-ilds=2 --num-replicas=128", ["1 instances for 2 IPU-Link domains", "R8"], id="R8"),
        pytest.param("--num-ilds=0 --num-replicas=4", ["0 IPU-Link domains"], id="no-domain"),
        pytest.param(
            "--num-instances=8 --num-replicas=8 --only-output-from-instance=8",
            ["--only-output-from-instance 8 of 8 instances", "use 0 to 7"],
            id="output-of-nobody",
        ),
    ],
)
def test_numbers_that_break_a_rule_are_refused(line: str, said: List[str], ipulaunch: Run) -> None:
    code, out, err = ipulaunch("check", "--", "poprun", *line.split(), "prog")
    assert code == 3
    assert "ok" not in out.splitlines()
    for words in said:
        assert words in err


def test_number_of_domains_is_only_warned_of(ipulaunch: Run) -> None:
    line = "poprun --num-ilds 4 --num-instances 4 --num-replicas 16 --ipus-per-replica 4 prog"  # published
    code, out, err = ipulaunch("check", "--", *line.split())
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "64 IPUs = 16 replicas x 4; 4 instances on 1 host; 4 IPU-Link domains"
    assert out.splitlines()[1].startswith("warning: 4 IPU-Link domains for 64 IPUs")
    assert out.splitlines()[2:] == ["ok, with warnings"]


def test_output_of_one_instance_alone_is_warned_of(ipulaunch: Run) -> None:
    line = "poprun --num-instances 8 --num-replicas 8 --only-output-from-instance 7 prog"
    code, out, _ = ipulaunch("check", "--", *line.split())
    assert (code, out.splitlines()[2:]) == (0, ["ok, with warnings"])
    assert "warning: --only-output-from-instance 7 hides the errors of 7 other instances" in out
    assert ipulaunch("check", "--", *["poprun", "--only-output-from-instance", "0", "prog"]).out.endswith("\nok\n")


@pytest.mark.parametrize("more", ["", "--num-instances 8", "--only-output-from-instance 3"])
def test_options_in_a_file_are_not_looked_at(more: str, ipulaunch: Run) -> None:
    code, out, _ = ipulaunch("check", "--", "poprun", "--import-config", "f.json", *more.split(), "prog")
    assert (code, out.splitlines()[-1]) == (0, "ok, with warnings")
    assert "warning: --import-config f.json: ipulaunch does not read the file" in out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("poprun --num=ilds 4 prog", "did you mean --num-ilds?", id="option"),
        pytest.param("poprun --num-replicas=16", "no program to run", id="program"),
        pytest.param("poprun --host=a,,b prog", "has a hole", id="hosts"),
        pytest.param("poprun --num-replicas '$R' prog", "$R", id="variable"),
        pytest.param(
            "poprun --num-replicas '$NUM_REPLICAS' prog",
            "--num-replicas is $NUM_REPLICAS, whose value is not known",
            id="long-variable",
        ),
        pytest.param("poprun --host '$HOSTS' prog", "--host is $HOSTS, whose value is not known", id="unknown-hosts"),
        pytest.param("poprun --host '${A},b' prog", "--host is ${A},b, whose value is not known", id="unknown-host"),
        pytest.param("poprun --help=3 prog", "--help takes no value, and '3' is given", id="flag"),
        pytest.param("poprun -v=3 prog", "--verbose takes no value, and '3' is given", id="short-flag"),
        pytest.param("poprun --numa-aware=yes prog", "use --process-placement spreadnuma", id="sdk"),
        pytest.param("python3 train.py", "it starts with the word poprun", id="other-command"),
        pytest.param("", "it starts with the word poprun", id="nothing"),
    ],
)
def test_lines_poprun_would_not_take_are_usage_errors(line: str, said: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("check", "--", *shlex.split(line))
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_a_pasted_line_may_be_several(end: str, ipulaunch: Run) -> None:
    pasted = GOOD.replace(" --", f" \\{end}  --")
    assert ipulaunch("check", pasted) == ipulaunch("check", "--", *shlex.split(GOOD))
    assert ipulaunch("check", pasted.replace("instances=16", "instances=5")).code == 3


def test_a_line_with_an_open_quote_is_a_usage_error(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("check", "poprun --host 'a prog")
    assert (code, out) == (2, "")
    assert "a quote is not closed in: poprun --host 'a prog" in err


def test_options_are_those_of_the_enabled_sdk(ipulaunch: Run) -> None:
    line = ("check", "--", "poprun", "--numa-aware=yes", "prog")
    assert ipulaunch(*line, env={"POPLAR_SDK_ENABLED": "/opt/poplar_sdk-ubuntu_20_04-2.6.0+1074/poplar"}).code == 0
    assert ipulaunch(*line).code == 2


def test_an_option_that_may_be_older_than_it_was_seen_is_warned_of(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("check", "--sdk-version", "3.1", "--", "poprun", "--vipu-allocation", "a", "prog")
    assert (code, err, out.splitlines()[-1]) == (0, "", "ok, with warnings")
    assert "warning: --vipu-allocation was first seen in SDK 3.2; the poprun of SDK 3.1 may not have it" in out


@pytest.mark.parametrize(("sdk", "code"), [("2.5", 0), ("3.0.0", 0), ("3.1", 2), ("9.9", 2)])
def test_options_are_those_of_the_sdk(sdk: str, code: int, ipulaunch: Run) -> None:
    assert ipulaunch("check", "--sdk-version", sdk, "--", "poprun", "--numa-aware=yes", "prog").code == code


def test_json(ipulaunch: Run) -> None:
    code, out, _ = ipulaunch("check", "--json", "--", *["poprun", "--num-instance", "2", "--num-replicas", "4", "prog"])
    data = json.loads(out)
    assert code == 0
    assert (data["numbers"]["instances"], data["numbers"]["replicas"], data["numbers"]["ilds"]) == (2, 4, 1)
    assert data["findings"] == []
    assert data["warnings"] == ["--num-instance is short for --num-instances; write it out"]


def test_json_has_the_findings_of_a_bad_line(ipulaunch: Run) -> None:
    code, out, err = ipulaunch(
        "check", "--json", "--", *["poprun", "--num-instances", "3", "--num-replicas", "4", "prog"]
    )
    (found,) = json.loads(out)["findings"]
    assert code == 3
    assert (found["rule"], found["hard"]) == ("R1", True)
    assert "4 replicas cannot be divided evenly among 3 instances" in found["message"]
    assert found["message"] in err
