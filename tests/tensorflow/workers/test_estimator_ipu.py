"""What the stand-in for the SDK refuses of an Estimator, as the SDK does."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import tensorflow as tf

if not hasattr(tf, "estimator"):
    pytest.skip("this TensorFlow has no Estimators", allow_module_level=True)


@pytest.fixture()
def ipu(standin: Any) -> Any:
    standin("3.4")
    from tensorflow.python import ipu

    return ipu


def run_config(ipu: Any, **given: Any) -> Any:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = given.get("num_replicas", 1) * given.get("num_shards", 1)
    options = ipu.ipu_run_config.IPURunConfig(ipu_options=config, **given)
    return ipu.ipu_run_config.RunConfig(ipu_run_config=options)


def feed() -> Any:
    return tf.data.Dataset.from_tensors({"x": tf.ones([2, 3])}).repeat()


def model(ipu: Any, minimize: Callable[[Any], Any]) -> Callable[..., Any]:
    def model_fn(features: Any, mode: str) -> Any:
        loss = tf.reduce_mean(tf.keras.layers.Dense(1)(features["x"]))
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))

    return model_fn


def descent() -> Any:
    return tf.compat.v1.train.GradientDescentOptimizer(0.1)


def test_the_stand_in_refuses_what_the_sdk_does(ipu: Any) -> None:
    estimators, counted = ipu.ipu_estimator, tf.compat.v1.train.get_global_step
    with pytest.raises(TypeError, match="autosharding"):
        ipu.ipu_run_config.IPURunConfig(autosharding=True)
    with pytest.raises(ValueError, match="needs ipu_options"):
        ipu.ipu_run_config.IPURunConfig(num_replicas=2)
    with pytest.raises(ValueError, match=r"must be an ipu_run_config\.RunConfig"):
        estimators.IPUEstimator(lambda features, mode: None, config=tf.estimator.RunConfig())
    with pytest.raises(ValueError, match="takes no features or labels"):
        ipu.ipu_pipeline_estimator.IPUPipelineEstimator(lambda features, mode: None, config=run_config(ipu))
    config = ipu.config.IPUConfig()
    with pytest.raises(ValueError, match="select 0 IPUs, and IPURunConfig has 1 devices"):
        ipu.ipu_run_config.IPURunConfig(ipu_options=config)
    config.auto_select_ipus = 3
    with pytest.raises(ValueError, match="select 3 IPUs, and IPURunConfig has 4 devices"):
        ipu.ipu_run_config.IPURunConfig(ipu_options=config, num_replicas=2, num_shards=2)
    with pytest.raises(ValueError, match="prefetch_depth is 0"):
        ipu.ipu_run_config.IPURunConfig(ipu_options=config, prefetch_depth=0)
    with pytest.raises(ValueError, match=r"Missing train_op\."):
        estimators.IPUEstimatorSpec("train", loss=1.0)
    with pytest.raises(ValueError, match=r"Missing loss\."):
        estimators.IPUEstimatorSpec("train", train_op=1.0)
    with pytest.raises(ValueError, match="one of eval_metrics and eval_metric_ops"):
        estimators.IPUEstimatorSpec("eval", loss=1.0)
    with pytest.raises(ValueError, match="accumulate_outfeed cannot be passed"):
        ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
            "train", [], gradient_accumulation_count=1, optimizer_function=descent, accumulate_outfeed=True
        )
    good = estimators.IPUEstimator(model(ipu, lambda loss: descent().minimize(loss)), config=run_config(ipu))
    with pytest.raises(AttributeError):
        good.export()
    good.train(feed, steps=1)
    counts = estimators.IPUEstimator(
        model(ipu, lambda loss: descent().minimize(loss, global_step=counted())), config=run_config(ipu)
    )
    with pytest.raises(ValueError, match="Illegal increment of the global_step"):
        counts.train(feed, steps=1)
    loops = estimators.IPUEstimator(
        model(ipu, lambda loss: descent().minimize(loss)), config=run_config(ipu, iterations_per_loop=2)
    )
    with pytest.raises(ValueError, match="must be a multiple of iterations_per_loop"):
        loops.train(feed, steps=3)
    with pytest.raises(RuntimeError, match="run dry"):
        loops.train(lambda: feed().take(1), steps=4)


def test_replicas_need_an_optimizer_that_crosses_them(ipu: Any) -> None:
    estimators = ipu.ipu_estimator
    apart = estimators.IPUEstimator(
        model(ipu, lambda loss: descent().minimize(loss)), config=run_config(ipu, num_replicas=2)
    )
    with pytest.raises(ValueError, match="not a valid replicated training graph"):
        apart.train(feed, steps=1)


def test_the_stand_in_counts_the_ipus_of_all_instances(ipu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import popdist.tensorflow

    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "4")
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "2")
    config = ipu.config.IPUConfig()
    popdist.tensorflow.set_ipu_config(config, ipus_per_replica=1, configure_device=True)
    options = ipu.ipu_run_config.IPURunConfig(ipu_options=config, num_replicas=2)
    crossed = ipu.optimizers.cross_replica_optimizer.CrossReplicaOptimizer
    ours = ipu.ipu_estimator.IPUEstimator(
        model(ipu, lambda loss: crossed(descent()).minimize(loss)),
        config=ipu.ipu_run_config.RunConfig(ipu_run_config=options),
    )
    with pytest.raises(ValueError, match="IPURunConfig has 2 devices, and 4 are configured"):
        ours.train(feed, steps=1)
