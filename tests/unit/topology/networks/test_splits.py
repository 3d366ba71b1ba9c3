from __future__ import annotations

import itertools
from typing import List, Tuple

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.cosmoflow import CosmoflowSettings
from ipulaunch.configs.settings.images import MODELS, ImageData, ImageModel, ImageSettings
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.network import Network, costs
from ipulaunch.topology.networks.splits import (
    balance,
    check_splits,
    efficiency,
    split_points,
    stage_costs,
    stage_ends,
    stages_of,
    suggest_splits,
)


def image_network(name: str, side: int = 32) -> Network:
    return network_of(ImageSettings(model=ImageModel(name=name), data=ImageData(side=side, classes=10)))


@pytest.fixture(scope="module")
def tiny() -> Network:
    """A convolution, a residual block of one layer, and a dense layer."""
    net = Builder()
    x = net.normalise("normalise", net.input("image", (4, 4, 1), "uint8"), (0.0,), (1.0,))
    x = net.conv("conv", net.pad("pad", x, 1), 2, 3)
    x = net.activation("out", net.add("sum", x, net.conv("inside", x, 2, 3)), "relu")
    net.dense("dense", net.flatten("flatten", x), 3)
    return net.network("tiny")


PUBLISHED = [
    ("resnet50", ["conv2_block2_out", "conv3_block1_out", "conv4_block2_out"]),
    ("resnet50", ["conv2_block1_out", "conv2_block3_out", "conv3_block4_out"]),
    (
        "resnet50",
        [
            *("conv2_block1_out", "conv2_block3_out", "conv3_block1_out", "conv3_block3_out"),
            *("conv4_block1_out", "conv4_block4_out"),
        ],
    ),
    ("cifar_resnet56", [f"conv{block}_post_addition_relu" for block in ("2_block4", "2_block7", "3_block4")]),
]


@pytest.mark.parametrize(("name", "splits"), PUBLISHED)
def test_published_splits_are_legal(name: str, splits: List[str]) -> None:
    network = image_network(name, side=224)
    check_splits(network, splits)
    stages = stages_of(network, splits)
    assert [stage[0].name for stage in stages] == [network.layers[0].name, *splits]
    assert [stage[-1].name for stage in stages[:-1]] == list(stage_ends(network, splits))
    assert sum(stages, ()) == network.layers


def test_points_are_where_one_output_crosses(tiny: Network) -> None:
    assert split_points(tiny) == ("inside", "out", "flatten", "dense")
    assert stage_ends(tiny, split_points(tiny)) == ("conv", "sum", "out", "flatten")


@pytest.mark.parametrize("name", MODELS)
def test_a_stage_reads_nothing_else_from_before(name: str) -> None:
    network = image_network(name)
    names = [layer.name for layer in network.layers]
    points = split_points(network)
    for point, end in zip(points, stage_ends(network, points)):
        start = names.index(point)
        read = {source for layer in network.layers[start:] for source in layer.inputs}
        assert read & set(names[:start]) == {end}


REFUSED = [
    (["otu"], "tiny has no layer otu to split before", "did you mean out? legal splits: inside, out, flatten, dense"),
    (["INSIDE"], "tiny has no layer INSIDE to split before", "did you mean inside? legal splits"),
    (["onside"], "tiny has no layer onside to split before", "did you mean inside? legal splits"),
    (["x"], "tiny has no layer x to split before", "legal splits: inside, out, flatten, dense"),
    (["sum"], "2 outputs cross there: conv, inside", "legal splits: inside"),
    (["conv"], "cannot be split before conv: the first stage would have no weights", "legal splits"),
    (["image"], "cannot be split before image: the first stage would have no weights", "legal splits"),
    (["out", "inside"], "the split inside comes after out, and tiny has it before", "use inside, out"),
    (["out", "inside", "dense"], "the split inside comes after out", "use inside, out, dense"),
    (["out", "out"], "the split out is given 2 times", "once"),
    (["out", "dense", "out"], "the split out is given 2 times", "once"),
]


@pytest.mark.parametrize(("splits", "message", "hint"), REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_wrong_splits_are_refused(tiny: Network, splits: List[str], message: str, hint: str) -> None:
    with pytest.raises(SettingsError) as error:
        check_splits(tiny, splits)
    assert message in error.value.message
    assert hint in error.value.hint


def test_many_points_are_told_in_few_words() -> None:
    with pytest.raises(SettingsError) as error:
        check_splits(image_network("resnet50"), ["conv2_block9_out"])
    assert (
        "legal splits: conv1_bn, conv1_relu, pool1_pad, pool1_pool, conv2_block1_0_conv, conv2_block1..3_out, "
        "conv2_block2..3_1_conv, conv3_block1_0_conv, conv3_block1..4_out, " in error.value.hint
    )
    with pytest.raises(SettingsError) as error:
        check_splits(network_of(CosmoflowSettings()), ["nowhere"])
    assert error.value.hint == (
        "legal splits: conv1..5_activation, conv1..5_pool, conv2..5, flatten, fc1..2, fc1..2_activation, "
        "fc1..2_dropout, targets, stretch"
    )


@pytest.mark.parametrize(
    ("model", "name", "meant"),
    [
        ("resnet50", "conv2_block9_out", "conv2_block3_out"),
        ("resnet50", "Conv4_Block2_Out", "conv4_block2_out"),
        ("resnet50", "conv4_block2_relu", "conv4_block2_out"),
        ("cifar_resnet56", "conv2_block4_out", "conv2_block4_layer1_conv"),
    ],
)
def test_a_point_that_begins_in_the_same_way_is_meant(model: str, name: str, meant: str) -> None:
    with pytest.raises(SettingsError) as error:
        check_splits(image_network(model), [name])
    assert error.value.hint.startswith(f"did you mean {meant}? ")


def test_training_costs_count_the_way_back(tiny: Network) -> None:
    forward = costs(tiny)
    (whole,) = stage_costs(tiny, [], micro_size=5)
    assert whole.parameters == sum(cost.parameters for cost in forward.values())
    assert whole.activations == 5 * sum(cost.activations for cost in forward.values())
    # No gradient reaches the pixels; conv needs that of its weights, layers without weights that of their inputs.
    passes = {
        "image": 1,
        "normalise": 1,
        "pad": 1,
        "conv": 2,
        "inside": 3,
        "sum": 2,
        "out": 2,
        "flatten": 2,
        "dense": 3,
    }
    assert whole.flops == 5 * sum(forward[name].flops * times for name, times in passes.items())


def _best(network: Network, stages: int, by: str) -> float:
    unfinished = {layer.inputs[0] for layer in network.layers if layer.kind == "activation"}
    points = split_points(network)
    points = [name for name, end in zip(points, stage_ends(network, points)) if end not in unfinished]
    return min(
        max(getattr(cost, by) for cost in stage_costs(network, splits, 2))
        for splits in itertools.combinations(points, stages - 1)
    )


@pytest.mark.parametrize("by", ["flops", "parameters", "activations"])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["cifar_resnet8", "cifar_resnet20", "cifar_cnn", "mnist_cnn", "cosmoflow"])
def test_no_division_is_better_than_the_suggested_one(name: str, stages: int, by: str) -> None:
    network = network_of(CosmoflowSettings()) if name == "cosmoflow" else image_network(name)
    suggestion = suggest_splits(network, stages, 2, by)
    check_splits(network, suggestion.splits)
    assert len(suggestion.splits) == stages - 1
    assert suggestion.costs == stage_costs(network, suggestion.splits, 2)
    assert max(getattr(cost, by) for cost in suggestion.costs) == _best(network, stages, by)
    assert suggestion.balance == balance(suggestion.costs, by)
    assert 0 < suggestion.balance <= 1


def test_suggested_stages_are_whole_blocks() -> None:
    network = image_network("resnet50", side=224)
    splits = suggest_splits(network, 4, 16).splits
    assert splits == ("conv3_block2_1_conv", "conv4_block2_1_conv", "conv4_block6_1_conv")
    assert stage_ends(network, splits) == ("conv3_block1_out", "conv4_block1_out", "conv4_block5_out")


def test_every_point_is_used_when_so_many_stages_are_asked_for(tiny: Network) -> None:
    assert suggest_splits(tiny, 5, 1).splits == split_points(tiny)
    with pytest.raises(SettingsError, match="tiny can be divided into 5 pipeline stages, and 6 are asked for"):
        suggest_splits(tiny, 6, 1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((128, 4, "Grouped"), 128 / 131),
        ((4, 4, "Interleaved"), 4 / 7),
        ((1, 1, "Grouped"), 1.0),
        ((9, 4, "Sequential"), 0.25),
        ((9, 4, "Sequential", 1), 1.0),
        ((9, 7, "Sequential", 2), 0.5),
    ],
)
def test_efficiency(arguments: Tuple[int, int, str], expected: float) -> None:
    assert efficiency(*arguments) == pytest.approx(expected)
