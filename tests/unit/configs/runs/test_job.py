from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional

import pytest

from ipulaunch.configs.errors import IpulaunchError, SettingsError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, from_yaml, job_of, set_options, to_yaml
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import WORKLOADS, resolve


@pytest.mark.parametrize("backend", ["ipu", "cpu"])
@pytest.mark.parametrize("rehearsal", [False, True], ids=["run", "rehearsal"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_text_gives_back_an_equal_job(workload: str, rehearsal: bool, backend: str) -> None:
    job = Job(workload, backend, resolve(workload, rehearsal=rehearsal).settings)
    assert from_yaml(to_yaml(job), "job.yaml") == job


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param("workload: cosmoflow\n", "", "it needs workload", id="no workload"),
        pytest.param("workload: cosmoflow", "workload: cosmoflo", "there is no workload cosmoflo", id="workload"),
        pytest.param("backend: cpu", "backend: gpu", "job.yaml:2: the backend is 'gpu', expected ipu", id="backend"),
        pytest.param("backend: cpu", "backend: [cpu]", "job.yaml:2: the backend is", id="list as backend"),
        pytest.param("n_train: ", "n_trian: ", "data.n_trian is not a setting", id="unknown setting"),
        pytest.param("n_train: ", "n_train: x", "data.n_train is 'x", id="wrong setting"),
        pytest.param("backend: cpu", "backend: cpu\nmore: 1", "more", id="unknown key"),
    ],
)
def test_damaged_job_is_refused(old: str, new: str, message: str) -> None:
    text = to_yaml(Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=True).settings))
    assert old in text
    with pytest.raises(IpulaunchError) as caught:
        from_yaml(text.replace(old, new, 1), "job.yaml")
    assert message in caught.value.message


@pytest.mark.parametrize(("workload", "key"), [("cosmoflow", "data_dir"), ("mnist", "dataset_path")])
def test_a_job_of_version_0_1_0_is_read(workload: str, key: str) -> None:
    text = f"workload: {workload}\nbackend: cpu\nsettings:\n  data:\n    {key}: /d\n"
    assert from_yaml(text, "job.yaml").settings.data.directory == "/d"


@pytest.mark.parametrize("text", ["", "a: 1", "settings: 1", "workload: {}\nbackend: cpu\nsettings: {}", "[]"])
def test_text_that_is_no_job_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^job\.yaml"):
        from_yaml(text, "job.yaml")


@pytest.mark.parametrize("text", [None, "[]", "workload: new\nbackend: cpu\nsettings: {}"])
def test_a_run_without_a_whole_job(text: Optional[str], tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    if text is not None:
        run.job.write_text(text)
    assert job_of(run) is None


@pytest.mark.parametrize("rehearsal", [False, True], ids=["run", "rehearsal"])
@pytest.mark.parametrize(
    ("file", "environ", "overrides"),
    [
        pytest.param("", {}, [], id="shipped"),
        pytest.param("data: {side: 128}\nrehearsal:\n  data: {n_train: 7}\n", {}, [], id="file"),
        pytest.param("", {"IPULAUNCH_OPTIMIZER__LEARNING_RATE": "1e-05"}, [], id="environment"),
        pytest.param("", {}, ["training.validation=no", "training.global_batch_size=64"], id="overrides"),
        pytest.param("launch: {num_replicas: 4}", {}, ["launch.num_replicas=null"], id="back to not given"),
        pytest.param("training: {checkpoint_output_dir: '/a \U0001f680 #1'}", {}, [], id="beyond 16 bits"),
        pytest.param('training: {checkpoint_output_dir: "/a \\u2028 #1"}', {}, [], id="separator of lines"),
    ],
)
def test_options_turn_the_shipped_settings_into_these(
    file: str, environ: Dict[str, str], overrides: List[str], rehearsal: bool, tmp_path: Path
) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(file, encoding="utf-8")
    trees = [assignment(text, "--set") for text in overrides]
    found = resolve("cosmoflow", rehearsal=rehearsal, config_path=path, environ=environ, overrides=trees)
    options = set_options(found)
    assert options[::2] == ["--set"] * (len(options) // 2)
    again = [assignment(text, "--set") for text in options[1::2]]
    assert resolve("cosmoflow", rehearsal=rehearsal, overrides=again).settings == found.settings


def test_shipped_settings_need_no_options() -> None:
    assert set_options(resolve("cosmoflow", rehearsal=True)) == []
