"""The settings of the image classifiers: ImageNet, CIFAR and MNIST."""

from __future__ import annotations

from typing import List, Optional, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.data import Data
from ipulaunch.configs.settings.estimators import Cifar10Estimator
from ipulaunch.configs.settings.schema import section, setting
from ipulaunch.configs.settings.workload import Model, WithEstimators, WorkloadSettings

MODELS = (
    *("resnet18", "resnet34", "resnet50"),
    *("cifar_resnet8", "cifar_resnet20", "cifar_resnet32", "cifar_resnet44", "cifar_resnet56"),
    *("cifar_cnn", "mnist_cnn", "toy_model", "toy_model_bn"),
)


class ImageModel(Model):
    """The network."""

    name: str = setting("resnet50", "the network", flag="--model", choices=MODELS, also=("--model-name",))
    norm_layer: str = setting(
        "batch_norm", "normalisation layer of the ResNets", flag="--norm-layer",
        choices=("batch_norm", "group_norm"), spellings={"custom_batch_norm": "batch_norm"},
    )  # fmt: skip
    norm_groups: int = setting(32, "groups of channels, for group_norm", at_least=1)
    norm_channels_per_group: Optional[int] = setting(
        None, "channels of a group, for group_norm, instead of the number of groups", at_least=1
    )
    norm_momentum: float = setting(0.97, "how much of the batch statistics a weight update keeps", at_least=0, below=1)
    dropout: Optional[float] = setting(
        None, "fraction of units dropped in training, for networks with dropout", flag="--dropout", at_least=0,
        below=1,
    )  # fmt: skip
    label_smoothing: float = setting(
        0.0, "fraction of a label that is spread over all classes", flag="--label-smoothing", at_least=0, below=1
    )


class ImageData(Data):
    """The images and their labels."""

    directory: Optional[str] = setting(
        None,
        "directory with the published files of the data set",
        flag="--dataset-path",
        also=("--data-dir",),
        is_path=True,
    )
    stage_dir: Optional[str] = setting(
        None,
        "directory on a local disk of each host, to copy ImageNet's records to before training",
        flag="--stage-dir",
        is_path=True,
    )
    n_train: int = setting(1281167, "training images", flag="--n-train", at_least=1)
    n_valid: int = setting(50000, "validation images", flag="--n-valid", at_least=1)
    side: int = setting(224, "pixels along one edge of an image", flag="--side", at_least=1)
    channels: int = setting(3, "colours of a pixel", at_least=1)
    host_preprocess: bool = setting(
        False,
        "normalise on the host instead of the device",
        flag="--host-preprocess/--no-host-preprocess",
        also=("--no-accelerator-side-preprocess/--accelerator-side-preprocess",),
    )
    classes: int = setting(1000, "classes of images", at_least=2)
    mean: Tuple[float, ...] = setting((0.0,), "values subtracted from the colours of a pixel, which go from 0 to 255")
    std: Tuple[float, ...] = setting((255.0,), "values that the colours are then divided by", above=0)
    augment: bool = setting(False, "crop and flip training images at random", flag="--augment/--no-augment")
    pipeline_num_parallel: Optional[int] = setting(
        None,
        "images that an instance prepares at the same time; by default as many as it has cores",
        flag="--pipeline-num-parallel",
        at_least=1,
    )
    eight_bit_transfer: Optional[bool] = setting(
        None,
        "send pixels as bytes; by default if the device normalises them",
        flag="--eight-bit-transfer/--no-eight-bit-transfer",
    )

    def __post_init__(self) -> None:
        if self.host_preprocess and self.eight_bit_transfer:
            raise SettingsError(
                "pixels that the host has normalised are not bytes any more",
                hint="with --host-preprocess use --no-eight-bit-transfer",
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise SettingsError(f"data.{name} has {len(values)} values for {self.channels} colours")
        super().__post_init__()

    def refuse_unused(self, workload: str) -> None:
        super().refuse_unused(workload)
        if self.augment and workload == "mnist":
            hint = "leave it out: digits are not cropped and flipped"
            raise SettingsError(f"--augment has no effect on {workload}", hint=hint)

    @property
    def has_images(self) -> bool:
        return True

    @property
    def sends_bytes(self) -> bool:
        """Whether pixels leave the host as uint8."""
        return not self.host_preprocess if self.eight_bit_transfer is None else self.eight_bit_transfer


class ImageSettings(WorkloadSettings):
    """Everything an image classifier's run is made from."""

    data: ImageData = section(ImageData)
    model: ImageModel = section(ImageModel)

    def __post_init__(self) -> None:
        super().__post_init__()
        target = self.training.target_accuracy
        if target is not None and target > 1:
            raise SettingsError(
                f"a target accuracy of {target:g} is never reached",
                hint=f"accuracies go from 0 to 1: {target:g} % is {target / 100:g}",
            )

    @property
    def usual_target(self) -> float:
        return 0.759  # of the published application, and of MLPerf for ImageNet

    @property
    def shape(self) -> Tuple[int, ...]:
        return (self.data.side, self.data.side, self.data.channels)

    @property
    def warnings(self) -> List[str]:
        has_statistics = "resnet" in self.model.name and self.model.norm_layer == "batch_norm"
        samples = self.training.micro_batch_size * self.device.distributed_norm_replicas
        if not (self.training.training and has_statistics and samples == 1):
            return super().warnings
        alone = "batch statistics of a single sample: the network may not learn; raise --micro-batch-size, or use"
        return [f"{alone} --norm-layer group_norm", *super().warnings]


class Cifar10Settings(ImageSettings, WithEstimators):
    """Everything a run on CIFAR-10 is made from."""

    estimator: Cifar10Estimator = section(Cifar10Estimator)

    @property
    def api(self) -> str:
        return self.estimator.api
