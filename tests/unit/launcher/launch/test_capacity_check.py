"""What the commands say about hosts that cannot feed the IPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict
from xml.etree import ElementTree

import pytest

from ipulaunch.launcher.launch.capacity_check import count

Run = Callable[..., Any]

POD64 = ("imagenet", "--pod", "64", "--dataset-path", "/images")
WAIT = (
    "warning: with the published JPEGs, the IPUs would wait for the hosts: they take 104,000 to 145,000 samples/s, and"
    " the host link of one host does at most 83,000; ipulaunch capacity imagenet says what would help"
)


@pytest.mark.parametrize("words", [("plan", *POD64), (*POD64, "--dry-run")], ids=["plan", "launch"])
def test_a_pod64_with_one_host_and_jpegs_gets_a_warning(words: Any, ipulaunch: Run) -> None:
    assert WAIT in ipulaunch(*words).err.splitlines()


@pytest.mark.parametrize(
    "words",
    [
        "imagenet --pod 16 --dataset-path /images",
        "imagenet --pod 64 --synthetic-data cpu",
        "imagenet --pod 64 --synthetic-data ipu",
        "imagenet --pod 64 --dataset-path /images --hosts h[0-3]",
        "imagenet --pod 64 --dataset-path /images --engine openmpi --host-layout 1x2 --n-train 512",
        "imagenet --pod 64 --dataset-path /images --model resnet18",
        "cosmoflow --pod 64 --data-dir /volumes",
    ],
)
def test_others_get_none(words: str, ipulaunch: Run) -> None:
    outcome = ipulaunch("plan", *words.split())
    assert (outcome.code, "wait for the hosts" in outcome.err) == (0, False)


def test_capacity_shows_the_chain_in_80_columns(ipulaunch: Run) -> None:
    outcome = ipulaunch("capacity", *POD64, "--no-measure")
    lines = outcome.out.splitlines()
    assert (outcome.code, outcome.err) == (0, "")
    assert max(map(len, lines)) <= 80
    assert lines[0] == "imagenet on pod64: 64 IPUs = 64 replicas x 1; 8 instances x 8 replicas; 1 host"
    assert lines[2].split() == ["samples/s", "instance", "host", "POD", "headroom"]
    assert lines[6].split() == ["host", "link", "10.4k", "83k", "83k", "slowest", "published"]
    assert "the host link of one host does at most 83,000." in outcome.out
    assert "(estimate: 16 x 1.5 kW" in outcome.out and "memory       fits: " in outcome.out
    start = lines.index("what would help, in samples/s:")
    assert lines[start + 1] == "  36.4k-145k   4 hosts instead of 1 (--hosts) (ranges overlap)"


def test_json_has_every_number_with_its_origin(ipulaunch: Run) -> None:
    data: Dict[str, Any] = json.loads(ipulaunch("capacity", *POD64, "--no-measure", "--json").out)
    assert (data["verdict"], data["bottleneck"]) == ("starve", "host link")
    names = ["disk", "decode", "host memory", "host link", "IPUs"]
    assert [link["name"] for link in data["links"]] == names
    for link in data["links"]:
        pod, instance = link["samples_per_s"]["pod"], link["samples_per_s"]["instance"]
        assert pod["high"] == pytest.approx(8 * instance["high"]) and link["source"]
    assert [link["origin"] for link in data["links"]] == ["assumed", "assumed", "assumed", "published", "published"]
    hours = data["training_s"]["high"] / 3600
    assert data["energy"]["kwh"]["high"] == pytest.approx(hours * 16 * 1.5)
    assert data["energy"]["is_estimate"] is True
    assert data["improvements"][0]["verdict"] == "uncertain" and data["memory"]


def test_options_replace_what_is_known(ipulaunch: Run) -> None:
    rates = ("--ipu-rate", "50", "--disk-rate", "8", "--link", "200", "--decode-rate", "10")
    words = ("cosmoflow", "--pod", "16", "--data-dir", "/v", "--side", "128", "--form", "gzip", *rates)
    data = json.loads(ipulaunch("capacity", *words, "--no-measure", "--json").out)
    rate = {link["name"]: (link["samples_per_s"]["pod"]["low"], link["origin"]) for link in data["links"]}
    assert rate["disk"] == (pytest.approx(8e9 * 5.8 / (128**3 * 8)), "given")
    assert rate["unpack"] == (10 * 128, "given")
    assert rate["host link"] == (pytest.approx(25e9 / (128**3 * 8)), "given")
    assert rate["IPUs"] == (800, "given")
    assert data["verdict"] == "busy"


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("cosmoflow --pod 16 --disk-rate 1", "--disk-rate has no effect on this job: its samples do not go there"),
        ("imagenet --pod 16 --synthetic-data ipu --decode-rate 1", "--decode-rate has no effect on this job"),
        ("mnist --pod 4 --engine openmpi --link 100", "--link has no effect on this job: a rehearsal has no IPUs"),
    ],
)
def test_rates_of_links_that_are_not_there_are_refused(words: str, wrong: str, ipulaunch: Run) -> None:
    outcome = ipulaunch("capacity", *words.split(), "--no-measure")
    assert outcome.code == 2 and wrong in outcome.err


def test_the_picture_is_well_formed_and_shows_hostile_names_as_text(tmp_path: Path, ipulaunch: Run) -> None:
    picture = tmp_path / "chain.svg"
    assert ipulaunch("capacity", *POD64, "--no-measure", "--svg", str(picture)).code == 0
    text = picture.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    bars = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if "bar" in str(each.get("class"))]
    assert len(bars) == 5 + 4  # the host link has no range
    assert "prefers-color-scheme: dark" in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text


def test_numbers_have_three_digits_that_count() -> None:
    assert [count(value) for value in (145_287, 83_041, 1_234, 745.4, 46.57, 0.1234)] == [
        *("145,000", "83,000", "1,230", "745", "46.6", "0.123")
    ]
