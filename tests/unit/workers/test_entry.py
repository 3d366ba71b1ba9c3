"""What the worker's entry point decides before TensorFlow is imported."""

from __future__ import annotations

from pathlib import Path
from typing import List, Type

import pytest

from ipulaunch.configs.errors import IpulaunchError, PlanError, SettingsError, UsageError
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.workers.arguments import job_of, read_arguments, require_same_job


def job(*texts: str) -> Job:
    """The job of a worker that is started by hand."""
    return job_of(read_arguments(["cifar10", *(word for text in texts for word in ("--set", text))]))


@pytest.mark.parametrize("api", ["keras", "pipeline-estimator"])
@pytest.mark.parametrize(
    ("splits", "kind", "said"),
    [
        ("[no_such_layer]", SettingsError, ["has no layer no_such_layer to split before", "legal splits: "]),
        ("[conv33]", SettingsError, ["has no layer conv33", "did you mean conv3?"]),
        ("[conv3, pool1]", SettingsError, ["the split pool1 comes after conv3", "use pool1, conv3"]),
        ("[pool1, conv3]", PlanError, ["3 pipeline stages on 3 IPUs", "--device-mapping"]),
    ],
)
def test_a_worker_started_by_hand_refuses_splits_as_a_launch_does(
    splits: str, kind: Type[IpulaunchError], said: List[str], api: str
) -> None:
    with pytest.raises(kind) as caught:
        job(f"estimator.api={api}", "model.name=cifar_cnn", f"pipeline.splits={splits}")
    for text in said:
        assert text in f"{caught.value.message} {caught.value.hint}"


def test_a_worker_started_by_hand_takes_the_splits_of_its_network() -> None:
    assert job("estimator.api=pipeline-estimator", "pipeline.splits=[pool1]").settings.pipeline.splits == ("pool1",)


@pytest.mark.parametrize(
    ("line", "is_same"),
    [
        (["mnist", "--backend", "cpu"], True),
        (["mnist"], True),
        (["mnist", "--backend", "ipu"], False),
        (["cosmoflow", "--backend", "cpu"], False),
    ],
    ids=["same", "without a backend", "other backend", "other workload"],
)
def test_a_line_with_a_run_directory_is_for_its_job(line: List[str], is_same: bool, tmp_path: Path) -> None:
    decided = Job("mnist", "cpu", resolve("mnist", rehearsal=True).settings)
    arguments = read_arguments([*line, "--run-dir", str(tmp_path)])
    if is_same:
        require_same_job(arguments, decided)
        return
    with pytest.raises(UsageError, match="mnist with backend cpu") as caught:
        require_same_job(arguments, decided)
    assert " ".join(line) in caught.value.message and "command.txt" in caught.value.hint
