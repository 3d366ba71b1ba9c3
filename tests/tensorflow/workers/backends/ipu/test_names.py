"""The sources against the tables of every SDK: also what no test runs."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Set, Tuple

import pytest

from ipulaunch.workers.backends.ipu import backend as backend_module

Install = Callable[..., Any]

SOURCES = sorted(Path(inspect.getsourcefile(backend_module) or "").parent.glob("*.py"))
REDUCTION = "tensorflow.python.ipu.gradient_accumulation.GradientAccumulationReductionMethod"
CONFIG = "tensorflow.python.ipu.config.IPUConfig"
OPS = "tensorflow.python.ipu.ops"
STRATEGY = "PopDist"
OF_THE_SDK = ("popdist", "tensorflow.python", "keras.ipu")
TF_CONFIG = "Attribute(value=Name(id='tf'"  # tf.config, which is no IPUConfig
# What the fields of our own Sdk are of the SDK; those that differ from SDK to SDK have a signature here.
FIELDS = {
    "popdist": "popdist",
    "ipu": "tensorflow.python.ipu",
    "pipelining_ops": f"{OPS}.pipelining_ops",
    "image_ops": f"{OPS}.image_ops",
    "reduction_method": REDUCTION,
    "popdist_strategy": f"{STRATEGY}.PopDistStrategy",
}
OF_OUR_OWN = {"join": inspect.signature(lambda: None), "sum": inspect.signature(lambda tensor: None)}
# Where the SDK's Keras and its Estimators hand keywords on to.
HANDED_ON = {
    "set_pipelining_options": f"{OPS}.pipelining_ops.pipeline",
    "set_gradient_accumulation_options": (
        "tensorflow.python.ipu.optimizers.gradient_accumulation_optimizer.GradientAccumulationOptimizerV2"
    ),
    "set_infeed_queue_options": "tensorflow.python.ipu.ipu_infeed_queue.IPUInfeedQueue",
    "set_outfeed_queue_options": "tensorflow.python.ipu.ipu_outfeed_queue.IPUOutfeedQueue",
    "IPUPipelineEstimatorSpec": f"{OPS}.pipelining_ops.pipeline",
}


class Use(NamedTuple):
    """A name of the SDK in a source, and what it is called with, if it is called."""

    name: str
    is_set: bool = False
    is_called: bool = False
    positional: int = 0
    keywords: Tuple[str, ...] = ()
    is_partial: bool = False  # *words or **words may hold more
    is_optional: bool = False  # an SDK may lack it

    def __str__(self) -> str:
        words = [*("..." for _ in range(self.positional)), *(f"{keyword}=..." for keyword in self.keywords)]
        return f"{self.name}({', '.join(words)})" if self.is_called else self.name


class Uses(ast.NodeVisitor):
    """Every name of the SDK in a source. Assignments are followed; what a call returns is not, but for IPUConfig.

    `config` and `model` are what they are called, wherever they come from: `self.config`, `training.model`.
    """

    def __init__(self) -> None:
        self.found: Set[Use] = set()
        self.attributes = {"sdk": "Sdk", "config": "IPUConfig", "model": "Model"}  # of what is none of the SDK's
        self.names = {**FIELDS, **self.attributes}
        self.optional = 0

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.startswith(OF_THE_SDK):
                self._add(alias.name)
                first = alias.name.partition(".")[0]
                self.names[alias.asname or first] = alias.name if alias.asname else first

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            if full.startswith(OF_THE_SDK):
                self._add(full)
                self.names[alias.asname or alias.name] = full

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outside, self.names = self.names, dict(self.names)
        self._optional_if(node.name in ("_import_sdk", "load_als"), node)  # looks for what this SDK has
        self.names = outside

    def visit_If(self, node: ast.If) -> None:
        self._optional_if("hasattr" in ast.dump(node.test), node)

    def _optional_if(self, condition: bool, node: ast.AST) -> None:
        self.optional += condition
        self.generic_visit(node)
        self.optional -= condition

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for one, value in zip(target.elts, node.value.elts):
                    self._bind(one, value)
            else:
                self._bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._bind(node.target, node.value)

    def _bind(self, target: ast.AST, value: ast.AST) -> None:
        meant = self._full(value)
        if isinstance(value, ast.Call):
            meant = "IPUConfig" if self._full(value.func) == CONFIG else ""
        if meant and isinstance(target, ast.Name):
            self.names[target.id] = meant
        elif meant and isinstance(target, ast.Attribute) and not self._full(target):
            self.attributes[target.attr] = meant

    def visit_Call(self, node: ast.Call) -> None:
        name = self._full(node.func)
        if "." in name:
            words = [keyword.arg for keyword in node.keywords]
            starred = [word for word in node.args if isinstance(word, ast.Starred)]
            self._add(
                name,
                is_called=True,
                positional=len(node.args) - len(starred),
                keywords=tuple(sorted(word for word in words if word)),
                is_partial=bool(starred) or None in words,
            )
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._full(node)
        if "." in name:
            self._add(name, is_set=isinstance(node.ctx, ast.Store))
        else:
            self.generic_visit(node)

    def _add(self, name: str, **more: Any) -> None:
        self.found.add(Use(name, is_optional=self.optional > 0, **more))

    def _full(self, node: ast.AST) -> str:
        """The name in the SDK, or one of Sdk, IPUConfig and Model for the thing itself; nothing for what is not its."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "")
        if not isinstance(node, ast.Attribute) or ast.dump(node).startswith(TF_CONFIG):
            return ""
        of = self._full(node.value)
        if of == "Sdk":
            return FIELDS.get(node.attr, f"Sdk.{node.attr}")
        if of == "Model" and not (node.attr.startswith("set_") or "pipeline" in node.attr):
            return ""  # the rest is plain Keras
        return f"{of}.{node.attr}" if of else self.attributes.get(node.attr, "")


def is_in(table: Any, use: Use) -> bool:
    """Whether an SDK has this name, as what it is used for."""
    head, _, last = use.name.rpartition(".")
    if use.name.startswith("IPUConfig."):
        path = use.name[len("IPUConfig.") :]
        if use.is_set:
            return path in table.config
        is_there = path in table.config or any(name.startswith(path + ".") for name in table.config)
        return takes(table.methods[CONFIG].get(path), use) or (is_there and not use.is_called)
    if head == "Model":
        return takes(table.model_methods.get(last), use, table)
    if head == STRATEGY:  # two places
        found = [signature for name, signature in table.classes.items() if name.endswith(f".{last}")]
        return any(takes(signature, use) for signature in found)
    if head == "Sdk":
        return last in OF_OUR_OWN and takes(OF_OUR_OWN[last], use)
    if head in table.enums:
        return last in table.enums[head] and not use.is_called
    if use.name in table.functions or use.name in table.classes:
        return takes(table.signature_of(use.name), use, table)
    return not use.is_called and (use.name in table.names or use.name in table.modules)


def takes(signature: Optional[inspect.Signature], use: Use, table: Any = None) -> bool:
    """Whether something can be called so, if it is."""
    if signature is None or not use.is_called:
        return signature is not None
    last = use.name.rpartition(".")[2]
    own = [word for word in use.keywords if word in signature.parameters]
    handed = set(use.keywords) - set(own)
    if last in HANDED_ON:
        if not handed <= set(table.signature_of(HANDED_ON[last]).parameters):
            return False
    else:
        own = list(use.keywords)
    bind = signature.bind_partial if use.is_partial else signature.bind
    try:
        bind(*range(use.positional), **dict.fromkeys(own))
    except TypeError:
        return False
    return True


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
    } <= {use.name for use in found}
    tables = [table.Table(sdk) for sdk in table.SDKS]
    for use in sorted(found):
        having = [one.sdk for one in tables if is_in(one, use)]
        expected = having if use.is_optional else list(table.SDKS)
        assert having and having == expected, f"{use} is in {having} only"


def imported(path: Path) -> Set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_only_one_source_imports_the_sdk() -> None:
    root = SOURCES[0].parents[3]
    rooms = ("configs", "topology", "launcher", "data_pipeline", "workers")
    sources = [path for room in rooms for path in (root / room).rglob("*.py")]
    sources = [path for path in sources if path.parent != root / "workers" / "programs" / "popdist"]  # is no SDK's
    assert len(sources) > 50
    roots = ("popdist", "tensorflow.python", "keras.ipu")
    assert [path.name for path in sources if any(name.startswith(roots) for name in imported(path))] == ["sdk.py"]


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
        "sdk.ipu.config.StochasticRoundingBehaviour.MAYBE",
        "self.config.nonsense = 1",
        "config.io_tiles = 1",
        "cfg = self.config; cfg.io_tiles.nope = 1",
        "cfg = sdk.ipu.config.IPUConfig(); cfg.nope = 1",
        "tiles, other = self.config.io_tiles, 1; tiles.nope = 1",
        "self.cfg = device.config; self.cfg.nope = 1",
        "self.model.set_pipelining_options(nope=1)",
        "training.model.set_outfeed_queue_options(depth=1)",
        "model.set_pipelining_options(1, [0], None, 'sum', 5)",
        "sdk.popdist_strategy(nope=1)",
        "sdk.popdist_strategy(1, 2, 3, 4, 5)",
        "sdk.join(1)",
        "sdk.nonsense()",
        "x = ipu.utils; x.reset_ipu_seed(nope=1)",
        "x: Any = sdk.ipu.utils; x.reset_ipu_seed(nope=1)",
        "sdk.ipu.utils.reset_ipu_seed()",
        "sdk.ipu.utils.reset_ipu_seed(1, 'a', 'b', True, 5)",
        "config.configure_ipu_system('cpu', 1)",
        "config.auto_select_ipus(1)",
        "sdk.popdist.tensorflow.set_ipu_config(config, 1, True, 4)",
        "import popdist.nonsense",
        "import popdist.nonsense as fine",
        "from popdist import nonsense",
        "from tensorflow.python.ipu.ops import nonsense",
        "from tensorflow.python.ipu import utils as x; x.nope()",
    ],
)
def test_a_name_that_no_sdk_has_is_found(text: str, standin: Install) -> None:
    table = pytest.importorskip("ipu_standin.table").Table("3.4")
    assert not all(is_in(table, use) for use in uses_in(text))


@pytest.mark.parametrize(
    "text",
    [
        "cfg = self.config; cfg.io_tiles.num_io_tiles = 1",
        "tf.config.list_physical_devices('CPU')",
        "self.model.fit(1, 2)",
        "model.set_pipelining_options(1, pipeline_schedule=None, **more)",
        "sdk.ipu.utils.reset_ipu_seed(*words)",
        "import popdist.tensorflow",
        "self.sdk.sum(1)",
    ],
)
def test_what_the_sdk_has_is_left_alone(text: str, standin: Install) -> None:
    table = pytest.importorskip("ipu_standin.table").Table("3.4")
    assert all(is_in(table, use) for use in uses_in(text))
