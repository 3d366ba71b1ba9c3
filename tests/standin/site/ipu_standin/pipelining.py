"""Pipeline stages of functional models: which layer is in which, checked as the SDK's Keras checks them."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Set

# What Keras gives to the pipeline itself, and what it has no use for.
_BY_KERAS = {"computational_stages", "repeat_count", "inputs", "infeed_queue", "outfeed_queue", "optimizer_function"}
_BY_KERAS |= {"gradient_accumulation_count", "reduction_method", "name"}
_NOT_WITH_KERAS = {"outfeed_loss", "outfeed_mask", "batch_serialization_iterations"}


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


def nodes_in_order(model: Any) -> List[Any]:
    """The calls of layers in the order in which they run, input layers apart."""
    depths = sorted(model._nodes_by_depth, reverse=True)
    return [node for depth in depths for node in model._nodes_by_depth[depth] if not node.is_input]


def unassigned(model: Any) -> List[LayerAssignment]:
    return [LayerAssignment(node.layer, node.layer._inbound_nodes.index(node)) for node in nodes_in_order(model)]


def check_assignment(model: Any, assignment: Any) -> None:
    """Every call of a layer has one stage, no stage is empty, and none reads from a later one."""
    nodes = nodes_in_order(model)
    if type(assignment) is not list or not all(isinstance(item, LayerAssignment) for item in assignment):
        raise ValueError("a pipeline stage assignment is a list of FunctionalLayerPipelineStageAssignment")
    if len(assignment) != len(nodes):
        raise ValueError(f"{len(assignment)} assignments for the {len(nodes)} calls of layers in {model.name}")
    stage_of: Dict[int, int] = {}
    for item in assignment:
        if type(item.pipeline_stage) is not int:
            raise ValueError(f"{item.layer.name} has not been assigned to a pipeline stage")
        if id(item.layer._inbound_nodes[item.node_index]) in stage_of:
            raise ValueError(f"{item.layer.name} has been assigned twice")
        stage_of[id(item.layer._inbound_nodes[item.node_index])] = item.pipeline_stage
    missing = set(range(max(stage_of.values()) + 1)) - set(stage_of.values())
    if missing:
        raise ValueError(f"there is no layer in pipeline stages {sorted(missing)}")
    computed: Set[Any] = {tensor for node in _input_nodes(model) for tensor in node.flat_output_ids}
    for stage in range(max(stage_of.values()) + 1):
        for node in nodes:
            if stage_of[id(node)] == stage:
                if not computed.issuperset(node.flat_input_ids):
                    raise ValueError(f"{node.layer.name} in pipeline stage {stage} reads from a later stage")
                computed.update(node.flat_output_ids)


def _input_nodes(model: Any) -> List[Any]:
    return [node for nodes in model._nodes_by_depth.values() for node in nodes if node.is_input]


class Pipeline:
    """What set_pipelining_options() was given."""

    def __init__(self, sdk: Any, mapping: Any, keywords: Mapping[str, Any]) -> None:
        known = sdk.table.functions["tensorflow.python.ipu.ops.pipelining_ops.pipeline"].parameters
        for name in keywords:
            if name in _BY_KERAS or name in _NOT_WITH_KERAS:
                raise ValueError(f"set_pipelining_options() does not take {name}")
            if name not in known:
                raise TypeError(f"pipeline() got an unexpected keyword argument {name!r}")
        if mapping is not None and not (type(mapping) is list and all(type(ipu) is int for ipu in mapping)):
            raise ValueError("device_mapping is a list of whole numbers")
        enums = "tensorflow.python.ipu.ops.pipelining_ops."
        for name, kind in (("pipeline_schedule", "PipelineSchedule"), ("recomputation_mode", "RecomputationMode")):
            if not isinstance(keywords.get(name), (type(None), sdk.enums[enums + kind])):
                raise TypeError(f"{name} is a {kind}, not {keywords[name]!r}")
        check_switches(keywords)
        self.mapping, self.keywords = mapping, keywords

    @property
    def schedule(self) -> str:
        given = self.keywords.get("pipeline_schedule")
        return "Grouped" if given is None else str(given.name)

    def ipus(self, stages: int) -> int:
        """The IPUs of a replica: a power of two."""
        needed = max(self.mapping) + 1 if self.mapping else stages
        return 1 << (needed - 1).bit_length()

    def check(self, stages: int) -> None:
        if self.mapping is not None and len(self.mapping) != stages:
            raise ValueError(f"device_mapping has {len(self.mapping)} entries for {stages} stages")
        if self.mapping is not None and set(self.mapping) != set(range(max(self.mapping) + 1)):
            raise ValueError(f"device_mapping {self.mapping} leaves an IPU out")
        for name in ("forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options"):
            options = self.keywords.get(name)
            if options is None:
                continue
            if len(options) != stages or not all(isinstance(item, StageOptions) for item in options):
                raise ValueError(f"{name} takes a PipelineStageOptions for each of the {stages} stages")

    def check_depth(self, stages: int, count: int, is_training: bool) -> None:
        """The compiler runs whole turns of the schedule."""
        turn = {"Grouped": 2 if is_training else 1, "Interleaved": 1, "Sequential": 0}[self.schedule] * stages or 1
        if count % turn:
            raise RuntimeError(f"the pipeline depth of the pipeline must be a multiple of {turn}, but it is {count}")
