from __future__ import annotations

import dataclasses
import itertools
from typing import Optional, Tuple

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.settings.workloads import presets, resolve
from ipulaunch.topology.capacity.fitting import changes
from ipulaunch.topology.capacity.memory import (
    CODE_SHARE,
    FITS,
    TOO_LARGE,
    TRAINING,
    UNCERTAIN,
    VALIDATION,
    StageMemory,
    fullest,
    memory_of,
    verdict,
)
from ipulaunch.topology.capacity.memory_splits import split_by_memory, with_splits
from ipulaunch.topology.capacity.ranges import Range
from ipulaunch.topology.capacity.tensors import tensors_of
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.network import Network
from ipulaunch.topology.networks.splits import split_points
from ipulaunch.topology.planning.batch import Batch

# MLPerf publishes the network of this preset for other processors: nobody says that it fits an IPU.
NOT_FOR_IPUS = {("cosmoflow", "mlperf_128")}
PUBLISHED = [
    (workload, preset)
    for workload in ("imagenet", "cifar10", "cosmoflow")
    for preset in presets(workload)
    if (workload, preset) not in NOT_FOR_IPUS
]


def settings_of(workload: str, config: Optional[str] = None) -> WorkloadSettings:
    return resolve(workload, rehearsal=False, config=config).settings


def batch_of(settings: WorkloadSettings) -> Batch:
    return Batch(settings.training.micro_batch_size, 16, 64)


@pytest.mark.parametrize(("workload", "preset"), PUBLISHED)
def test_published_presets_fit(workload: str, preset: str) -> None:
    settings = settings_of(workload, preset)
    assert {each.verdict for each in memory_of(settings, batch_of(settings))} == {FITS}


def test_presets_that_train_are_checked_for_training_and_validation() -> None:
    settings = settings_of("imagenet", "resnet50_mlperf_bs16")
    assert [each.program for each in memory_of(settings, batch_of(settings))] == [TRAINING, VALIDATION]


@pytest.mark.parametrize(("micro_size", "expected"), [(8, FITS), (16, TOO_LARGE), (32, TOO_LARGE)])
def test_resnet50_on_one_ipu_trains_with_small_micro_batches_only(micro_size: int, expected: str) -> None:
    settings = settings_of("imagenet")
    training = [each for each in memory_of(settings, Batch(micro_size, 16, 64)) if each.program == TRAINING]
    assert [each.verdict for each in training] == [expected]


def dense_network(parameters: int) -> Network:
    """Ten equal dense layers with so many weights in all."""
    net, width = Builder(), round((parameters / 10) ** 0.5)
    x = net.input("nodes", (width,), "float32")
    for number in range(10):
        x = net.dense(f"fc{number}", x, width, activation="relu")
    return net.network("dense")


@pytest.mark.parametrize(("parameters", "expected"), [(27_000_000, FITS), (42_000_000, UNCERTAIN)])
def test_a_published_fact_that_the_model_was_not_made_from(parameters: int, expected: str) -> None:
    """A graph network in 32 bits with Adam fits an IPU with 27M weights, and not with 42M."""
    settings = settings_of("cosmoflow")
    settings = dataclasses.replace(settings, optimizer=dataclasses.replace(settings.optimizer, name="adam"))
    model = StageMemory(settings, Batch(512, 1, 1), dense_network(parameters))
    parts = model.parts(model.stages(()), 1, TRAINING)
    needed = sum((each for each in parts.values()), Range(0, 0))
    assert verdict(needed, model.limit) == expected


def test_a_small_network_by_hand() -> None:
    """A convolution, a ReLU and a dense layer in 32 bits, micro-batches of 2, SGD with momentum, one replica."""
    net = Builder()
    x = net.conv("conv", net.input("image", (4, 4, 1), "uint8"), 2, 3)
    net.dense("fc", net.flatten("flatten", net.activation("relu", x, "relu")), 3)
    settings = settings_of("mnist")
    settings = dataclasses.replace(
        settings, optimizer=dataclasses.replace(settings.optimizer, name="sgd", momentum=0.9)
    )
    model = StageMemory(settings, Batch(2, 1, 1), net.network("small"))
    parts = model.parts(model.stages(()), 1, TRAINING)
    weights = 4 * (3 * 3 * 1 * 2 + 2 + 32 * 3 + 3)
    image, volume, outputs = 16 * 1, 4 * 32, 4 * 3
    assert parts == {
        "weights": Range(weights, weights),
        "gradients": Range(weights, weights),
        "optimizer": Range(weights, weights),
        # Of the dense layer: the image and the ReLU's output are still needed, with gradients of outputs and inputs.
        "activations": Range(*[2 * (image + volume + outputs + volume)] * 2),
        "input": Range(2 * image, 2 * image),
        "working memory": Range(0, 2 * (image + volume)),
        "code": CODE_SHARE.times(900e6),
    }


@pytest.mark.parametrize(
    ("needed", "expected"),
    [(Range(1, 2), FITS), (Range(1, 3), FITS), (Range(3, 4), UNCERTAIN), (Range(3.1, 4), TOO_LARGE)],
)
def test_verdicts(needed: Range, expected: str) -> None:
    assert verdict(needed, 3) == expected


def test_what_saves_memory_saves_it() -> None:
    settings = settings_of("imagenet", "resnet50_16ipus_8k_bn_pipeline")

    def size(**changed: object) -> float:
        device = dataclasses.replace(settings.device, **changed)  # type: ignore[arg-type]
        return fullest(memory_of(dataclasses.replace(settings, device=device), batch_of(settings))).bytes.high

    assert size() < size(recomputation=False)
    assert size(optimizer_state_offloading=True) < size()
    assert size(available_memory_proportion=(1.0,)) < size()


def test_schedules_differ_in_the_micro_batches_that_wait() -> None:
    settings = settings_of("imagenet", "resnet50_16ipus_8k_bn_pipeline")

    def size(schedule: str) -> float:
        pipeline = dataclasses.replace(settings.pipeline, schedule=schedule)
        changed = dataclasses.replace(settings, pipeline=pipeline)
        return memory_of(changed, batch_of(settings))[1].parts["activations"].high

    grouped, interleaved, sequential = map(size, ("Grouped", "Interleaved", "Sequential"))
    boundary = 16 * 56 * 56 * 256 * 2
    assert (grouped - interleaved, interleaved - sequential) == (2 * boundary, 2 * boundary)


def test_tiles_for_input_and_output_hold_no_model() -> None:
    settings = settings_of("imagenet")
    settings = dataclasses.replace(settings, device=dataclasses.replace(settings.device, io_tiles=736))
    assert fullest(memory_of(settings, batch_of(settings))).limit == 450e6


def test_stages_that_share_an_ipu_share_its_memory() -> None:
    settings = settings_of("imagenet", "resnet50_mlperf_bs16")
    [training, _] = memory_of(settings, batch_of(settings))
    apart = dataclasses.replace(settings.pipeline, device_mapping=())
    launch = dataclasses.replace(settings.launch, ipus_per_replica=4, num_replicas=4)
    device = dataclasses.replace(settings.device, distributed_norm_replicas=1)
    settings = dataclasses.replace(settings, pipeline=apart, launch=launch, device=device)
    stages = [each for each in memory_of(settings, batch_of(settings)) if each.program == TRAINING]
    assert training.stages == (0, 1, 2, 3)
    assert training.parts["weights"].high == sum(each.parts["weights"].high for each in stages)


def test_changes_that_make_it_fit_are_computed() -> None:
    settings, batch = settings_of("imagenet"), Batch(16, 16, 64)
    smaller, split = changes(settings, batch)
    assert smaller.options == "--micro-batch-size 11"
    at_limit = [fullest(memory_of(settings, batch._replace(micro_size=size))).verdict for size in (11, 12)]
    assert at_limit == [FITS, UNCERTAIN]
    assert split.options.startswith("--recomputation --pipeline-splits ")
    assert split.memory.verdict == FITS


def test_where_no_change_is_enough_the_closest_are_named() -> None:
    settings = settings_of("cosmoflow", "mlperf_128")
    found = changes(settings, batch_of(settings))
    assert [change.options for change in found] == ["--precision 16.16", "--optimizer-state-offloading"]
    assert {change.memory.verdict for change in found} == {UNCERTAIN}


def test_recomputation_is_proposed_for_a_pipeline_without_it() -> None:
    settings = settings_of("imagenet", "resnet56_16ipus_8k_bn_pipeline")
    settings = dataclasses.replace(settings, device=dataclasses.replace(settings.device, recomputation=False))
    assert "--recomputation" in [change.options for change in changes(settings, batch_of(settings))]


@pytest.mark.parametrize("stages", [2, 3])
def test_splits_by_memory_are_the_best_of_all(stages: int) -> None:
    """Beside every other choice of splits."""
    settings = settings_of("imagenet")
    settings = dataclasses.replace(
        settings,
        model=dataclasses.replace(settings.model, name="resnet18"),  # type: ignore[call-arg]
        optimizer=dataclasses.replace(settings.optimizer, name="adam", momentum=0.0),
    )
    batch = Batch(16, 4, 2 * stages)
    network = network_of(settings)

    def largest(splits: Tuple[str, ...]) -> float:
        memory = memory_of(with_splits(settings, splits), batch)
        return max(each.bytes.high for each in memory if each.program == TRAINING)

    found = split_by_memory(settings, stages, batch)
    assert max(each.bytes.high for each in found.memory) == largest(found.splits)
    unfinished = {layer.inputs[0] for layer in network.layers if layer.kind == "activation"}
    order = [layer.name for layer in network.layers]
    points = [name for name in split_points(network) if order[order.index(name) - 1] not in unfinished]
    assert largest(found.splits) == min(map(largest, itertools.combinations(points, stages - 1)))
    assert 0.5 < found.balance <= 1


def test_more_stages_than_the_network_has_are_refused() -> None:
    with pytest.raises(SettingsError, match="pipeline stages, and 99 are asked for"):
        split_by_memory(settings_of("imagenet"), 99, Batch(16, 4, 198))


def test_the_forward_pass_of_a_residual_block_keeps_both_branches() -> None:
    net = Builder()
    x = net.conv("first", net.input("image", (4, 4, 2), "uint8"), 2, 1, bias=False)
    y = net.activation("relu", net.conv("second", x, 2, 1, bias=False), "relu")
    net.add("sum", x, net.conv("third", y, 2, 1, bias=False))
    network = net.network("block")
    tensors = tensors_of(network, 2)
    one = 4 * 4 * 2 * 2
    assert tensors.forward_peak(network.layers) == 3 * one  # the shortcut, and input and output of a convolution
    # Inputs of all convolutions, of which one is the image in bytes, and the ReLU's output is the third's input.
    assert tensors.kept(network.layers) == one // 2 + 2 * one
