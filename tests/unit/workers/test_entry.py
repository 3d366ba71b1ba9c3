"""What the worker's entry point decides before TensorFlow is imported."""

from __future__ import annotations

from typing import List, Type

import pytest

from ipulaunch.configs.errors import IpulaunchError, PlanError, SettingsError
from ipulaunch.configs.runs.job import Job
from ipulaunch.workers.arguments import job_of, read_arguments


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
