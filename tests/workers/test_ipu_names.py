"""The sources against the tables of every SDK: also what no test runs."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any, Callable, List, Set, Tuple

import pytest

from ipulaunch.workers.backends import ipu as backend_module

Install = Callable[..., Any]
Use = Tuple[str, Tuple[str, ...], bool]

SOURCES = sorted(Path(inspect.getsourcefile(backend_module) or "").parent.glob("ipu*.py"))
REDUCTION = "tensorflow.python.ipu.gradient_accumulation.GradientAccumulationReductionMethod"
CONFIG = "tensorflow.python.ipu.config.IPUConfig"
OPS = "tensorflow.python.ipu.ops"
# Where the SDK's Keras and its Estimators hand keywords on to.
HANDED_ON = {
    "set_pipelining_options": f"{OPS}.pipelining_ops.pipeline",
    "set_gradient_accumulation_options": (
        "tensorflow.python.ipu.optimizers.gradient_accumulation_optimizer.GradientAccumulationOptimizerV2"
    ),
    "set_infeed_queue_options": "tensorflow.python.ipu.ipu_infeed_queue.IPUInfeedQueue",
    "IPUPipelineEstimatorSpec": f"{OPS}.pipelining_ops.pipeline",
}


class Uses(ast.NodeVisitor):
    """Every name of the SDK in a source, with the keywords it is called with and whether an SDK may lack it."""

    roots = {
        "popdist": "popdist",
        "ipu": "tensorflow.python.ipu",
        "config": "IPUConfig",
        "model": "Model",
        "pipelining_ops": f"{OPS}.pipelining_ops",
        "image_ops": f"{OPS}.image_ops",
        "types": "tensorflow.python.ipu.config.DeviceConnectionType",
        "roundings": "tensorflow.python.ipu.config.StochasticRoundingBehaviour",
        "reduction_method": REDUCTION,
    }

    def __init__(self) -> None:
        self.found: Set[Use] = set()
        self.names = dict(self.roots)
        self.optional = 0

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and node.module.startswith("tensorflow.python"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                self.names[alias.name] = full
                self.found.add((full, (), self.optional > 0))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._optional_if(node.name == "_import_sdk", node)  # looks for what this SDK has

    def visit_If(self, node: ast.If) -> None:
        self._optional_if("hasattr" in ast.dump(node.test), node)

    def _optional_if(self, condition: bool, node: ast.AST) -> None:
        self.optional += condition
        self.generic_visit(node)
        self.optional -= condition

    def visit_Call(self, node: ast.Call) -> None:
        name = self._full(node.func)
        if name:
            keywords = tuple(sorted(keyword.arg for keyword in node.keywords if keyword.arg))
            self.found.add((name, keywords, self.optional > 0))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._full(node)
        if name:
            self.found.add((name, (), self.optional > 0))
        else:
            self.generic_visit(node)

    def _full(self, node: ast.AST) -> str:
        parts: List[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if "sdk" in parts:  # self.sdk.popdist.…
            parts = parts[parts.index("sdk") + 1 :]
        elif isinstance(node, ast.Name) and node.id != "sdk":
            parts.insert(0, node.id)
        if len(parts) < 2 or parts[0] not in self.names:
            return ""
        root, first = self.names[parts[0]], parts[1]
        if root == "Model" and not (first.startswith("set_") or "pipeline" in first):  # the rest is plain Keras
            return ""
        return ".".join([root, *parts[1:]])


def is_in(table: Any, name: str, keywords: Tuple[str, ...]) -> bool:
    head, _, last = name.rpartition(".")
    if head == "Model":
        known = set(table.model_methods[last].parameters) if last in table.model_methods else None
        if known is not None and last in HANDED_ON:
            known |= set(table.signature_of(HANDED_ON[last]).parameters)
        return known is not None and set(keywords) <= known
    if name.startswith("IPUConfig."):
        path = name[len("IPUConfig.") :]
        return path in table.config or path in table.methods[CONFIG]
    if head in table.enums:
        return last in table.enums[head]
    if name in table.functions or name in table.classes:
        known = set(table.signature_of(name).parameters)
        if last in HANDED_ON:
            known |= set(table.signature_of(HANDED_ON[last]).parameters)
        return set(keywords) <= known
    return name in table.names or name in table.modules


def uses_in(*texts: str) -> Set[Use]:
    uses = Uses()
    for text in texts:
        uses.visit(ast.parse(text))
    return uses.found


def test_every_name_in_the_sources_is_in_the_tables(standin: Install) -> None:
    table = pytest.importorskip("ipu_standin.table")
    found = uses_in(*(path.read_text(encoding="utf-8") for path in SOURCES))
    assert {
        "popdist.isPopdistEnvSet",
        "popdist.init",
        "popdist.tensorflow.set_ipu_config",
        CONFIG,
        "tensorflow.python.ipu.config.DeviceConnectionType.PRE_COMPILE",
        "tensorflow.python.ipu.config.StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY",
        "tensorflow.python.ipu.horovod.allreduce",
        "tensorflow.python.ipu.distributed.host_collective_ops.all_reduce",
        "tensorflow.python.ipu.ipu_strategy.IPUStrategy",
        "tensorflow.python.ipu.utils.reset_ipu_seed",
        "IPUConfig.auto_select_ipus",
        "IPUConfig.norms.experimental.distributed_batch_norm_replica_group_size",
        "IPUConfig.configure_ipu_system",
        "Model.set_gradient_accumulation_options",
        "Model.set_pipelining_options",
        "Model.get_pipeline_stage_assignment",
        f"{OPS}.pipelining_ops.PipelineSchedule.Interleaved",
        f"{OPS}.pipelining_ops.PipelineStageOptions",
        f"{OPS}.image_ops.normalise_image",
        f"{REDUCTION}.RUNNING_MEAN",
        "tensorflow.python.ipu.ipu_estimator.IPUEstimator",
        "tensorflow.python.ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec",
        "tensorflow.python.ipu.optimizers.cross_replica_optimizer.CrossReplicaOptimizer",
    } <= {name for name, _, _ in found}
    tables = [table.Table(sdk) for sdk in table.SDKS]
    for name, keywords, is_optional in sorted(found):
        having = [one.sdk for one in tables if is_in(one, name, keywords)]
        expected = having if is_optional else list(table.SDKS)
        assert having and having == expected, f"{name}({', '.join(keywords)}) is in {having} only"


def imported(path: Path) -> Set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_only_one_source_imports_the_sdk() -> None:
    root = SOURCES[0].parents[2]
    rooms = ("configs", "topology", "launcher", "data_pipeline", "workers")
    sources = [path for room in rooms for path in (root / room).rglob("*.py")]
    assert len(sources) > 50
    roots = ("popdist", "tensorflow.python", "keras.ipu")
    assert [path.name for path in sources if any(name.startswith(roots) for name in imported(path))] == ["ipu_sdk.py"]


@pytest.mark.parametrize(
    "text",
    [
        "ipu.config.IPUConfigs()",
        "config.norms.stable = True",
        "config.io_tiles.num_io_tile = 1",
        "model.set_pipelining_options(schedule=1)",
        "model.set_pipeline_stages([])",
        "self.sdk.ipu.utils.reset_ipu_seed(1, identical=True)",
        "sdk.pipelining_ops.PipelineSchedule.Alternating",
        "sdk.popdist.numInstances()",
        "ipu.config.StochasticRoundingBehaviour.MAYBE",
    ],
)
def test_a_name_that_no_sdk_has_is_found(text: str, standin: Install) -> None:
    table = pytest.importorskip("ipu_standin.table").Table("3.4")
    assert not all(is_in(table, name, keywords) for name, keywords, _ in uses_in(text))
