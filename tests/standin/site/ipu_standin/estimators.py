"""The SDK's Estimators: one micro-batch of one replica after the other, on TensorFlow's own Estimator."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as estimators
from tensorflow_estimator.python.estimator import model_fn as specs

from ipu_standin.config import number_of_ipus
from ipu_standin.feeds import TYPES
from ipu_standin.pipelining import Pipeline, check_scaled_gradients
from ipu_standin.sdk import Sdk, check_config, is_by_index, selected_ipus

_v1 = tf.compat.v1
_HOST_STEPS = "AssignAddVariableOp"
# What the Estimator gives to the pipeline itself.
_BY_ESTIMATOR = ("infeed_queue", "outfeed_queue", "repeat_count", "outfeed_loss", "accumulate_outfeed_dtype", "name")


class IpuRunConfig(NamedTuple):
    """What IPURunConfig() was given."""

    iterations_per_loop: int
    ipu_options: Any
    num_replicas: int
    num_shards: int
    ordinal: int
    prefetch_depth: Optional[int]

    @property
    def devices(self) -> int:
        return self.num_replicas * self.num_shards

    @property
    def shown(self) -> str:
        return f"{self.iterations_per_loop} iterations, {self.num_replicas} replicas x {self.num_shards} IPUs"


def make_ipu_run_config(sdk: Sdk, *arguments: Any) -> IpuRunConfig:
    given = IpuRunConfig(*arguments)
    if given.ipu_options is None and given.devices > 1:
        raise ValueError("IPURunConfig with several devices needs ipu_options")
    if given.ipu_options is not None:
        if type(given.ipu_options).__name__ != "IPUConfig":
            raise TypeError("ipu_options is an IPUConfig")
        check_config(sdk, given.ipu_options)
        selected = number_of_ipus(given.ipu_options.auto_select_ipus)
        if not is_by_index(given.ipu_options) and selected != given.devices:
            raise ValueError(f"ipu_options select {selected} IPUs, and IPURunConfig has {given.devices} devices")
    return given


class RunConfig(tf.estimator.RunConfig):
    """TensorFlow's, with what IPUs add."""

    def __init__(self, ipu_run_config: Any, master: Any, **more: Any) -> None:
        super().__init__(**more)
        self._ipu_run_config = ipu_run_config or IpuRunConfig(1, None, 1, 1, 0, None)

    @property
    def ipu_run_config(self) -> IpuRunConfig:
        return self._ipu_run_config


class Spec(NamedTuple):
    """What IPUEstimatorSpec() was given."""

    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    eval_metrics: Any
    host_call: Any
    training_hooks: Any
    evaluation_hooks: Any
    prediction_hooks: Any


def make_spec(*arguments: Any) -> Spec:
    given = Spec(*arguments)
    train_op = specs._validate_estimator_spec_train_op(given.train_op, given.mode)
    loss = specs._validate_estimator_spec_loss(given.loss, given.mode)
    specs._validate_estimator_spec_predictions(given.predictions, given.mode)
    for hooks in (given.training_hooks, given.evaluation_hooks, given.prediction_hooks):
        specs._validate_estimator_spec_hooks(hooks)
    metrics = specs._validate_eval_metric_ops(given.eval_metric_ops)
    _check_call("host_call", given.host_call, (list,))
    _check_call("eval_metrics", given.eval_metrics, (list, dict))
    return given._replace(train_op=train_op, loss=loss, eval_metric_ops=metrics)


def _check_call(name: str, call: Any, kinds: Tuple[type, ...]) -> None:
    """A function and what it is called with."""
    if call is None:
        return
    if not isinstance(call, tuple):
        raise TypeError(f"{name} is a tuple")
    if len(call) != 2:
        raise ValueError(f"{name} has two elements")
    if not callable(call[0]) or not isinstance(call[1], kinds):
        raise TypeError(f"{name} is a function and a {' or '.join(kind.__name__ for kind in kinds)}")


class PipelineSpec:
    """What IPUPipelineEstimatorSpec() was given."""

    def __init__(
        self, mode: str, stages: Any, count: Any, metrics_fn: Any, optimizer_function: Any, mapping: Any,
        loss_dtype: Any, training: Any, evaluation: Any, prediction: Any, method: Any, **more: Any,
    ) -> None:  # fmt: skip
        if mode == tf.estimator.ModeKeys.TRAIN and not optimizer_function:
            raise ValueError("IPUPipelineEstimatorSpec needs an optimizer_function to train")
        if mode == tf.estimator.ModeKeys.EVAL and not metrics_fn:
            raise ValueError("IPUPipelineEstimatorSpec needs an eval_metrics_fn to evaluate")
        if not count:
            raise ValueError("IPUPipelineEstimatorSpec needs a gradient_accumulation_count")
        if "accumulate_outfeed" in more:
            raise ValueError("accumulate_outfeed cannot be passed: the Estimator accumulates the loss itself")
        self.mode, self.stages, self.count, self.metrics_fn = mode, stages, count, metrics_fn
        self.optimizer_function, self.mapping, self.more = optimizer_function, mapping, more
        self.method = "SUM" if isinstance(method, str) else method.name  # a default is a text in the table


class OptimizerOutput:
    """What OptimizerFunctionOutput() was given first. Optimizers of the package keras are none of TensorFlow's."""

    def __init__(self, opt: Any, loss: Any) -> None:
        if not isinstance(opt, _v1.train.Optimizer):
            raise TypeError(f"OptimizerFunctionOutput takes an optimizer of TensorFlow, not {type(opt).__name__}")
        if not isinstance(loss, tf.Tensor):
            raise TypeError(f"OptimizerFunctionOutput takes a loss that is a tensor, not {type(loss).__name__}")
        self.opt, self.loss = opt, loss


class CrossReplica(_v1.train.Optimizer):
    """Averages gradients over all replicas: those of an instance take turns, so it applies with the last of them."""

    def __init__(self, sdk: Sdk, opt: Any, name: str) -> None:
        if not isinstance(opt, _v1.train.Optimizer):
            raise TypeError("CrossReplicaOptimizer takes an optimizer of TensorFlow 1")
        super().__init__(False, name)
        self.sdk, self.opt = sdk, opt

    def compute_gradients(self, loss: Any, *args: Any, **kwargs: Any) -> Any:
        return self.opt.compute_gradients(loss, *args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
        self.sdk.is_crossed = True
        if global_step is not None:
            raise ValueError("Illegal increment of the global_step: the Estimator counts itself")
        return apply_in_turns(self.sdk, self.opt, grads_and_vars, self.sdk.turn, 1 / self.sdk.replicas, True)


def apply_in_turns(sdk: Sdk, opt: Any, pairs: Any, turn: int, factor: float, crosses: bool) -> Any:
    """Sum gradients, and apply them times a factor with every so many micro-batches."""
    gradients, variables = zip(*pairs)
    shapes = [[*variable.shape] for variable in variables]
    sizes = [int(np.prod(shape)) for shape in shapes]
    total = _local_variable(np.zeros(sum(sizes), np.float32))
    count = _local_variable(np.int64(0))
    added = total.assign_add(tf.concat([tf.reshape(part, [-1]) for part in gradients], axis=0))
    with tf.control_dependencies([added]):
        now = count.assign_add(1)

    def apply() -> Any:
        flat = total.read_value()
        if crosses and sdk.instances > 1:  # in one piece: instances sum in the same order
            flat = tf.numpy_function(sdk.sum_over_instances, [flat], tf.float32)
        parts = tf.split(tf.reshape(flat, [sum(sizes)]) * factor, sizes)
        applied = opt.apply_gradients(
            [(tf.reshape(part, shape), variable) for part, shape, variable in zip(parts, shapes, variables)]
        )
        with tf.control_dependencies([applied]):
            cleared = total.assign(tf.zeros_like(total))
        with tf.control_dependencies([cleared]):
            return tf.constant(True)

    with tf.control_dependencies([now]):
        return tf.cond(tf.equal(now % turn, 0), apply, lambda: tf.constant(False))


def _listed(values: Any) -> List[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _run_stage(stage: Callable[..., Any], args: List[Any], kwargs: Dict[str, Any]) -> Any:
    """What a stage returns. A stage is a graph of its own: what it reads is handed to it, or a variable."""
    graph = _v1.get_default_graph()
    before = set(graph.get_operations())
    found = stage(*args, **kwargs)
    handed = {tensor.op for tensor in (*args, *kwargs.values())}
    for op in graph.get_operations():
        for tensor in op.inputs if op not in before else ():
            if tensor.op in before and tensor.op not in handed and tensor.dtype != tf.resource:
                raise ValueError(f"a stage captures {tensor.name}, which is no variable and is not handed to it")
    return found


def _check_apply(sdk: Sdk, opt: Any) -> None:
    """The SDK looks for the parameter captured_grads with inspect.getargspec(), which fails at newer syntax."""
    spec = inspect.getfullargspec(type(opt).apply_gradients)
    if sdk.table.sdk >= "3.0" and (spec.kwonlyargs or spec.annotations):
        raise ValueError(f"{type(opt).__name__}.apply_gradients() has keyword-only parameters or annotations")


def _local_variable(value: Any) -> Any:
    return _v1.Variable(value, trainable=False, collections=[_v1.GraphKeys.LOCAL_VARIABLES], use_resource=True)


class Loop(_v1.train.SessionRunHook):
    """Runs all micro-batches of a device call but the last, which the call itself runs."""

    def __init__(self, begin: Any, step: Any, times: int) -> None:
        self.first, self.step, self.times = begin, step, times

    def before_run(self, run_context: Any) -> None:
        run_context.session.run(self.first)
        for _ in range(self.times - 1):
            run_context.session.run(self.step)


class Counter(_v1.train.SessionRunHook):
    """Counts the steps of a device call after it, as the SDK does, and ends the training."""

    def __init__(self, iterations: int, steps: Optional[int], last: Optional[int]) -> None:
        self.iterations, self.steps, self.last = iterations, steps, last
        self.has_ended = False

    def begin(self) -> None:
        self.step = _v1.train.get_global_step()
        self.increment = self.step.assign_add(self.iterations)

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self.last is None:
            self.last = int(session.run(self.step)) + (self.steps or 0)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.run(self.increment) >= self.last:
            run_context.request_stop()
        self.has_ended = run_context.stop_requested


class Configure(_v1.train.SessionRunHook):
    """Configures the IPUs, which must be those that the run needs."""

    def __init__(self, sdk: Sdk, given: IpuRunConfig) -> None:
        self.sdk, self.given = sdk, given

    def begin(self) -> None:
        options = self.given.ipu_options
        if options is None:
            return
        options.configure_ipu_system()
        everywhere = selected_ipus(options) * self.sdk.instances  # what is compiled is for the IPUs of all instances
        if is_by_index(options) and everywhere != self.given.devices:
            raise ValueError(f"IPURunConfig has {self.given.devices} devices, and {everywhere} are configured")


class Fed(_v1.train.SessionRunHook):
    """Counts what was really run."""

    def __init__(self) -> None:
        self.runs = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.runs += 1


class IpuEstimator:
    """IPUEstimator and IPUPipelineEstimator: train() and evaluate()."""

    def __init__(
        self, sdk: Sdk, name: str, model_fn: Any, model_dir: Any, config: Any, params: Any, warm: Any, *sizes: Any
    ) -> None:
        self.is_pipelined = name == "IPUPipelineEstimator"
        if not self.is_pipelined:
            estimators._verify_model_fn_args(model_fn, params)
        given = config.ipu_run_config  # TensorFlow's own RunConfig has none
        is_distributed = config.train_distribute or config.eval_distribute
        if not self.is_pipelined and is_distributed and given.iterations_per_loop > 1:
            raise NotImplementedError("iterations_per_loop > 1 is not there for an Estimator with a strategy")
        if params is not None or warm is not None or any(size is not None for size in sizes):
            raise NotImplementedError("the stand-in takes no params, warm start or batch sizes")
        self.sdk, self.name, self.model_fn, self.given = sdk, name, model_fn, given
        is_placed = given.ipu_options is not None and is_by_index(given.ipu_options)
        self.replicas = sdk.local_replicas if is_placed else given.num_replicas  # those of this instance
        self.wanted = list(inspect.signature(model_fn).parameters)
        self.inner = tf.estimator.Estimator(self._model, model_dir=model_dir, config=config)

    def train(
        self, input_fn: Any, hooks: Any = None, steps: Any = None, max_steps: Any = None, saving_listeners: Any = None
    ) -> Any:
        self.sdk.calls.record(f"{self.name}.train", {"steps": steps, "max_steps": max_steps})
        self._check_steps(steps)
        if (steps is None) == (max_steps is None):
            raise ValueError("One of steps and max_steps must be given")
        if max_steps is not None and self._trained_steps() >= max_steps:
            return self
        counter = Counter(self.given.iterations_per_loop, steps, max_steps)
        self.inner.train(self._checked(input_fn), hooks=[*(hooks or []), counter], saving_listeners=saving_listeners)
        if not counter.has_ended:
            raise RuntimeError("the feed has run dry")
        return self

    def _trained_steps(self) -> int:
        newest = self.inner.latest_checkpoint()
        return int(tf.train.load_variable(newest, "global_step")) if newest else 0

    def evaluate(
        self, input_fn: Any, steps: Any = None, hooks: Any = None, checkpoint_path: Any = None, name: Any = None
    ) -> Any:
        self.sdk.calls.record(f"{self.name}.evaluate", {"steps": steps})
        self._check_steps(steps)
        if steps is None:
            raise ValueError("One of steps and max_steps must be given")
        fed, runs = Fed(), steps * self.replicas
        found = self.inner.evaluate(self._checked(input_fn), runs, [*(hooks or []), fed], checkpoint_path, name)
        if fed.runs != runs:
            raise RuntimeError("the feed has run dry")
        found["global_step"] += steps  # what counts the loops of a training counts those of an evaluation as well
        return found

    def _check_steps(self, steps: Any) -> None:
        if steps is not None and steps % self.given.iterations_per_loop:
            raise ValueError(f"steps ({steps}) must be a multiple of iterations_per_loop")

    def _model(self, features: Any, labels: Any, mode: str) -> Any:
        self.sdk.is_crossed, self.sdk.turn = False, self.replicas
        if self.is_pipelined:
            found = self._train_pipeline(features) if mode == "train" else self._evaluate_pipeline(features)
        else:
            found = self._train(features, labels) if mode == "train" else self._evaluate(features, labels)
        return found

    def _spec(self, features: Any, labels: Any, mode: str) -> Any:
        given = {"features": features, "labels": labels, "mode": mode}
        if labels is not None and "labels" not in self.wanted:
            raise ValueError("model_fn does not take labels, but input_fn returns labels")
        spec = self.model_fn(**{name: given[name] for name in self.wanted})
        if not isinstance(spec, (Spec, tf.estimator.EstimatorSpec)):
            raise ValueError("model_fn must return an EstimatorSpec or an IPUEstimatorSpec")
        if spec.loss is None:
            raise ValueError("the spec must contain a loss")
        return spec

    def _train(self, features: Any, labels: Any) -> Any:
        spec = self._spec(features, labels, "train")
        if spec.train_op is None:
            raise ValueError("the spec must contain a train_op when training")
        for op in _v1.get_default_graph().get_operations():
            if op.type == _HOST_STEPS and "global_step" in op.inputs[0].name:
                raise ValueError("Illegal increment of the global_step in the model_fn")
        replicas, iterations = self.given.num_replicas, self.given.iterations_per_loop
        if getattr(spec, "host_call", None):
            if iterations > 1:
                raise ValueError("host_call is not allowed for iterations_per_loop > 1")
            raise NotImplementedError("the stand-in makes no host_call")
        if replicas > 1 and not self.sdk.is_crossed:
            raise ValueError("not a valid replicated training graph: there is no CrossReplicaOptimizer")
        if replicas == 1:
            return self._trained(spec.loss, spec.train_op, lambda total: total / iterations)
        if iterations == 1:
            return self._trained(spec.loss, spec.train_op, lambda total: total / self.replicas)

        def mean(total: Any) -> Any:  # a sum over the replicas of all instances, by how many there are said to be
            if self.sdk.instances > 1:
                everywhere = tf.numpy_function(self.sdk.sum_over_instances, [total[tf.newaxis]], tf.float32)
                total = tf.reshape(everywhere, [])
            return total / (iterations * replicas)

        return self._trained(spec.loss, spec.train_op, mean)

    def _trained(self, loss: Any, train_op: Any, mean: Callable[[Any], Any]) -> Any:
        """The spec of a device call: all its micro-batches, and the loss that the SDK makes of theirs."""
        total = _local_variable(np.float32(0))
        with tf.control_dependencies([train_op]):
            step = total.assign_add(loss)
        with tf.control_dependencies([step]):
            told = mean(total.read_value())
        loop = Loop(total.initializer, step.op, self.given.iterations_per_loop * self.replicas)
        hooks = [Configure(self.sdk, self.given), loop]
        return tf.estimator.EstimatorSpec("train", loss=told, train_op=told, training_hooks=hooks)

    def _evaluate(self, features: Any, labels: Any) -> Any:
        spec = self._spec(features, labels, "eval")
        metrics = getattr(spec, "eval_metrics", None)
        if not metrics and not spec.eval_metric_ops:
            raise ValueError("the spec must contain eval_metrics or eval_metric_ops when evaluating")
        if metrics and spec.eval_metric_ops:
            raise ValueError("the spec cannot contain both eval_metrics and eval_metric_ops")
        if not metrics:
            raise NotImplementedError("the stand-in evaluates with the eval_metrics of an IPUEstimatorSpec")
        metrics_fn, tensors = metrics
        return self._evaluated(spec.loss, metrics_fn(*self._outfed(tensors)))

    def _outfed(self, tensors: Any) -> List[Any]:
        """Tensors as an outfeed hands them out: a dimension for the iterations, and one for replicas if several."""
        found = list(tensors)
        for _ in range(2 if self.replicas > 1 else 1):
            found = [tensor[tf.newaxis] for tensor in found]
        return found

    def _evaluated(self, loss: Any, metrics: Dict[str, Tuple[Any, Any]]) -> Any:
        hooks = [Configure(self.sdk, self.given)]
        return tf.estimator.EstimatorSpec("eval", loss=loss, eval_metric_ops=metrics, evaluation_hooks=hooks)

    def _in_stages(self, features: Any, mode: str) -> Any:
        """The spec, and what its last stage gives."""
        if {"features", "labels"} & set(self.wanted):
            raise ValueError("the model_fn of a pipeline takes no features or labels: its first stage does")
        given = {"mode": mode}
        spec = self.model_fn(**{name: given[name] for name in self.wanted})
        if not isinstance(spec, PipelineSpec):
            raise TypeError("the model_fn of a pipeline must return an IPUPipelineEstimatorSpec")
        devices = len(set(spec.mapping)) if spec.mapping is not None else len(spec.stages)
        if devices not in range(self.given.num_shards // 2 + 1, self.given.num_shards + 1):
            raise ValueError(f"this pipeline requires {devices} devices, num_shards is {self.given.num_shards}")
        iterations, options = self.given.iterations_per_loop, self.given.ipu_options
        if iterations < spec.count:
            raise ValueError(f"iterations_per_loop is {iterations}, less than the accumulation {spec.count}")
        if iterations % spec.count:
            raise ValueError(f"iterations_per_loop {iterations} must be divisible by the accumulation {spec.count}")
        pipeline = Pipeline(self.sdk, spec.mapping, spec.more, _BY_ESTIMATOR)
        tiles = options.io_tiles.num_io_tiles if options is not None else 0
        pipeline.check(len(spec.stages), spec.count, mode == "train", tiles)
        handed, named = ([], features) if isinstance(features, dict) else (_listed(features), {})
        for stage in spec.stages:
            handed, named = _listed(_run_stage(stage, handed, named)), {}
        return spec, handed

    def _train_pipeline(self, features: Any) -> Any:
        spec, values = self._in_stages(features, "train")
        out, replicas = spec.optimizer_function(*values), self.replicas
        if not isinstance(out, OptimizerOutput):
            raise TypeError("optimizer_function must return an OptimizerFunctionOutput")
        crosses = isinstance(out.opt, CrossReplica)
        if not crosses:  # that of the SDK has none
            _check_apply(self.sdk, out.opt)
        if self.given.num_replicas > 1 and not crosses:
            raise ValueError("replicas of a pipeline without a CrossReplicaOptimizer train apart")
        factor = (1.0 if spec.method == "SUM" else 1 / spec.count) / (self.sdk.replicas if crosses else 1)
        pairs, opt = out.opt.compute_gradients(out.loss), out.opt.opt if crosses else out.opt
        if spec.method != "SUM":
            check_scaled_gradients([gradient for gradient, _ in pairs])
        applied = apply_in_turns(self.sdk, opt, pairs, spec.count * replicas, factor, crosses)
        micro_batches = self.given.iterations_per_loop * replicas
        return self._trained(out.loss, applied, lambda total: total / micro_batches)

    def _evaluate_pipeline(self, features: Any) -> Any:
        spec, values = self._in_stages(features, "eval")
        metrics = spec.metrics_fn(*self._outfed(values))
        if not isinstance(metrics, dict):
            raise TypeError("eval_metrics_fn must return a dict")
        if "loss" not in metrics:
            raise KeyError("the dict of eval_metrics_fn must contain 'loss'")
        return self._evaluated(metrics.pop("loss"), metrics)

    def _checked(self, input_fn: Callable[[], Any]) -> Callable[[], Any]:
        """The input function, whose data must be such as an infeed takes."""

        def feed() -> Any:
            dataset = input_fn()
            if not isinstance(dataset, tf.data.Dataset):
                raise ValueError("input_fn must return Dataset")
            for spec in tf.nest.flatten(dataset.element_spec):
                if not spec.shape.is_fully_defined():
                    raise ValueError(f"a shape of the dataset is not fully defined: {spec.shape}")
            if not 0 < (self.given.prefetch_depth or 3) < 256:
                raise ValueError(f"prefetch_depth is {self.given.prefetch_depth}, expected 1 to 255")
            for spec in tf.nest.flatten(dataset.element_spec):
                if spec.dtype not in TYPES:
                    raise TypeError(f"the IPU has no {spec.dtype.name}")
            elements = dataset.element_spec
            if not self.is_pipelined and isinstance(elements, tuple) and len(elements) > 2:
                raise ValueError(f"a dataset of 1 or 2 elements is expected, not of {len(elements)}")
            return dataset

        return feed
