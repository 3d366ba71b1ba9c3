"""Pipelines: the stages of functional models as the SDK's Keras checks them, and the operation that runs them."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

_PIPELINE = "tensorflow.python.ipu.ops.pipelining_ops.pipeline"
# What Keras gives to the pipeline itself, and what it has no use for.
_BY_KERAS = ("gradient_accumulation_count", "computational_stages", "repeat_count", "inputs", "infeed_queue")
_BY_KERAS += ("outfeed_queue", "optimizer_function", "outfeed_loss", "outfeed_mask", "batch_serialization_iterations")
_BY_KERAS += ("experimental_normalize_gradients",)
# The recomputation that a schedule cannot do.
_NOT_RECOMPUTED = {
    "Sequential": "RecomputeThenBackpropagate",
    "Interleaved": "RecomputeAndBackpropagateInterleaved",
}


class LayerAssignment:
    """The stage of one call of a layer."""

    def __init__(self, layer: Any, node_index: int, pipeline_stage: Optional[int] = None) -> None:
        self.layer, self.node_index, self.pipeline_stage = layer, node_index, pipeline_stage

    @property
    def shown(self) -> str:
        return f"{self.layer.name}: {self.pipeline_stage}"


class StageOptions:
    """The Poplar options of one stage."""

    def __init__(self, table: Any, convolutions: Any, matmuls: Any, slices: Any) -> None:
        self.given = {"convolutions": convolutions, "matmuls": matmuls, "slices": slices}
        for kind, options in self.given.items():
            check_poplar_options(table, f"{kind}.poplar_options", {} if options is None else options)

    @property
    def shown(self) -> Dict[str, Any]:
        return {kind: options for kind, options in self.given.items() if options}


def check_poplar_options(table: Any, name: str, options: Any) -> None:
    """Poplar takes words, under keys that it knows."""
    if type(options) is not dict:
        raise TypeError(f"{name} is a dict, not {type(options).__name__}")
    for key, value in options.items():
        if key not in table.poplar_options.get(name, ()):
            raise ValueError(f"{name} has no option {key}")
        if type(value) is not str:
            raise TypeError(f"{name}[{key!r}] is a str, not {type(value).__name__}")
        taken = table.poplar_options[name][key]
        if not (_is_share(value) if taken == "share" else value in taken):
            raise ValueError(f"{name}[{key!r}] is {value!r}, expected {taken}")


def _is_share(text: str) -> bool:
    """Whether a text is a number from 0 to 1."""
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def check_switches(keywords: Mapping[str, Any]) -> None:
    """Whether something leaves the IPU is yes, no, or left to the SDK."""
    for name, value in keywords.items():
        if name.startswith("offload_") and not isinstance(value, (type(None), bool)):
            raise TypeError(f"{name} is a bool, not {type(value).__name__}")


def check_sharding(keywords: Mapping[str, Any]) -> None:
    """A state that replicas share must not be told to stay on the IPU; left to the SDK, it may."""
    stays = keywords.get("offload_weight_update_variables") is False
    if keywords.get("replicated_optimizer_state_sharding") and stays:
        raise ValueError("replicated_optimizer_state_sharding needs offload_weight_update_variables")


def nodes_in_order(model: Any) -> List[Any]:
    """The calls of layers in the order in which they run, input layers apart."""
    depths = sorted(model._nodes_by_depth, reverse=True)
    return [node for depth in depths for node in model._nodes_by_depth[depth] if not node.is_input]


def unassigned(model: Any) -> List[LayerAssignment]:
    return [LayerAssignment(node.layer, node.layer._inbound_nodes.index(node)) for node in nodes_in_order(model)]


def check_assignment(sdk: Any, model: Any, assignment: Any) -> None:
    """Every call of a layer has one stage, and none reads from a later one; before SDK 3.1, no stage is empty."""
    nodes = nodes_in_order(model)
    if not isinstance(assignment, list):
        raise ValueError("a pipeline stage assignment is a list")
    if len(assignment) != len(nodes):
        raise ValueError(f"{len(assignment)} assignments for the {len(nodes)} calls of layers in {model.name}")
    if not all(isinstance(item, LayerAssignment) for item in assignment):
        raise ValueError("a pipeline stage assignment consists of FunctionalLayerPipelineStageAssignment")
    is_ordered = sdk.table.sdk >= "3.1"
    stage_of: Dict[int, int] = {}
    for item, node in zip(assignment, nodes):
        if is_ordered and item.layer is not node.layer:
            raise ValueError(f"{item.layer.name} is assigned where {node.layer.name} comes next")
        if item.pipeline_stage is None:
            raise ValueError(f"{item.layer.name} has not been assigned to a pipeline stage")
        assigned = node if is_ordered else item.layer._inbound_nodes[item.node_index]
        if id(assigned) in stage_of:
            raise ValueError(f"{item.layer.name} has been assigned twice")
        stage_of[id(assigned)] = item.pipeline_stage
    if not is_ordered and missing_stages(assignment):
        raise ValueError(f"there is no layer in pipeline stages {missing_stages(assignment)}")
    computed: Set[Any] = {tensor for node in _input_nodes(model) for tensor in node.flat_output_ids}
    for stage in range(max(stage_of.values()) + 1):
        for node in nodes:
            if stage_of[id(node)] == stage:
                if not computed.issuperset(node.flat_input_ids):
                    raise ValueError(f"{node.layer.name} in pipeline stage {stage} reads from a later stage")
                computed.update(node.flat_output_ids)


def call_again(model: Any) -> None:
    """Call every layer once more, as the SDK does for the nodes that its stages run."""
    for node in nodes_in_order(model):
        node.layer(*node.call_args, **node.call_kwargs)


def missing_stages(assignment: Sequence[LayerAssignment]) -> List[int]:
    """The stages before the last that have no layer."""
    found = {item.pipeline_stage or 0 for item in assignment}
    return sorted(set(range(max(found) + 1)) - found)


def check_shared(assignment: Sequence[LayerAssignment], mapping: Optional[Sequence[int]]) -> None:
    """The compiler wants stages that use the same variables on one IPU."""
    from tensorflow import errors  # which sitecustomize must not load

    ipu_of: Dict[int, Any] = {}
    for item in assignment:
        layer, ipu = item.layer, mapping[item.pipeline_stage or 0] if mapping else item.pipeline_stage
        if layer.weights and ipu_of.setdefault(id(layer), ipu) != ipu:
            raise errors.UnimplementedError(None, None, f"stages on several IPUs use the variables of {layer.name}")


def _input_nodes(model: Any) -> List[Any]:
    return [node for nodes in model._nodes_by_depth.values() for node in nodes if node.is_input]


def check_keras_options(mapping: Any, keywords: Mapping[str, Any]) -> None:
    """What set_pipelining_options() itself refuses; the rest goes to the pipeline as it is."""
    if mapping is not None and not (isinstance(mapping, list) and all(isinstance(ipu, int) for ipu in mapping)):
        raise ValueError("device_mapping is a list of whole numbers")
    for name in keywords:
        if name in _BY_KERAS:
            raise ValueError(f"set_pipelining_options() does not take {name}")
    check_switches(keywords)


class Pipeline:
    """A call of pipelining_ops.pipeline()."""

    def __init__(
        self, sdk: Any, mapping: Any, keywords: Mapping[str, Any], given: Sequence[str] = ("reduction_method",)
    ) -> None:
        self.sdk, self.mapping, self.keywords = sdk, mapping, keywords
        self.given = given  # what who calls it gives by itself

    @property
    def schedule(self) -> str:
        given = self.keywords.get("pipeline_schedule")
        return "Grouped" if given is None else str(given.name)

    def ipus(self, stages: int) -> int:
        """The IPUs of a replica: a power of two."""
        needed = max(self.mapping) + 1 if self.mapping else stages
        return 1 << (needed - 1).bit_length()

    def check(self, stages: int, count: Any, is_training: bool, io_tiles: int) -> None:
        """What the operation refuses when it is made, and then what the compiler refuses."""
        self._check_names()
        if count is None or (isinstance(count, int) and not 0 <= count < 2**31):
            raise ValueError(f"gradient_accumulation_count is {count!r}")
        if self.keywords.get("continuous_weight_updates"):
            raise NotImplementedError("continuous weight updates are not supported")
        self._check_kinds()
        if stages < 2:
            raise ValueError("a pipeline requires at least two stages")
        mapping = list(range(stages)) if self.mapping is None else self.mapping
        if not isinstance(mapping, (list, tuple)):
            raise TypeError("device_mapping is a list or a tuple")
        if len(mapping) != stages:
            raise ValueError(f"device_mapping has {len(mapping)} entries for {stages} stages")
        if self.schedule == "Interleaved" and is_training and len(set(mapping)) != stages:
            raise NotImplementedError("the Interleaved schedule has no several stages on a device in training")
        self._check_stage_options("forward_propagation_stages_poplar_options", stages)
        if is_training:
            self._check_stage_options("backward_propagation_stages_poplar_options", stages)
            if not isinstance(self.keywords.get("weight_update_poplar_options"), (StageOptions, type(None))):
                raise TypeError("weight_update_poplar_options is a PipelineStageOptions")
            check_sharding(self.keywords)
        self._check_compiled(mapping, count, is_training, io_tiles)

    def _check_names(self) -> None:
        known = self.sdk.table.functions[_PIPELINE].parameters
        for name in self.keywords:
            if name not in known or name in self.given:
                raise TypeError(f"pipeline() got an unexpected keyword argument {name!r}, or has it twice")

    def _check_kinds(self) -> None:
        enums = "tensorflow.python.ipu.ops.pipelining_ops."
        for name, kind in (("pipeline_schedule", "PipelineSchedule"), ("recomputation_mode", "RecomputationMode")):
            if not isinstance(self.keywords.get(name), (type(None), self.sdk.enums[enums + kind])):
                raise TypeError(f"{name} is a {kind}, not {self.keywords[name]!r}")

    def _check_stage_options(self, name: str, stages: int) -> None:
        options = self.keywords.get(name)
        if options is None:
            return
        if not isinstance(options, (list, tuple)):
            raise TypeError(f"{name} is a list or a tuple")
        if len(options) != stages:
            raise ValueError(f"{name} has {len(options)} entries for {stages} stages")
        if not all(isinstance(item, StageOptions) for item in options):
            raise TypeError(f"{name} consists of PipelineStageOptions")

    def _check_compiled(self, mapping: Sequence[int], count: int, is_training: bool, io_tiles: int) -> None:
        from tensorflow import errors  # which sitecustomize must not load

        recomputation = self.keywords.get("recomputation_mode")
        if recomputation is not None and _NOT_RECOMPUTED.get(self.schedule) == recomputation.name:
            raise errors.UnimplementedError(None, None, f"{self.schedule} does not support {recomputation.name}")
        run = [*mapping, *reversed(mapping)] if is_training else list(mapping)
        overlap = overlap_length(self.schedule, run)
        if self.schedule == "Grouped" and io_tiles:
            if count < overlap + 2:
                raise errors.FailedPreconditionError(
                    None, None, f"the iterations of the pipeline must be at least {overlap + 2}, but are {count}"
                )
            # The SDK runs the pipeline without the others, and does not say so.
            if count != overlap + 2 and count % overlap:
                raise RuntimeError(f"of {count} micro-batches, {count % overlap} would not run")
        elif count % overlap or count < overlap:
            raise errors.FailedPreconditionError(
                None, None, f"the iterations of the pipeline must be a multiple of {overlap}, but are {count}"
            )


def check_scaled_gradients(gradients: Sequence[Any]) -> None:
    """Means of gradients take sums apart, scale their parts, and add these up: all must have one shape."""
    for gradient in gradients:
        parts = _parts_of(gradient)
        if any(part.shape != parts[0].shape for part in parts):
            raise ValueError(f"the parts of a gradient have the shapes {', '.join(str(part.shape) for part in parts)}")


def _parts_of(tensor: Any) -> List[Any]:
    if tensor.op.type not in ("AddN", "Add", "AddV2", "Identity"):
        return [tensor]
    return [part for operand in tensor.op.inputs for part in _parts_of(operand)]


def overlap_length(schedule: str, ipus: Sequence[int]) -> int:
    """How many micro-batches are under way at once, where stages run on these IPUs, forward and then backward."""
    if schedule == "Grouped":
        return len(ipus)
    if schedule == "Sequential":
        return 1
    taken = [0]  # turns of the sequence that never need one IPU twice at a time
    for turn in range(1, len(ipus)):
        rotated = [*ipus[turn:], *ipus[:turn]]
        others = ([*ipus[other:], *ipus[:other]] for other in taken)
        if all(mine != theirs for other in others for mine, theirs in zip(rotated, other)):
            taken.append(turn)
    return len(taken)
