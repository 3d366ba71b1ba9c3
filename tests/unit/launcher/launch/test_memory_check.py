"""What a plan says about the memory of the IPUs."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("imagenet", "fits: training needs 588 to 743 MB of the 900 MB of an IPU"),
        ("imagenet --micro-batch-size 16", "does not fit: training needs 928 to 1102 MB of the 900 MB of an IPU"),
        (
            "imagenet --config resnet50_16ipus_8k_bn_pipeline",
            "fits: training needs 433 to 607 MB of the 900 MB of IPU 1, the fullest of a replica",
        ),
    ],
)
def test_a_plan_says_whether_the_model_fits(words: str, said: str, ipulaunch: Run) -> None:
    out = ipulaunch("plan", *words.split(), "--pod", "16").out
    [line] = [line for line in out.splitlines() if line.startswith("memory ")]
    assert line.split(maxsplit=1)[1] == said


def test_a_model_that_does_not_fit_gets_a_warning_with_what_would_help(ipulaunch: Run) -> None:
    err = ipulaunch("plan", "imagenet", "--pod", "16", "--micro-batch-size", "16").err
    [line] = [line for line in err.splitlines() if "does not fit" in line]
    assert line.startswith("warning: the model does not fit: training needs 928 to 1102 MB of the 900 MB of an IPU;")
    remedies = line.split("it fits with ")[1].split(", or ")
    assert remedies[0] == "--micro-batch-size 11 (716 to 877 MB)"
    for remedy in remedies:
        words = remedy.split(" (")[0].split()
        again = ipulaunch("plan", "imagenet", "--pod", "16", "--micro-batch-size", "16", *words)
        assert "memory    fits: " in again.out


def test_where_nothing_is_enough_the_warning_says_what_comes_closest(ipulaunch: Run) -> None:
    words = ("plan", "cosmoflow", "--pod", "16", "--config", "mlperf_128", "--data-dir", "/volumes")
    err = ipulaunch(*words).err
    assert "the model may not fit: training needs 868 to 1305 MB" in err
    assert "; closest to fitting: --precision 16.16 (487 to 908 MB)" in err


def test_explained_memory_has_a_row_for_each_ipu_and_program(ipulaunch: Run) -> None:
    words = ("plan", "imagenet", "--pod", "16", "--config", "resnet50_mlperf_bs16")
    lines = ipulaunch(*words, "--explain").out.splitlines()
    [head] = [place for place, line in enumerate(lines) if line.startswith("MB ")]
    rows = [line.split() for line in lines[head + 1 : lines.index("", head)]]
    assert [row[:3] for row in rows] == [["training", "0", "0-3"], ["validation", "0", "0-3"]]
    assert {row[-1] for row in rows} == {"fits"}
    data = json.loads(ipulaunch(*words, "--json").out)["memory"]
    for each in data:
        parts = each["parts"].values()
        assert each["bytes"] == {end: sum(part[end] for part in parts) for end in ("low", "high")}


@pytest.mark.parametrize("words", ["imagenet --engine openmpi --host-layout 1x2", "program"])
def test_what_has_no_ipus_or_no_network_has_no_estimate(words: str, ipulaunch: Run) -> None:
    outcome = ipulaunch("plan", *words.split(), "--pod", "4")
    assert (outcome.code, "memory" in outcome.out) == (0, False)


def test_splits_by_memory(ipulaunch: Run) -> None:
    words = ("plan", "imagenet", "--suggest-splits", "4", "--splits-by", "memory")
    lines = ipulaunch(*words).out.splitlines()
    assert lines[0].endswith("forward and backward, with recomputation:")
    assert lines[2].split()[-1] == "MB"
    assert lines[-1].startswith("--recomputation --pipeline-splits ")
    assert ipulaunch("plan", "imagenet", "--pod", "16", *lines[-1].split()).code == 0
    stages = json.loads(ipulaunch(*words, "--json").out)["stages"]
    by_flops = json.loads(ipulaunch(*words[:-2], "--json").out)["stages"]
    assert [stage["memory"]["stages"] for stage in stages] == [[0], [1], [2], [3]]
    assert "memory" not in by_flops[0]
