from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, List

import click
import pytest

from ipulaunch.configs.benchmarks import read_specification, spec_files
from ipulaunch.launcher.bench.variants import Variant, command_of, variants_of

SPEC = """
common_options: &common
  data: {throughput: {regexp: 'rate (\\d+)'}}
first: {<<: *common, description: one, parameters: {n: '1,2'}, cmd: 'echo rate {n}'}
second_conv: {<<: *common, cmd: echo long, requirements_path: r.txt}
third: {<<: *common, cmd: echo $NOT_HERE_AT_ALL}
"""


@pytest.fixture()
def spec(tmp_path: Path, clean_place: None) -> str:
    path = tmp_path / "benchmarks.yml"
    path.write_text(SPEC)
    return str(path)


def test_the_list_has_every_benchmark_and_its_variants(ipulaunch: Callable[..., Any], spec: str) -> None:
    outcome = ipulaunch("bench", "--spec", spec, "--list")
    assert outcome.code == 0 and outcome.out.splitlines() == [
        "first",
        "    one",
        "    variant first_n_1",
        "    variant first_n_2",
        "second_conv  (--include-convergence)",
        "third",
    ]
    found = json.loads(ipulaunch("bench", "--spec", spec, "--list", "--json").out)
    assert [each["name"] for each in found] == ["first", "second_conv", "third"]
    assert found[0]["variants"][1] == {"name": "first_n_2", "params": {"n": "2"}}


def test_a_dry_run_prints_the_commands_and_what_is_wrong(
    ipulaunch: Callable[..., Any], spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPLAR_LOG_LEVEL", "ERR")
    outcome = ipulaunch("bench", "--spec", spec, "--dry-run", "--timeout", "9")
    assert outcome.code == 6
    assert "third: the cmd needs $NOT_HERE_AT_ALL" in outcome.err
    assert outcome.out.splitlines()[:3] == [
        "# first_n_1, at most 9 s",
        f"cd {tmp_path}",
        "POPART_LOG_LEVEL=INFO TF_CPP_VMODULE=poplar_compiler=1 echo rate 1",
    ]
    assert "second_conv" not in outcome.out
    assert [path.name for path in tmp_path.iterdir()] == ["benchmarks.yml"]


def test_convergence_tests_run_when_they_are_named_or_included(ipulaunch: Callable[..., Any], spec: str) -> None:
    for words in (("--include-convergence",), ("--benchmark", "second_conv")):
        outcome = ipulaunch("bench", "--spec", spec, "--dry-run", "--json", *words)
        assert "second_conv" in [each["variant_name"] for each in json.loads(outcome.out)]
        assert "note: second_conv: requirements_path: bench installs nothing" in outcome.err


def test_lists_are_written_as_in_the_published_command(
    ipulaunch: Callable[..., Any], spec: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.yml"
    other.write_text("fourth: {cmd: x}\nfifth: {cmd: y}\n")
    words = ("--spec", spec, str(other), "--benchmark", "fifth", "first", "--dry-run")
    assert [line for line in ipulaunch("bench", *words).out.splitlines() if line.startswith("#")] == [
        "# fifth",
        "# first_n_1",
        "# first_n_2",
    ]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--benchmark", "frist", "first", "--dry-run"), 2, "hint: did you mean first?"),
        (("--benchmark", "common_options", "--dry-run"), 2, "is for others to merge"),
        (("--spec", "nowhere.yml", "--dry-run"), 6, "there is no file nowhere.yml"),
        (("--spec",), 2, "requires an argument"),
        (("--csv", "--json"), 2, "--csv prints results"),
        (("--against", "nowhere.json"), 2, "there is no file nowhere.json"),
        (("--timeout", "0"), 2, "--timeout"),
        (("--rounds", "0"), 2, "--rounds"),
        (("--benchmark", "second_conv", "third", "--stop-on-error"), 6, "needs $NOT_HERE_AT_ALL"),
        (("--list", "surplus"), 2, "surplus"),
    ],
)  # fmt: skip
def test_errors(ipulaunch: Callable[..., Any], spec: str, words: Any, code: int, message: str) -> None:
    outcome = ipulaunch("bench", "--spec", spec, *words)
    assert (outcome.code, message in outcome.err) == (code, True), outcome.err


def test_nothing_to_run_is_an_error(ipulaunch: Callable[..., Any], tmp_path: Path, clean_place: None) -> None:
    path = tmp_path / "a.yml"
    path.write_text("only_conv: {cmd: x}\n")
    outcome = ipulaunch("bench", "--spec", str(path))
    assert outcome.code == 2 and "add --include-convergence" in outcome.err


def test_earlier_results_are_never_overwritten(ipulaunch: Callable[..., Any], spec: str, tmp_path: Path) -> None:
    earlier = tmp_path / "d" / "benchmark_results.json"
    earlier.parent.mkdir()
    earlier.write_text("{}")
    outcome = ipulaunch("bench", "--spec", spec, "--log-dir", "d")
    assert outcome.code == 2 and "has the results of an earlier call" in outcome.err
    assert earlier.read_text() == "{}"


def test_secrets_are_not_printed(
    ipulaunch: Callable[..., Any], tmp_path: Path, clean_place: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "s3cr3t-value")
    path = tmp_path / "a.yml"
    path.write_text("it: {cmd: 'a $MY_API_KEY --token=abcdefgh', env: {OTHER_TOKEN: hidden-one}}\n")
    outcome = ipulaunch("bench", "--spec", str(path), "--dry-run")
    assert outcome.code == 0
    assert not any(secret in outcome.out + outcome.err for secret in ("s3cr3t-value", "abcdefgh", "hidden-one"))


def _shipped() -> List[Variant]:
    return [
        each for benchmark in read_specification(spec_files([])).benchmarks.values() for each in variants_of(benchmark)
    ]


@pytest.mark.parametrize("variant", _shipped(), ids=lambda variant: variant.name)
def test_shipped_commands_parse(
    ipulaunch: Callable[..., Any], variant: Variant, monkeypatch: pytest.MonkeyPatch, clean_place: None
) -> None:
    monkeypatch.setattr(click.Command, "invoke", lambda self, ctx: None)  # groups still look for their commands
    words = command_of(variant, {"DATASETS_DIR": "/data"}).argv[3:]
    outcome = ipulaunch(*words)
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("name", ["tf2_resnet50_train_real_pod4", "tf2_resnet50_train_real_pod16_conv"])
def test_shipped_trainings_can_be_planned(ipulaunch: Callable[..., Any], name: str, clean_place: None) -> None:
    (variant,) = [variant for variant in _shipped() if variant.name == name]
    outcome = ipulaunch(*command_of(variant, {"DATASETS_DIR": "/data"}).argv[3:], "--dry-run")
    assert outcome.code == 0 and "poprun" in outcome.out, outcome.err
