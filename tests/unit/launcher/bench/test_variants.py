from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipulaunch.configs.benchmarks import Benchmark
from ipulaunch.configs.errors import SettingsError
from ipulaunch.launcher.bench.variants import (
    Variant,
    command_line,
    command_of,
    directory_names,
    mpirun_processes,
    timeout_of,
    variants_of,
)

ENVIRON = {"DATA": "/my data/set", "N": "3", "POPLAR_LOG_LEVEL": "ERR"}


def _variant(cmd: str, parameters: Dict[str, str] = {}, **more: Any) -> Variant:  # noqa: B006 - nobody changes it
    return Variant(Benchmark("it", "a.yml:1", cmd, **more), "it", parameters)


def test_variants_are_named_by_their_parameters_in_the_order_of_the_alphabet() -> None:
    benchmark = Benchmark("it", "a.yml:1", "x", parameters=({"b": "1", "a": "x"}, {"b": "2", "a": "x"}))
    assert [variant.name for variant in variants_of(benchmark)] == ["it_a_x_b_1", "it_a_x_b_2"]
    assert [variant.name for variant in variants_of(Benchmark("it", "a.yml:1", "x"))] == ["it"]


@pytest.mark.parametrize(
    ("cmd", "words"),
    [
        ("python3 a.py\n    --n {n}\n", ["python3", "a.py", "--n", "8"]),
        ("a --x=preset_{n}_{name}", ["a", "--x=preset_8_two", "words"]),  # a parameter may be several words
        ("a '{{\"k\": {n}}}'", ["a", '{"k": 8}']),
        ("a $DATA/train", ["a", "/my data/set/train"]),  # a variable is never split
        ("a ${N}x '$N'", ["a", "3x", "3"]),  # also in quotes, as published
        ("a $N$N ${{N}}", ["a", "33", "3"]),
        ("a ${n}", ["a", "$8"]),  # a parameter comes first, as published
        ("a $ $$ 5$", ["a", "$", "$$", "5$"]),
        ("bash -c 'echo $$i $${{N}} $$'", ["bash", "-c", "echo $i ${N} $$"]),  # for a shell inside
        ("a wiki_1[0-1]*.rec ~", ["a", "wiki_1[0-1]*.rec", "~"]),  # no shell: neither wildcards nor home
        ("grep '|' 'a;' \"x > y\" 'b'", ["grep", "|", "a;", "x > y", "b"]),
        ("a --wandb --n 1 --wandb-name x y", ["a", "--n", "1", "y"]),
        ("a --my-wandb x", ["a", "--my-wandb", "x"]),
        ("a $MORE", ["a", "of the entry"]),
    ],
)
def test_words_of_a_command(cmd: str, words: List[str]) -> None:
    variant = _variant(cmd, {"n": "8", "name": "two words"}, env={"MORE": "of the entry"})
    assert list(command_of(variant, ENVIRON).argv) == words


def test_ipulaunch_is_this_one() -> None:
    argv = command_of(_variant("ipulaunch plan mnist"), {}).argv
    assert argv == (sys.executable, "-m", "ipulaunch.launcher", "plan", "mnist")


def test_options_for_weights_and_biases_stay_if_the_entry_allows_them() -> None:
    assert "--wandb" in command_of(_variant("a --wandb", allow_wandb=True), {}).argv


def test_poplar_logs_unless_somebody_says_otherwise() -> None:
    env = command_of(_variant("a", env={"TF_CPP_VMODULE": "x=2", "A": "$N"}), ENVIRON).env
    assert env == {"POPART_LOG_LEVEL": "INFO", "TF_CPP_VMODULE": "x=2", "A": "$N"}


@pytest.mark.parametrize(
    ("cmd", "message", "hint"),
    [
        ("a {m}", "{m} is no parameter", "known: n"),
        ("a {nn}", "{nn} is no parameter", "did you mean n?"),
        ("a ${n.x}", "{n.x} is no parameter", ""),
        ("a {}", "{} is no parameter", ""),
        ("a {n!r}", "{n!r} is no parameter", ""),
        ("a {n:>9}", "{n:>9} is no parameter", ""),
        ("a {n.x}", "{n.x} is no parameter", ""),
        ("a {", "the cmd is broken", "{{"),
        ("a }", "the cmd is broken", "{{"),
        ("a 'b", "the cmd is broken", "close the quote"),
        ("a $NO $NONE $NO", "needs $NO, $NONE, not set here", ""),
        ("a ${DATTA}", "needs $DATTA", "did you mean DATA?"),
        ("a && b", "has &&", "bash -c"),
        ("a | b", "has |", "bash -c"),
        ("a > b", "has >", "bash -c"),
        ("a 2>&1", "has 2>&1", "bash -c"),
        ("a; b", "has a;", "bash -c"),
        ("A=1 b", "begins with the variable A", "env"),
        ("--wandb", "the cmd is empty", ""),
    ],
)
def test_what_no_command_can_be_made_of(cmd: str, message: str, hint: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)) as caught:
        command_of(_variant(cmd, {"n": "8"}), ENVIRON)
    assert caught.value.message.startswith("a.yml:1: it: ")
    assert hint in caught.value.hint


def test_a_parameter_stays_as_it_is_in_the_line_that_is_shown() -> None:
    assert command_line(_variant("a $DATA {n}", {"n": "8"})) == "a $DATA 8"


@pytest.mark.parametrize(
    ("line", "processes"),
    [
        ("mpirun --allow-run-as-root --np 4 python3 a.py", 4),
        ("mpirun --tag-output --np=16 python3 a.py", 16),
        ("python3 a.py --np 4 x", 1),
        ("poprun --num-instances 4 python3 a.py", 1),
        ("mpirun -np 4 python3", 1),
    ],
)
def test_processes_of_mpirun(line: str, processes: int) -> None:
    assert mpirun_processes(line) == processes


def test_the_smaller_limit_counts() -> None:
    short, without = Benchmark("a", "", "x", timeout_s=5.0), Benchmark("a", "", "x")
    assert [timeout_of(each, limit) for each in (short, without) for limit in (3.0, 9.0)] == [3.0, 5.0, 3.0, 9.0]


def test_directories_have_names_that_any_disk_takes() -> None:
    names = ["plain_1", "path_/a/b", "path__a_b", "..", "a" * 500, "a" * 499, "ü\n"]
    found = directory_names([Variant(Benchmark("it", "", "x"), name, {}) for name in names])
    assert list(found) == names and len(set(found.values())) == len(names)
    assert all(Path(name).name == name and len(name) < 200 and not name.startswith(".") for name in found.values())
    assert found["plain_1"] == "plain_1"
