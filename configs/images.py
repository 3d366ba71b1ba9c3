"""The settings of the image classifiers: ImageNet, CIFAR and MNIST."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.estimators import Cifar10Estimator, check_api
from ipulaunch.configs.schema import section, setting
from ipulaunch.configs.workload import WorkloadSettings

MODELS = (
    *("resnet18", "resnet34", "resnet50"),
    *("cifar_resnet8", "cifar_resnet20", "cifar_resnet32", "cifar_resnet44", "cifar_resnet56"),
    *("cifar_cnn", "mnist_cnn"),
)


@dataclass(frozen=True)
class ImageModel:
    """The network."""

    name: str = setting("resnet50", "the network", flag="--model", choices=MODELS)
    norm_layer: str = setting(
        "batch_norm", "what normalises between the layers of a ResNet", flag="--norm-layer",
        choices=("batch_norm", "group_norm"),
    )  # fmt: skip
    norm_groups: int = setting(32, "groups of channels, for group_norm", at_least=1)
    norm_momentum: float = setting(0.97, "how slowly batch statistics are forgotten", at_least=0, below=1)
    dropout: Optional[float] = setting(
        None, "share of units dropped in training, for the networks that drop any", flag="--dropout", at_least=0,
        below=1,
    )  # fmt: skip
    label_smoothing: float = setting(
        0.0, "share of a label that is spread over all classes", flag="--label-smoothing", at_least=0, below=1
    )


@dataclass(frozen=True)
class ImageData:
    """The images and their labels."""

    dataset_path: Optional[str] = setting(None, "where the published files of the set are", flag="--dataset-path")
    synthetic_data: Optional[str] = setting(
        None,
        "made-up images: from the host, or inside the training step",
        flag="--synthetic-data",
        choices=("cpu", "ipu"),
    )
    n_train: int = setting(1281167, "training images", flag="--n-train", at_least=1)
    n_valid: int = setting(50000, "validation images", flag="--n-valid", at_least=1)
    side: int = setting(224, "pixels along one edge of an image", flag="--side", at_least=1)
    channels: int = setting(3, "colours of a pixel", at_least=1)
    classes: int = setting(1000, "classes of images", at_least=2)
    mean: Tuple[float, ...] = setting((0.0,), "what is taken off a pixel's colours, which go from 0 to 255")
    std: Tuple[float, ...] = setting((255.0,), "what they are then divided by", above=0)
    augment: bool = setting(False, "crop and flip training images at random", flag="--augment/--no-augment")
    shuffle_block: int = setting(
        1, "neighbouring images that stay together in an epoch's order; 1 lets all go free", at_least=1
    )
    shuffle_window: int = setting(64, "blocks whose images are mixed with each other", at_least=1)
    host_preprocess: bool = setting(
        False, "normalise on the host instead of the device", flag="--host-preprocess/--no-host-preprocess"
    )
    eight_bit_transfer: Optional[bool] = setting(
        None,
        "send pixels as bytes; without it, whenever the device normalises them",
        flag="--eight-bit-transfer/--no-eight-bit-transfer",
    )
    bad_records: str = setting(
        "fail",
        "what a damaged record does: end the job, or be replaced by its neighbour and counted",
        flag="--bad-records",
        choices=("fail", "skip"),
    )

    def __post_init__(self) -> None:
        if self.host_preprocess and self.eight_bit_transfer:
            raise SettingsError(
                "pixels that the host has normalised are no bytes any more",
                hint="with --host-preprocess use --no-eight-bit-transfer",
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise SettingsError(f"data.{name} has {len(values)} values for {self.channels} colours")
        if self.dataset_path is not None and self.synthetic_data is not None:
            raise SettingsError("--dataset-path and --synthetic-data are both given", hint="give one of them")

    @property
    def sends_bytes(self) -> bool:
        """Whether pixels leave the host as uint8."""
        return not self.host_preprocess if self.eight_bit_transfer is None else self.eight_bit_transfer


@dataclass(frozen=True)
class ImageSettings(WorkloadSettings):
    """Everything an image classifier's run is made from."""

    data: ImageData = section(ImageData)
    model: ImageModel = section(ImageModel)

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of one sample."""
        return (self.data.side, self.data.side, self.data.channels)


@dataclass(frozen=True)
class Cifar10Settings(ImageSettings):
    """Everything a run on CIFAR-10 is made from."""

    estimator: Cifar10Estimator = section(Cifar10Estimator)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_api(self, self.api)

    @property
    def api(self) -> str:
        return self.estimator.api
