"""The published configurations: each says what it is for, builds, and means what its header says."""

from __future__ import annotations

import itertools
from typing import Dict

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.job import Job, from_yaml, set_options, to_yaml
from ipulaunch.configs.tree import assignment
from ipulaunch.configs.workloads import WORKLOADS, presets, resolve
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.splits import check_splits

PRESETS = [(workload, name) for workload in WORKLOADS for name in presets(workload)]
of_presets = pytest.mark.parametrize(("workload", "name"), PRESETS, ids=[f"{w}-{n}" for w, n in PRESETS])
rehearsed = pytest.mark.parametrize("rehearsal", [False, True], ids=["run", "rehearsal"])


def header(workload: str, name: str) -> Dict[str, str]:
    """What the comment at the top says under each word."""
    lines = presets(workload)[name].read_text(encoding="utf-8").splitlines()
    comment = [line[2:] for line in itertools.takewhile(lambda line: line.startswith("#"), lines)]
    return {"Purpose": comment[0], **dict(line.split(maxsplit=1) for line in comment[1:] if line)}


def test_what_the_published_applications_have_is_there() -> None:
    assert {name for workload, name in PRESETS if workload == "imagenet"} >= {
        "resnet50_16ipus_16k_bn_pipeline",
        "resnet50_16ipus_8k_bn_pipeline",
        "resnet50_16ipus_8k_gn_pipeline",
        "resnet50_mlperf_pod16_lars",
        "resnet50_infer_bs1",
    }
    assert ("cifar10", "resnet8_16ipus_bn") in PRESETS
    assert {name for workload, name in PRESETS if workload == "cosmoflow"} == {"cosmoflow_v1", "mlperf_128"}


@of_presets
def test_header_gives_purpose_hardware_score_and_command(workload: str, name: str) -> None:
    found = header(workload, name)
    assert {"Hardware", "Score", "Command"} <= set(found)
    assert len(found["Purpose"]) > 20
    words = found["Command"].split()
    assert words[:2] == ["ipulaunch", workload]
    assert words[words.index("--config") + 1] == name


@rehearsed
@of_presets
def test_preset_builds(workload: str, name: str, rehearsal: bool) -> None:
    found = resolve(workload, rehearsal=rehearsal, config=name)
    assert (found.workload, found.config, found.rehearsal, found.given) == (workload, name, rehearsal, frozenset())
    assert any(origin.startswith(f"configs/presets/{workload}/{name}.yaml:") for origin in found.origins.values())


@rehearsed
@of_presets
def test_network_can_be_divided_as_the_preset_says(workload: str, name: str, rehearsal: bool) -> None:
    settings = resolve(workload, rehearsal=rehearsal, config=name).settings
    check_splits(network_of(settings), settings.pipeline.splits)


@of_presets
def test_rehearsal_keeps_stages_replicas_and_optimizer(workload: str, name: str) -> None:
    run, small = (resolve(workload, rehearsal=flag, config=name).settings for flag in (False, True))
    assert run.pipeline == small.pipeline
    assert run.launch.num_replicas == small.launch.num_replicas
    assert (run.model.name, run.optimizer.name) == (small.model.name, small.optimizer.name)
    assert run.device == small.device
    assert small.training.num_epochs <= 3


@pytest.mark.parametrize("backend", ["ipu", "cpu"])
@rehearsed
@of_presets
def test_job_text_gives_back_an_equal_job(workload: str, name: str, rehearsal: bool, backend: str) -> None:
    job = Job(workload, backend, resolve(workload, rehearsal=rehearsal, config=name).settings)
    assert from_yaml(to_yaml(job), "job.yaml") == job


@of_presets
def test_options_of_a_worker_are_the_name_and_what_was_given(workload: str, name: str) -> None:
    found = resolve(workload, rehearsal=True, config=name, overrides=[assignment("training.seed=5", "--seed")])
    assert set_options(found) == ["--config", name, "--set", "training.seed=5"]


@pytest.mark.parametrize(
    ("workload", "name", "hint"),
    [
        pytest.param("imagenet", "resnet50_infer_bs8", "did you mean resnet50_infer_bs", id="near"),
        pytest.param("cosmoflow", "zzz", "known: cosmoflow_v1, mlperf_128", id="nothing near"),
        pytest.param("mnist", "zzz", "it has none: leave --config out", id="none"),
    ],
)
def test_unknown_preset_is_refused(workload: str, name: str, hint: str) -> None:
    with pytest.raises(SettingsError, match=f"{workload} has no preset {name}") as caught:
        resolve(workload, rehearsal=False, config=name)
    assert caught.value.hint.startswith(hint)
