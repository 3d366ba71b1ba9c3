"""Estimators on IPUs: the SDK's own, with the device of the settings and the model of the network."""

from __future__ import annotations

from typing import Any, Dict, List

import tensorflow as tf

from ipulaunch.configs.settings.estimators import PIPELINED
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.planning.refusals import ipus_needed
from ipulaunch.workers.backends.interface import Backend, Estimators
from ipulaunch.workers.backends.ipu.device import IpuDevice
from ipulaunch.workers.backends.ipu.feeds import as_fed, joined
from ipulaunch.workers.backends.ipu.model import device_mapping, schedule_of, stage_options
from ipulaunch.workers.backends.ipu.training import padded
from ipulaunch.workers.models.estimators import Stage, in_turn, make_chain, make_metrics, make_optimizer, named


class IpuEstimators(Estimators):
    """Makes Estimators for the IPUs of this instance. What they call a step is a micro-batch of every replica."""

    returns_each_step = False  # but after a device call

    def __init__(self, backend: Backend[Any], device: IpuDevice) -> None:
        super().__init__(backend)
        self.sdk, self.device = device.sdk, device
        self.is_pipelined = self.settings.api == PIPELINED

    def updates_per_run(self, updates_per_call: int) -> int:
        """Weight updates between two returns to the host."""
        return updates_per_call

    def evaluation_steps(self, steps: int) -> int:
        """How many steps evaluation is padded to: a pipeline takes whole turns."""
        turn = self._evaluation_turn if self.is_pipelined else 1
        return -(-steps // turn) * turn

    @property
    def _evaluation_turn(self) -> int:
        """The micro-batches of a turn in evaluation, enough for every schedule; a test has no accumulation."""
        stages: int = self.settings.pipeline.stages
        return 2 * stages

    def begin_after(self, update: int) -> None:
        self.device.begin_after(update)

    def make(self, config: Dict[str, Any], steps_per_call: int, is_training: bool) -> Any:
        """An Estimator that runs so many steps in a device call."""
        ipu, device, plan = self.sdk.ipu, self.device, self.plan
        options = device.config
        rounding = device.training_rounding if is_training else device.no_rounding
        options.floating_point_behaviour.esr = rounding
        # The SDK compares them with what it compiles for: the IPUs of all instances where PopDist chose the device.
        replicas = plan.replicas_per_instance if options.auto_select_ipus else plan.replicas
        on_ipus = ipu.ipu_run_config.IPURunConfig(
            iterations_per_loop=steps_per_call,
            ipu_options=options,
            num_replicas=replicas,
            num_shards=ipus_needed(self.settings.pipeline),
            prefetch_depth=self.settings.device.prefetch_depth,
        )
        run_config = ipu.ipu_run_config.RunConfig(ipu_run_config=on_ipus, **config)
        if self.is_pipelined:
            return ipu.ipu_pipeline_estimator.IPUPipelineEstimator(self._pipeline, config=run_config)
        return ipu.ipu_estimator.IPUEstimator(self._model, config=run_config)

    def training_feed(self, stream: tf.data.Dataset) -> tf.data.Dataset:
        return named(as_fed(stream), self.batch.micro_size)

    def evaluation_feed(self, stream: tf.data.Dataset, micro_size: int, more: int) -> tf.data.Dataset:
        """The stream and so many micro-batches more, which count nothing."""
        return named(padded(as_fed(stream), more), micro_size)

    def _stages(self, mode: str) -> List[Stage]:
        network = network_of(self.settings)
        first, *others = make_chain(
            network,
            self.settings.pipeline.splits,
            lambda rate, name: tf.keras.layers.Dropout(rate, name=name),
            self.measures,
            native_half=True,
            is_training=mode == tf.estimator.ModeKeys.TRAIN,
        )
        if network.layers[0].options["dtype"] == "int16":
            return [lambda inputs, targets, weights: first(joined(inputs), targets, weights), *others]
        return [first, *others]

    def _optimizer(self) -> Any:
        """The optimizer, which averages over all replicas of all instances where there are several."""
        ipu, optimizer = self.sdk.ipu, make_optimizer(self.settings, self.batch)
        if self.batch.replicas == 1:
            return optimizer
        return ipu.optimizers.cross_replica_optimizer.CrossReplicaOptimizer(optimizer)

    def _model(self, features: Dict[str, Any], mode: str) -> Any:
        ipu = self.sdk.ipu
        found = in_turn(self._stages(mode), features)
        if mode != tf.estimator.ModeKeys.TRAIN:
            metrics = (make_metrics(self.measures), list(found))
            return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=tf.reduce_mean(found[0]), eval_metrics=metrics)
        train_op = self._optimizer().minimize(found)  # the SDK counts the steps itself
        loss = found
        if self.batch.replicas > 1:  # otherwise a loop of one step reports the loss of the first replica
            loss = ipu.ops.cross_replica_ops.cross_replica_mean(loss)
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def _pipeline(self, mode: str) -> Any:
        ipu, pipelining_ops, pipeline = self.sdk.ipu, self.sdk.pipelining_ops, self.settings.pipeline
        options = stage_options(self.settings, self.sdk)
        metrics = make_metrics(self.measures)
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
            mode,
            computational_stages=self._stages(mode),
            gradient_accumulation_count=self.batch.accumulation if is_training else self._evaluation_turn,
            eval_metrics_fn=lambda *values: {**metrics(*values), "loss": tf.reduce_mean(values[0])},
            optimizer_function=lambda loss: pipelining_ops.OptimizerFunctionOutput(self._optimizer(), loss),
            device_mapping=device_mapping(pipeline),
            reduction_method=self.sdk.reduction_method.RUNNING_MEAN,
            pipeline_schedule=schedule_of(pipeline, self.sdk),
            offload_weight_update_variables=self.settings.device.optimizer_state_offloading,
            forward_propagation_stages_poplar_options=options,
            backward_propagation_stages_poplar_options=options,
        )
