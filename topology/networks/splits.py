"""Where a network can be divided into pipeline stages, and where it is divided best."""

from __future__ import annotations

import itertools
import math
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ipulaunch.configs.errors import SettingsError, near_miss
from ipulaunch.topology.networks.network import Cost, Layer, Network, costs, shapes

_WITH_WEIGHTS = ("conv", "dense", "batch_norm", "group_norm")
_Cuts = Tuple[float, int, Tuple[int, ...]]  # the sum of squares, the sum of widths, the cuts


class Suggestion(NamedTuple):
    """A division into stages: the first layer of each but the first, and what the stages cost."""

    splits: Tuple[str, ...]
    costs: Tuple[Cost, ...]  # of a micro-batch, forward and backward
    balance: float  # the mean stage as a part of the largest; 1.0 is even


def split_points(network: Network) -> Tuple[str, ...]:
    """The layers that can begin a stage: weights come before them, and they and all later layers read one output.

    A split names the layer that begins the next stage, as in Graphcore's application, whose presets give them.
    """
    crossing = _crossing(network)
    learnt_before = itertools.accumulate((layer.kind in _WITH_WEIGHTS for layer in network.layers), max)
    return tuple(
        layer.name
        for layer, has_weights in zip(network.layers[1:], learnt_before)
        if has_weights and len(crossing[layer.name]) == 1
    )


def check_splits(network: Network, splits: Sequence[str]) -> None:
    """Refuse splits that do not divide the network into consecutive stages."""
    if not splits:
        return
    points, crossing = split_points(network), _crossing(network)
    legal = f"legal splits: {_folded(points)}"
    for name in splits:
        if name not in crossing:
            hint = " ".join([*_meant(name, points), legal])
            raise SettingsError(f"{network.name} has no layer {name} to split before", hint=hint)
        if name not in points:
            raise SettingsError(f"{network.name} cannot be split before {name}: {_reason(crossing[name])}", hint=legal)
        if splits.count(name) > 1:
            raise SettingsError(f"the split {name} is given {splits.count(name)} times", hint="give it once")
    for first, second in zip(splits, splits[1:]):
        if points.index(first) > points.index(second):
            ordered = ", ".join(sorted(splits, key=points.index))
            raise SettingsError(
                f"the split {second} comes after {first}, and {network.name} has it before", hint=f"use {ordered}"
            )


def stages_of(network: Network, splits: Sequence[str]) -> Tuple[Tuple[Layer, ...], ...]:
    """The layers of each stage."""
    check_splits(network, splits)
    order = [layer.name for layer in network.layers]
    edges = [0, *(order.index(name) for name in splits), len(order)]
    return tuple(network.layers[start:end] for start, end in zip(edges, edges[1:]))


def stage_ends(network: Network, splits: Sequence[str]) -> Tuple[str, ...]:
    """The last layer of each stage but the last: the next stage reads its output."""
    return tuple(stage[-1].name for stage in stages_of(network, splits)[:-1])


def stage_costs(network: Network, splits: Sequence[str], micro_size: int) -> Tuple[Cost, ...]:
    """What each stage costs in training, for a micro-batch."""
    layers = _training_costs(network, micro_size)
    return tuple(_total([layers[layer.name] for layer in stage]) for stage in stages_of(network, splits))


def suggest_splits(network: Network, stages: int, micro_size: int, by: str = "flops") -> Suggestion:
    """The splits whose largest stage costs least; among those, the most even ones; then, the least data across borders.

    `by` is the field of Cost to compare: flops (forward and backward), parameters or activations.
    """
    points = cuts_for(network, stages)
    pieces = [getattr(cost, by) for cost in stage_costs(network, points, micro_size)]
    found = shapes(network)
    widths = [math.prod(found[name]) for name in stage_ends(network, points)]
    splits = tuple(points[at] for at in _most_even(pieces, widths, stages, _least_largest(pieces, stages)))
    result = stage_costs(network, splits, micro_size)
    return Suggestion(splits, result, balance(result, by))


def cuts_for(network: Network, stages: int) -> Tuple[str, ...]:
    """The points to choose from for so many stages; refuses more stages than there can be."""
    points = split_points(network)
    if stages > len(points) + 1:
        raise SettingsError(
            f"{network.name} can be divided into {len(points) + 1} pipeline stages, and {stages} are asked for",
            hint=f"use {len(points) + 1} stages or fewer",
        )
    # A stage keeps its inputs for the backward pass: two after an activation that two layers read, one before it.
    finished = _finished(network, points)
    return finished if stages <= len(finished) + 1 else points


def balance(stages: Sequence[Cost], by: str = "flops") -> float:
    """The mean stage's cost as a fraction of the largest's."""
    sizes: List[int] = [getattr(cost, by) for cost in stages]
    return sum(sizes) / len(sizes) / max(sizes)


def efficiency(accumulation: int, stages: int, schedule: str, devices: Optional[int] = None) -> float:
    """The fraction of the time in which an IPU works, with stages of equal cost on `devices` IPUs (default: one each).

    A pipeline fills and drains for stages - 1 of the accumulation + stages - 1 steps of an update; a Sequential one
    moves a single micro-batch through all stages before the next, so only one of its IPUs works at a time.
    """
    if schedule == "Sequential":
        return 1 / (devices or stages)
    return accumulation / (accumulation + stages - 1)


def _crossing(network: Network) -> Dict[str, Tuple[str, ...]]:
    """For each layer, the outputs of the layers before it that it and the layers behind it read."""
    last_read = {name: position for position, layer in enumerate(network.layers) for name in layer.inputs}
    found: Dict[str, Tuple[str, ...]] = {}
    alive: List[str] = []
    for position, layer in enumerate(network.layers):
        alive = [name for name in alive if last_read.get(name, -1) >= position]
        found[layer.name] = tuple(alive)
        alive.append(layer.name)
    return found


def _meant(name: str, points: Sequence[str]) -> List[str]:
    """The point that the user most likely meant, if any is near; one with the same beginning is preferred."""
    shared = [_shared_beginning(name.lower(), point.lower()) for point in points]
    alike = [point for point, length in zip(points, shared) if length == max(shared)]
    guesses = (near_miss(name, some) for some in (alike, points))
    return [guess for guess in guesses if guess.startswith("did you mean")][:1]


def _shared_beginning(one: str, other: str) -> int:
    """How many letters two names share at their beginning."""
    return len(list(itertools.takewhile(lambda letters: letters[0] == letters[1], zip(one, other))))


def _reason(crossed: Sequence[str]) -> str:
    if len(crossed) > 1:
        return f"{len(crossed)} outputs cross there: {', '.join(crossed)}"
    return "the first stage would have no weights"


def _finished(network: Network, points: Sequence[str]) -> Tuple[str, ...]:
    """The points that do not separate an activation from its input."""
    unfinished = {layer.inputs[0] for layer in network.layers if layer.kind == "activation"}
    return tuple(name for name, end in zip(points, stage_ends(network, points)) if end not in unfinished)


def _folded(points: Sequence[str]) -> str:
    """The points in few words, in the order of the network: conv2_block1..3_out stands for three."""
    groups: Dict[Tuple[str, str], List[str]] = {}
    for name in points:
        found = re.fullmatch(r"(.*block)(\d+)(.*)", name) or re.fullmatch(r"(.*?)(\d*)(\D*)", name)
        before, number, after = found.groups()  # type: ignore[union-attr]
        groups.setdefault((before, after), []).append(number)
    return ", ".join(
        f"{before}{numbers[0]}{'..' + numbers[-1] if len(numbers) > 1 else ''}{after}"
        for (before, after), numbers in groups.items()
    )


def _training_costs(network: Network, micro_size: int) -> Dict[str, Cost]:
    """The layers' costs with the way back: once more for gradients of weights, once more for those of inputs.

    Nothing before the first weights needs a gradient.
    """
    learnt: Set[str] = set()
    result = {}
    for layer, cost in zip(network.layers, costs(network).values()):
        passes = 1 + bool(cost.parameters) + any(name in learnt for name in layer.inputs)
        if passes > 1:
            learnt.add(layer.name)
        result[layer.name] = Cost(cost.parameters, cost.activations * micro_size, cost.flops * micro_size * passes)
    return result


def _total(parts: Sequence[Cost]) -> Cost:
    return Cost(*(sum(column) for column in zip(*parts)))


def _least_largest(pieces: Sequence[int], stages: int) -> int:
    """The smallest possible cost of the largest stage, of pieces that stay in order."""
    sums = [0, *itertools.accumulate(pieces)]
    best = sums[1:]  # of the first pieces, in one stage
    for _ in range(1, stages):
        best = [
            min((max(best[cut - 1], sums[end] - sums[cut]) for cut in range(1, end)), default=sums[-1])
            for end in range(1, len(sums))
        ]
    return best[-1]


def _most_even(pieces: Sequence[int], widths: Sequence[int], stages: int, largest: int) -> Tuple[int, ...]:
    """The cuts that leave no stage above the largest cost, with the least sum of squares, and then of widths."""
    sums = [0, *itertools.accumulate(pieces)]
    none: _Cuts = (math.inf, 0, ())
    best: List[_Cuts] = [(total**2, 0, ()) if total <= largest else none for total in sums[1:]]
    for _ in range(1, stages):
        best = [
            min(
                (
                    (squares + (sums[end] - sums[cut]) ** 2, width + widths[cut - 1], (*cuts, cut - 1))
                    for cut, (squares, width, cuts) in enumerate(best[: end - 1], start=1)
                    if sums[end] - sums[cut] <= largest
                ),
                default=none,
            )
            for end in range(1, len(sums))
        ]
    return best[-1][2]
