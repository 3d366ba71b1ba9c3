"""What must fit together within the settings of a workload."""

from __future__ import annotations

from typing import Any, List

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.sections import Pipeline
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve


def settings_with(*texts: str, workload: str = "mnist") -> object:
    return resolve(workload, rehearsal=False, overrides=[assignment(text, "--set") for text in texts]).settings


SGD = ["optimizer.name=sgd", "optimizer.auto_loss_scaling=true"]


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        pytest.param(
            ["pipeline.splits=[a, b]", "pipeline.device_mapping=[0, 1]"],
            "names 2 IPUs for 3 pipeline stages", "for each stage", id="mapping of another length",
        ),
        pytest.param(["pipeline.device_mapping=[0, 1]"], "2 IPUs for 1 pipeline stage", "each stage", id="no stages"),
        pytest.param(
            ["pipeline.splits=a", "pipeline.device_mapping=[0, 2]"], "leaves out IPU 1 of 3", "from 0", id="mapping gap"
        ),
        pytest.param(
            ["pipeline.splits=a", "launch.ipus_per_replica=4"], "4 IPUs per replica, and the 2 pipeline stages",
            "leave --ipus-per-replica out", id="depth and stages",
        ),
        pytest.param(["device.recomputation=on"], "recomputation", "--pipeline-splits", id="recomputation of nothing"),
        pytest.param(
            ["pipeline.splits=a", "device.available_memory_proportion=[1, 2, 3]"], "3 available memory proportions",
            "two for each stage", id="proportions",
        ),
        pytest.param(
            ["pipeline.splits=a", "device.distributed_norm_replicas=2"], "over 2 replicas of 2 IPUs", "one IPU",
            id="shared statistics of stages",
        ),
        pytest.param(["training.training=no", "training.validation=no"], "neither", "--no-training or", id="nothing"),
        pytest.param(["training.checkpoint_input_dir=d"], "for evaluation", "--resume", id="checkpoints to train on"),
        pytest.param(["training.training=no", "training.resume=auto"], "continues", "input-dir", id="resumed"),
        pytest.param(["training.first_ckpt_epoch=3"], "after epoch 3", "--first-ckpt-epoch 2", id="no epoch left"),
        pytest.param(["training.target_accuracy=98"], "98 is never reached", "98 % is 0.98", id="accuracy in per cent"),
        pytest.param(["data.directory=d", "data.synthetic_data=cpu"], "both given", "one of them", id="both data"),
        pytest.param(
            ["data.host_preprocess=true", "data.eight_bit_transfer=true"], "not bytes", "--no-eight-bit", id="bytes"
        ),
        pytest.param(["data.mean=[1, 2]"], "data.mean has 2 values for 1 colours", None, id="mean of other colours"),
        pytest.param(
            ["optimizer.momentum=0.9"], "momentum 0.9 with adam", "use --momentum 0, or --optimizer sgd", id="momentum"
        ),
        pytest.param(["optimizer.auto_loss_scaling=true"], "the optimizer adam", "--optimizer sgd", id="with adam"),
        pytest.param([*SGD, "optimizer.momentum=0.9"], "momentum 0.9", "--momentum 0", id="with momentum"),
        pytest.param([*SGD, "optimizer.weight_decay=0.1"], "weight decay 0.1", "fixed", id="automatic with decay"),
        pytest.param([*SGD, "schedule.name=cosine"], "is cosine", "const", id="automatic with cosine"),
        pytest.param([*SGD, "schedule.warmup_epochs=2"], "2 epochs of warm-up", "-warmup-epochs 0", id="with warm-up"),
        pytest.param(["schedule.name=stepped"], "0 boundaries and 0 factors", "as many", id="no steps"),
        pytest.param(
            ["schedule.name=stepped", "schedule.boundaries=2,1", "schedule.factors=0.1,0.2"], "do not rise", None,
            id="steps back",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(texts: List[str], message: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_with(*texts)
    assert message in caught.value.message
    assert hint is None or hint in caught.value.hint


def test_everything_in_the_way_of_automatic_loss_scaling_is_named_at_once() -> None:
    wishes = ["optimizer.name=rmsprop", "optimizer.momentum=0.9", "optimizer.weight_decay=0.1"]
    wishes += ["optimizer.l2_regularization=0.2", "schedule.name=cosine", "schedule.warmup_epochs=2"]
    with pytest.raises(SettingsError) as caught:
        settings_with(*wishes, "optimizer.auto_loss_scaling=true")
    assert caught.value.message.endswith(
        "in its way: the optimizer rmsprop, momentum 0.9, weight decay 0.1, L2 regularization 0.2, a learning rate"
        " that is cosine, 2 epochs of warm-up"
    )
    assert caught.value.hint.startswith(
        "use --optimizer sgd --momentum 0 --weight-decay 0 --l2-regularization 0 --lr-schedule const"
        " --lr-warmup-epochs 0, and on IPUs --precision 16.16"
    )


def test_automatic_loss_scaling_with_plain_sgd_is_allowed() -> None:
    settings_with(*SGD)


@pytest.mark.parametrize(
    ("pipeline", "stages", "ipus"),
    [
        pytest.param(Pipeline(), 1, 1, id="none"),
        pytest.param(Pipeline(splits=("a", "b", "c")), 4, 4, id="a stage an IPU"),
        pytest.param(Pipeline(splits=("a", "b", "c"), device_mapping=(0, 1, 1, 0)), 4, 2, id="folded"),
        pytest.param(Pipeline(splits=("a",), device_mapping=(0, 0)), 2, 1, id="one IPU"),
    ],
)
def test_stages_and_their_ipus(pipeline: Pipeline, stages: int, ipus: int) -> None:
    assert (pipeline.stages, pipeline.ipus) == (stages, ipus)


@pytest.mark.parametrize(
    ("texts", "warns"),
    [
        pytest.param(["training.precision=16.16"], True, id="16.16"),
        pytest.param(["training.precision=16.16", "optimizer.loss_scaling=128"], False, id="scaled"),
        pytest.param([*SGD, "training.precision=16.16"], False, id="scaled automatically"),
        pytest.param(["training.precision=16.16", "training.training=no"], False, id="inference"),
        pytest.param(["training.precision=16.32"], False, id="16.32"),
    ],
)
def test_16_bit_weights_without_loss_scaling_are_warned_of(texts: List[str], warns: bool) -> None:
    warnings = settings_with(*texts).warnings  # type: ignore[attr-defined]
    assert any("16.16 without loss scaling" in warning for warning in warnings) == warns


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["optimizer.name=adam", "training.precision=16.16"], ""),
        (["schedule.warmup_epochs=9", "training.num_epochs=3"], "9 epochs of warm-up in a training of 3"),
        (["schedule.warmup_epochs=3", "training.num_epochs=3"], ""),
        (["device.available_memory_proportion=0.6"], "0.6 is in per cent, and less than one: did you mean 60?"),
        (["device.available_memory_proportion=15"], ""),
    ],
)
def test_what_is_seldom_meant_is_warned_of(texts: List[str], said: str) -> None:
    warnings = settings_with("optimizer.loss_scaling=128", *texts).warnings  # type: ignore[attr-defined]
    assert [said in warning for warning in warnings] == [True] * bool(said)


def test_more_than_all_memory_is_refused() -> None:
    with pytest.raises(SettingsError, match="150 per cent"):
        settings_with("device.available_memory_proportion=150")


def test_a_mean_absolute_error_above_one_may_be_a_target() -> None:
    settings: Any = settings_with("training.target_accuracy=1.5", workload="cosmoflow")
    assert settings.training.target_accuracy == 1.5
