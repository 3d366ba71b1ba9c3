"""What an Estimator has no use for is refused; what it needs is shipped."""

from __future__ import annotations

from typing import List

import pytest
from click.testing import CliRunner

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.runs.job import set_options
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import Resolved, resolve
from ipulaunch.launcher.cli.main import cli

pytestmark = pytest.mark.core


def settled(workload: str, *texts: str) -> Resolved:
    return resolve(workload, rehearsal=True, overrides=[assignment(text, "--set") for text in texts])


@pytest.mark.parametrize("api", ["estimator", "replica-estimator", "pipeline-estimator"])
def test_an_estimator_begins_with_the_published_example(api: str) -> None:
    settings = settled("cifar10", f"estimator.api={api}").settings
    assert (settings.api, settings.model.name) == (api, "cifar_cnn")
    assert (settings.optimizer.name, settings.optimizer.learning_rate, settings.schedule.name) == ("sgd", 0.01, "const")
    assert settings.optimizer.momentum == 0 and settings.data.std == (255.0,)
    assert settings.pipeline.splits == (("conv3",) if api == "pipeline-estimator" else ())
    assert settings.launch.num_replicas == (1 if api == "estimator" else None)


def test_keras_remains_as_it_was() -> None:
    settings = settled("cifar10").settings
    assert (settings.api, settings.model.name) == ("keras", "cifar_resnet8")
    assert settled("cosmoflow").settings.api == "keras"
    assert settled("mnist").settings.api == "keras"


def test_your_settings_win_over_the_example() -> None:
    resolved = settled("cifar10", "estimator.api=estimator", "optimizer.learning_rate=0.5")
    assert resolved.settings.optimizer.learning_rate == 0.5
    words = set_options(resolved)
    assert words == ["--set", "optimizer.learning_rate=0.5", "--set", "estimator.api=estimator"]


REFUSED = [
    (["launch.num_replicas=2"], "--api estimator trains one replica"),
    (["pipeline.splits=[pool1]"], "does not run pipelines"),
    (["training.gradient_accumulation_count=2"], "accumulation 2"),
    (["optimizer.name=lars"], "--optimizer lars"),
    (["optimizer.weight_decay=0.1"], "--weight-decay"),
    (["optimizer.l2_regularization=0.1"], "--l2-regularization"),
    (["optimizer.loss_scaling=128"], "--loss-scaling"),
    (["schedule.name=cosine"], "--lr-schedule cosine"),
    (["schedule.warmup_epochs=1"], "--lr-warmup-epochs"),
    (["training.precision=16.32"], "--precision 16.32"),
    (["data.synthetic_data=ipu"], "--synthetic-data ipu"),
    (["device.fused_preprocessing=true"], "device.fused_preprocessing"),
    (["training.resume=runs/a"], "--resume"),
    (["training.trace_samples=true"], "--trace-samples"),
    (["training.checkpoint_output_dir=a"], "--checkpoint-output-dir"),
    (["training.training=false", "training.checkpoint_input_dir=a"], "--checkpoint-input-dir"),
    (["training.ckpts_per_epoch=0"], "--ckpts-per-epoch 0"),
    (["training.training=false"], "--model-dir does not say"),
]


@pytest.mark.parametrize(("texts", "why"), REFUSED, ids=[texts[-1] for texts, _ in REFUSED])
def test_what_an_estimator_cannot_do_is_refused(texts: List[str], why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settled("cifar10", "estimator.api=estimator", *texts)
    assert why in caught.value.message and caught.value.hint


def test_a_pipeline_needs_stages() -> None:
    with pytest.raises(SettingsError, match="without pipeline stages"):
        settled("cifar10", "estimator.api=pipeline-estimator", "pipeline.splits=[]")


@pytest.mark.parametrize("workload", ["cifar10", "cosmoflow"])
@pytest.mark.parametrize("text", ["estimator.model_dir=a", "estimator.batches_per_step=4"])
def test_keras_has_no_use_for_what_estimators_take(workload: str, text: str) -> None:
    with pytest.raises(SettingsError, match="is for Estimators"):
        settled(workload, text)


def test_cosmoflow_keeps_its_optimizer() -> None:
    settings = settled("cosmoflow", "estimator.use=true").settings
    assert (settings.api, settings.optimizer.name) == ("replica-estimator", "adadelta")


@pytest.mark.parametrize("words", [["cifar10", "--api", "replica-estimator"], ["cosmoflow", "--use-estimator"]])
def test_a_global_batch_that_takes_accumulation_is_refused_before_anything_starts(words: List[str]) -> None:
    done = CliRunner().invoke(cli, [*words, "--pod", "4", "--engine", "openmpi", "--global-batch-size", "1024"])
    assert isinstance(done.exception, SettingsError) or done.exit_code == SettingsError.exit_code
    assert "only the one of a pipeline accumulates gradients" in str(done.exception) + done.output


def test_that_the_best_checkpoint_is_not_kept_is_noted() -> None:
    words = ["plan", "cifar10", "--engine", "openmpi", "--keep-checkpoints", "1"]
    note = "an Estimator keeps only its newest checkpoints"
    assert note in CliRunner().invoke(cli, [*words, "--api", "estimator"]).output
    assert note not in CliRunner().invoke(cli, words).output
