"""The settings of CosmoFlow: a 3-D convolution network that reads cosmological parameters off matter distributions."""

from __future__ import annotations

from typing import Optional, Tuple

from ipulaunch.configs.settings.data import Data
from ipulaunch.configs.settings.estimators import KERAS, REPLICATED, CosmoflowEstimator
from ipulaunch.configs.settings.schema import section, setting
from ipulaunch.configs.settings.workload import Model, WithEstimators


class CosmoflowModel(Model):
    """The published network: conv blocks that halve the volume, two dense layers, one output per target."""

    name: str = setting(
        "cosmoflow",
        "the published network, or its first version: equal channels, no padding, dropout before dense layers",
        flag="--model",
        choices=("cosmoflow", "cosmoflow_v1"),
    )
    conv_size: int = setting(
        16, "channels of the first block; doubled in each following one, except in the first version",
        flag="--conv-size", at_least=1,
    )  # fmt: skip
    kernel_size: int = setting(2, "side of the convolution kernels", flag="--kernel-size", at_least=1)
    # Each block halves the volume: 20 of them need a million voxels along an edge.
    n_conv_layers: int = setting(5, "convolution blocks", flag="--n-conv-layers", at_least=1, at_most=20)
    fc1_size: int = setting(128, "units of the first dense layer", flag="--fc1-size", at_least=1)
    fc2_size: int = setting(64, "units of the second dense layer", flag="--fc2-size", at_least=1)
    hidden_activation: str = setting(
        "LeakyReLU",
        "activation of every hidden layer",
        flag="--hidden-activation",
        choices=("LeakyReLU", "relu", "elu", "selu", "tanh"),
    )
    pooling_type: str = setting(
        "MaxPool3D", "how a block halves the volume", flag="--pooling-type", choices=("MaxPool3D", "AveragePooling3D")
    )
    dropout: float = setting(
        0.2, "fraction of the dense units dropped in training", flag="--dropout", at_least=0, below=1
    )


class CosmoflowData(Data):
    """The volumes: side x side x side voxels in several redshift channels, with their targets."""

    directory: Optional[str] = setting(
        None,
        "directory with the published records in train/ and validation/; without it, samples are synthetic",
        flag="--data-dir",
        also=("--dataset-path",),
        is_path=True,
    )
    n_valid: int = setting(1000, "validation samples; 0: there is no validation", flag="--n-valid", at_least=0)
    side: int = setting(64, "voxels along one edge of a volume", flag="--side", at_least=1)
    channels: int = setting(4, "redshift channels of a volume", at_least=1)
    host_preprocess: bool = setting(
        False,
        "normalise on the host, and send floats to the device instead of int16",
        flag="--host-preprocess/--no-host-preprocess",
    )
    normalise: str = setting(
        "mean",
        "divide counts by the mean of the volume, or take log(1 + count)",
        flag="--normalise",
        choices=("mean", "log"),
    )
    targets: int = setting(4, "cosmological parameters to predict", at_least=1)

    @property
    def is_synthetic(self) -> bool:
        return self.directory is None


def side_options(side: int, layers: int) -> str:
    """What to give for volumes of this size, also where they are too small for so many blocks that halve them."""
    most = max(1, side.bit_length() - 1)
    return f"--side {side}" if most >= layers else f"--side {side} --n-conv-layers {most}"


class CosmoflowSettings(WithEstimators):
    """Everything a CosmoFlow run is made from."""

    data: CosmoflowData = section(CosmoflowData)
    model: CosmoflowModel = section(CosmoflowModel)
    estimator: CosmoflowEstimator = section(CosmoflowEstimator)

    @property
    def api(self) -> str:
        return REPLICATED if self.estimator.use else KERAS

    @property
    def usual_target(self) -> float:
        return 0.124  # the mean absolute error that MLPerf HPC asks for

    @property
    def shape(self) -> Tuple[int, ...]:
        return (self.data.side, self.data.side, self.data.side, self.data.channels)
