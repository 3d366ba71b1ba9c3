"""The settings of samples that every workload has: where they are, how many, in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.schema import Settings, flag_of, setting

_RECORDS = ("cosmoflow", "imagenet")  # the other sets are read into memory as a whole
_IN_MEMORY = "the whole set is read into memory, and checked, before training"


class Data(Settings):
    """The samples. A workload declares again what has another default, limit or meaning there."""

    directory: Optional[str] = setting(
        None, "directory with the published files", flag="--data-dir", also=("--dataset-path",), is_path=True
    )
    synthetic_data: Optional[str] = setting(
        None,
        "generate samples on the host, or inside the training step",
        flag="--synthetic-data",
        choices=("cpu", "ipu"),
        spellings={"host": "cpu"},
    )
    stage_dir: Optional[str] = setting(
        None,
        "directory on a local disk of each host, to copy the records to before training",
        flag="--stage-dir",
        is_path=True,
    )
    stage_shard: bool = setting(
        False,
        "copy to each host only the records that its instances read, and shuffle training samples within that share",
        flag="--stage-shard/--no-stage-shard",
    )
    n_train: int = setting(10000, "training samples", flag="--n-train", at_least=1)
    n_valid: int = setting(1000, "validation samples", flag="--n-valid", at_least=1)
    side: int = setting(64, "values along one edge of a sample", flag="--side", at_least=1)
    channels: int = setting(4, "channels of a sample", at_least=1)
    shuffle: bool = setting(
        True,
        "train in an order that is drawn anew for each epoch, not in that of the files",
        flag="--shuffle/--no-shuffle",
    )
    shuffle_block: int = setting(1, "neighbouring samples that stay together in an epoch's order; 1: none", at_least=1)
    shuffle_window: int = setting(64, "blocks whose samples are mixed with each other", at_least=1)
    host_preprocess: bool = setting(
        False, "normalise on the host instead of the device", flag="--host-preprocess/--no-host-preprocess"
    )
    bad_records: str = setting(
        "fail",
        "at a damaged record, end the job, or use its neighbour instead and count it",
        flag="--bad-records",
        choices=("fail", "skip"),
    )

    def __post_init__(self) -> None:
        if self.directory is not None and self.synthetic_data is not None:
            raise SettingsError(f"{self.option} and --synthetic-data are both given", hint="give one of them")

    @property
    def option(self) -> str:
        """The option that names the directory."""
        return flag_of(type(self), "directory")

    @property
    def path(self) -> Path:
        """The directory, where one is named."""
        assert self.directory is not None
        return Path(self.directory)

    @property
    def has_images(self) -> bool:
        """Whether samples are images, which have pixels and colours."""
        return False

    @property
    def is_synthetic(self) -> bool:
        """Whether samples are generated."""
        return self.synthetic_data is not None

    @property
    def is_unnamed(self) -> bool:
        """Whether samples are to be read, and nobody has said where they are."""
        return self.directory is None and not self.is_synthetic

    def refuse_unused(self, workload: str) -> None:
        """Refuse options that would do nothing."""
        for is_given, option in (
            (self.stage_dir is not None, "--stage-dir"),
            (self.bad_records != "fail", f"--bad-records {self.bad_records}"),
        ):
            if is_given and workload not in _RECORDS:
                raise SettingsError(f"{option} has no effect on {workload}", hint=f"leave it out: {_IN_MEMORY}")
            if is_given and self.directory is None:
                hint = f"give {self.option}, or leave it out"
                raise SettingsError(f"{option} has no effect on synthetic samples", hint=hint)
        if self.stage_shard and self.stage_dir is None:
            raise SettingsError(
                "--stage-shard has no effect without --stage-dir",
                hint="--stage-dir DIR names a directory on a local disk of each host",
            )
