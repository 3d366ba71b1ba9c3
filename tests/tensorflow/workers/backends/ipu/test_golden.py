"""The published pipelined ResNet-50 on 16 IPUs: every call into the SDK, as the published application configures it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, List

import pytest
import tensorflow as tf
from fixtures.plans import ipu_backend, plan_of

from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.planning.batch import make_batch, updates_per_epoch
from ipulaunch.topology.planning.host_events import host_events
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import make_optimizer

GOLDEN = Path(__file__).parents[4] / "golden" / "ipu_resnet50_16ipus_8k_bn_pipeline.txt"


@pytest.fixture()
def prepared(standin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The backend of one instance with all 4 replicas of 4 IPUs, and the model ready for training."""
    settings = resolve("imagenet", rehearsal=False, config="resnet50_16ipus_8k_bn_pipeline").settings
    monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", "4")
    place, training = standin("3.4", replicas=4), settings.training
    batch, _ = make_batch(training.micro_batch_size, place.replicas, None, training.global_batch_size)
    updates = updates_per_epoch(settings.data.n_train, batch, training.remainder)
    events, _ = host_events(training.num_epochs, updates, training.logs_per_epoch, training.ckpts_per_epoch)
    backend = ipu_backend(settings, plan_of(batch, ipus_per_replica=place.ipus_per_replica))
    tf.keras.mixed_precision.set_global_policy("float16")
    try:
        with backend.scope():
            model = build_model(network_of(settings), backend.dropout)
            optimizer = make_optimizer(settings, batch, updates)
            return backend, backend.prepare(model, optimizer, measures_of(settings), events)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def lines_of(calls: List[Any]) -> List[str]:
    """A line for each call, and for each layer with its stage."""
    found = []
    for name, given in calls:
        layers = given.pop("pipeline_stage_assignment", [])
        found += [f"{name} {json.dumps(given)}", *(f"    {layer}" for layer in layers)]
    return found


def test_the_published_preset_makes_these_calls(prepared: Any, read_calls: Any, tmp_path: Path) -> None:
    backend, training = prepared
    # Validation begins so; its 50,000 images need not run for that.
    backend.device.round_as(backend.device.no_rounding)
    specs = (None, tf.TensorSpec((16,), tf.int32), tf.TensorSpec((16,), tf.float32))
    training._validator(specs, 784, 16)
    found = lines_of(read_calls(tmp_path / "calls.jsonl", 0))
    if os.environ.get("REFRESH_GOLDEN"):
        GOLDEN.write_text("\n".join(found) + "\n", encoding="utf-8")
    expected = GOLDEN.read_text(encoding="utf-8").splitlines()
    assert found == expected, f"if this change is meant: REFRESH_GOLDEN=1 pytest {__file__}"


def test_pixels_stages_and_the_scaled_loss_are_as_published(prepared: Any) -> None:
    """In one test, since a ResNet-50 takes seconds to make."""
    _, training = prepared
    assert_pixels_arrive_as_bytes_and_the_first_layer_makes_them_numbers(training)
    assert_four_stages_begin_where_the_splits_say(training)
    assert_the_loss_is_scaled_by_128_and_the_gradients_are_not(training)


def assert_pixels_arrive_as_bytes_and_the_first_layer_makes_them_numbers(training: Any) -> None:
    assert training.model.input.dtype == tf.uint8
    assert (training.model.layers[1].name, training.stages["normalise"]) == ("normalise", 0)
    assert training.model.layers[1].output.dtype == tf.float16


def assert_the_loss_is_scaled_by_128_and_the_gradients_are_not(training: Any) -> None:
    """Times 4 replicas, by which Keras divides it again; the optimizer gets the sum over these."""
    labels, outputs = tf.constant([[3], [5]]), tf.random.stateless_normal((2, 1000), [1, 2], dtype=tf.float16)
    plain = training.measures[0].of(tf.constant([3, 5]), outputs)
    tf.debugging.assert_near(training.model.loss(labels, outputs), 4 * 128 * plain)
    weight = training.model.trainable_variables[0]
    before, optimizer = weight.numpy(), training.optimizer
    optimizer.learning_rate, optimizer.l2_regularization = 2.0**10, 0.0
    optimizer.apply_gradients([(tf.fill(weight.shape, tf.constant(0.25, tf.float16)), weight)])
    tf.debugging.assert_near(tf.cast(before - weight, tf.float32), tf.fill(weight.shape, 256 / (4 * 128)), atol=1e-3)


def assert_four_stages_begin_where_the_splits_say(training: Any) -> None:
    """As the published application assigns them: the named layer is the first of the next stage."""
    layers = [layer.name for layer in training.model.layers]
    for stage, split in enumerate(["conv2_block2_out", "conv3_block1_out", "conv4_block2_out"], start=1):
        assert training.stages[split] == stage
        assert training.stages[layers[layers.index(split) - 1]] == stage - 1
    assert training.stages[layers[-1]] == 3
