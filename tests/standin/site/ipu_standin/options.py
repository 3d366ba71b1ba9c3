"""What has been set on one model, through the methods that the SDK adds to Keras models."""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List, Mapping, Optional

from ipu_standin import pipelining
from ipu_standin.sdk import Sdk

_ACCUMULATION = "tensorflow.python.ipu.gradient_accumulation.GradientAccumulationReductionMethod"
_ACCUMULATOR = "tensorflow.python.ipu.optimizers.gradient_accumulation_optimizer.GradientAccumulationOptimizerV2"


class Options:
    """The state of one model."""

    def __init__(self) -> None:
        self.accumulation: Optional[int] = None
        self.accumulation_method = "SUM"
        self.accumulator: Mapping[str, Any] = {}  # what the accumulating optimizer is given
        self.metric_method = "NONE"
        self.steps_per_execution = 1
        self.is_compiled = False
        self.assignment: List[pipelining.LayerAssignment] = []
        self.pipeline: Optional[pipelining.Pipeline] = None
        self.pipeline_accumulation: Optional[int] = None
        self.scales_each = False  # micro-batch, rather than each update, with a loss scale that follows gradients
        self.train_step: Any = None
        self.test_step: Any = None
        self.predict_step: Any = None

    @property
    def stages(self) -> int:
        """Pipeline stages; 0 for a model that is not divided."""
        return max((item.pipeline_stage or 0 for item in self.assignment), default=-1) + 1

    @property
    def ipus_per_replica(self) -> int:
        if not self.stages:
            return 1
        return self.pipeline.ipus(self.stages) if self.pipeline else 1 << (self.stages - 1).bit_length()

    @property
    def steps_per_update(self) -> int:
        if not self.stages:
            return self.accumulation or 1
        if self.pipeline_accumulation is None:
            raise ValueError("a pipelined model is trained after set_pipelining_options() with its accumulation only")
        return self.pipeline_accumulation

    def check_accumulation(self, steps_per_execution: int) -> None:
        """What the SDK demands of the executions of a training, before it looks at the model."""
        if steps_per_execution % self.steps_per_update:
            raise RuntimeError(
                f"steps_per_execution {steps_per_execution} is not divisible by"
                f" gradient_accumulation_steps_per_replica {self.steps_per_update}"
            )

    def check_run(self, sdk: Sdk, steps_per_execution: int, is_training: bool) -> None:
        """What the SDK demands of a pipeline when it makes a device call."""
        if self.stages:
            missing = pipelining.missing_stages(self.assignment)
            if missing:
                raise RuntimeError(f"there is no layer in pipeline stages {missing}")
            pipeline = self.pipeline or pipelining.Pipeline(sdk, None, {})
            count = self.steps_per_update if is_training else steps_per_execution
            pipeline.check(self.stages, count, is_training, sdk.io_tiles)
            pipelining.check_shared(self.assignment, pipeline.mapping)


def setters(sdk: Sdk, model: Any, options: Options) -> Dict[str, Callable[..., Any]]:
    """What the SDK's methods do to a model's options."""

    def before_compile(what: str) -> None:
        # The SDK would throw away what was compiled and compile again.
        if options.is_compiled:
            raise RuntimeError(f"{what}() after compile()")

    def accumulate(steps: Any, method: Any, use_v2: bool = False, **more: Any) -> None:
        pipelining.check_switches(more)
        if {"opt", "num_mini_batches", "experimental_normalize_gradients"} & set(more):
            raise ValueError(f"set_gradient_accumulation_options() does not take {sorted(more)}")
        if set(more) - set(sdk.table.classes[_ACCUMULATOR].parameters):
            raise TypeError(f"options of the accumulating optimizer: {sorted(more)}")
        options.accumulation, options.accumulator = _positive(steps), more
        options.accumulation_method = _member(method, sdk.enums[_ACCUMULATION])

    def divide(steps: Any, mapping: Any, accumulate_outfeed: Any, method: Any, **more: Any) -> None:
        before_compile("set_pipelining_options")
        if accumulate_outfeed:
            raise NotImplementedError("the stand-in accumulates no metrics of a pipeline")
        options.accumulation_method = _member(method, sdk.enums[_ACCUMULATION])
        options.pipeline_accumulation = None if steps is None else _positive(steps)
        pipelining.check_keras_options(mapping, more)
        options.pipeline = pipelining.Pipeline(sdk, mapping, more)

    def assign(assignment: Any) -> None:
        before_compile("set_pipeline_stage_assignment")
        pipelining.check_assignment(sdk, model, assignment)
        if sdk.table.sdk >= "3.1":
            pipelining.call_again(model)
        options.assignment = assignment

    def replicate(method: Any) -> None:
        options.metric_method = _member(method, sdk.enums["keras.ipu.ReplicatedMetricReductionMethod"])

    def feed_in(**more: Any) -> None:
        known = set(sdk.table.classes["tensorflow.python.ipu.ipu_infeed_queue.IPUInfeedQueue"].parameters)
        if {"dataset", "infeed_spec", "element_spec"} & set(more):
            raise ValueError("Keras gives the data of an infeed itself")
        if set(more) - known:
            raise TypeError(f"options of the infeed: {sorted(more)}")
        check_depth("prefetch_depth", more.get("prefetch_depth"))

    def feed_out(**more: Any) -> None:
        known = set(sdk.table.classes["tensorflow.python.ipu.ipu_outfeed_queue.IPUOutfeedQueue"].parameters)
        if set(more) - known:
            raise TypeError(f"options of the outfeed: {sorted(more)}")
        if {"outfeed_mode", "device_ordinal"} & set(more):
            raise ValueError("outfeed_mode and device_ordinal are not compatible with Keras")
        check_depth("buffer_depth", more.get("buffer_depth"))

    return {
        "set_gradient_accumulation_options": accumulate,
        "set_pipelining_options": divide,
        "get_pipeline_stage_assignment": lambda: copy.copy(options.assignment) or pipelining.unassigned(model),
        "set_pipeline_stage_assignment": assign,
        "reset_pipeline_stage_assignment": lambda: options.assignment.clear(),
        "set_replication_options": replicate,
        "set_infeed_queue_options": feed_in,
        "set_outfeed_queue_options": feed_out,
    }


def check_depth(name: str, depth: Any) -> None:
    """The depth of a feed, where one is given."""
    if depth is not None and (type(depth) is not int or depth < 1):
        raise ValueError(f"{name} is {depth!r}, expected a positive whole number")
    if depth is not None and depth > 255 and name == "prefetch_depth":
        raise ValueError(f"{name} is {depth}, and an infeed takes less than 256")


def _positive(steps: Any) -> int:
    if type(steps) is not int or steps < 1:
        raise ValueError(f"gradient_accumulation_steps_per_replica is {steps!r}, expected a positive whole number")
    return steps


def _member(value: Any, members: Any) -> str:
    """The name of an enum's member, given as such or as its name in any case."""
    name = value.upper() if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(value, (str, members)) or name not in members.__members__:
        raise ValueError(f"{value!r} is none of {list(members.__members__)}")
    return str(name)
