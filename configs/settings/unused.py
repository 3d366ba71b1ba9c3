"""What synthetic samples, and sets that are read into memory as a whole, have no use for."""

from __future__ import annotations

from typing import Any

from ipulaunch.configs.errors import SettingsError


def refuse_without_effect(workload: str, data: Any) -> None:
    """Refuse options that would do nothing."""
    if workload in ("cosmoflow", "imagenet"):
        option, place = (
            ("--data-dir", data.data_dir) if workload == "cosmoflow" else ("--dataset-path", data.dataset_path)
        )
        for is_given, given in (
            (data.stage_dir is not None, "--stage-dir"),
            (data.bad_records != "fail", f"--bad-records {data.bad_records}"),
        ):
            if is_given and place is None:
                hint = f"give {option}, or leave it out"
                raise SettingsError(f"{given} has no effect on synthetic samples", hint=hint)
        return
    in_memory = "the whole set is read into memory, and checked, before training"
    for is_given, option, why in (
        (data.stage_dir is not None, "--stage-dir", in_memory),
        (data.bad_records != "fail", f"--bad-records {data.bad_records}", in_memory),
        (data.augment and workload == "mnist", "--augment", "digits are not cropped and flipped"),
    ):
        if is_given:
            raise SettingsError(f"{option} has no effect on {workload}", hint=f"leave it out: {why}")
