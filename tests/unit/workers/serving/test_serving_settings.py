"""What serving makes of the settings of a training."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.sections import Pipeline
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import WORKLOADS, presets, resolve
from ipulaunch.topology import Batch
from ipulaunch.topology.networks import computed_by, network_of
from ipulaunch.topology.planning.refusals import ipus_needed, refuse_on_ipus
from ipulaunch.workers.serving.serving_settings import choose_iterations, choose_pipeline, serving_settings

PUBLISHED = [(workload, name) for workload in WORKLOADS for name in (None, *presets(workload))]


@pytest.mark.parametrize("is_pipelined", [False, True], ids=["undivided", "divided"])
@pytest.mark.parametrize(("workload", "config"), PUBLISHED)
def test_every_published_training_can_be_served(workload: str, config: str, is_pipelined: bool) -> None:
    """The same function of the same weights, in one replica that IPUs can fulfil."""
    trained = resolve(workload, rehearsal=False, config=config).settings
    served = serving_settings(trained, is_pipelined=is_pipelined)
    assert computed_by(served) == computed_by(trained)
    assert network_of(served).layers[1].kind in ("normalise", "density")  # clients send samples as they are stored
    assert served.pipeline == (trained.pipeline if is_pipelined else Pipeline())
    assert served.micro_batches_per_turn == served.least_accumulation == 1
    refuse_on_ipus(served, Batch(served.training.micro_batch_size, 1, 1), ipus_needed(served.pipeline))


def resolved(*assignments: str) -> List[object]:
    """The type of the pixels that a server gets."""
    overrides = [assignment(text, "--set") for text in assignments]
    data = serving_settings(resolve("cifar10", rehearsal=True, overrides=overrides).settings, is_pipelined=False).data
    return [data.sends_bytes, data.host_preprocess]


@pytest.mark.parametrize(
    ("given", "sends_bytes"),
    [
        ((), True),
        (("data.eight_bit_transfer=true",), True),
        (("data.eight_bit_transfer=false",), False),
        (("data.host_preprocess=true",), False),
    ],
    ids=str,
)
def test_pixels_go_as_in_training_and_are_normalised_by_the_model(given: Tuple[str, ...], sends_bytes: bool) -> None:
    assert resolved(*given) == [sends_bytes, False]


TWO, THREE = ("a",), ("a", "b")


@pytest.mark.parametrize(
    ("pipeline", "asked", "iterations"),
    [
        (Pipeline(), 0, 1),
        (Pipeline(), 5, 5),
        (Pipeline(TWO), 0, 2),
        (Pipeline(THREE), 6, 6),
        (Pipeline(THREE, schedule="Interleaved"), 0, 3),
        (Pipeline(THREE, (0, 1, 0), "Interleaved"), 0, 6),
        (Pipeline(THREE, schedule="Sequential"), 0, 1),
        (Pipeline(THREE, schedule="Sequential"), 5, 5),
    ],
)
def test_iterations_fill_the_pipeline(pipeline: Pipeline, asked: int, iterations: int) -> None:
    assert choose_iterations(pipeline, asked) == iterations


@pytest.mark.parametrize(("asked", "nearest"), [(1, 3), (4, 6)])
def test_iterations_that_do_not_fill_the_pipeline_are_refused(asked: int, nearest: int) -> None:
    with pytest.raises(
        SettingsError, match=rf"--iterations is {asked}, and 3 pipeline stages.* multiple of 3"
    ) as found:
        choose_iterations(Pipeline(THREE), asked)
    assert f"--iterations {nearest}" in found.value.hint


def test_a_model_without_splits_is_not_divided() -> None:
    settings = resolve("mnist", rehearsal=True).settings
    assert choose_pipeline(settings, False) == (False, [])
    is_pipelined, (warning,) = choose_pipeline(settings, True)
    assert not is_pipelined and "no pipeline splits" in warning
