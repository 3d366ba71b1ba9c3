"""What an Estimator has no use for is refused; what it needs is shipped."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ipulaunch.launcher.cli.main import cli

pytestmark = pytest.mark.core


def test_the_names_of_the_examples_are_those_of_settings() -> None:
    words = ["cifar10", "--api", "estimator", "--engine", "openmpi", "--dry-run", "--batch-size", "4"]
    done = CliRunner().invoke(cli, [*words, "--test-only", "--model-dir", "m"])
    assert "--set training.micro_batch_size=4 --set training.training=false" in done.output
    twice = CliRunner().invoke(cli, [*words, "--micro-batch-size", "2"])  # another spelling: the last one counts
    assert "--set training.micro_batch_size=2" in twice.output
