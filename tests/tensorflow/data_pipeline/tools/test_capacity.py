"""What the measurement of a capacity finds out about sets of each form."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.data_pipeline.tools import build_imagenet, capacity, make_cosmoflow, make_images
from ipulaunch.topology.planning.plan import Plan, to_json

SIDE = 8


def quiet(event: Dict[str, Any]) -> None:
    """Nothing is drawn."""


def volumes(directory: Path, *, gzip: bool) -> None:
    options = {"out": str(directory), "samples": 3, "validation_samples": 1, "seed": 0}
    make_cosmoflow.run({**options, "side": SIDE, "samples_per_file": 1, "gzip": gzip}, quiet)


def pictures(directory: Path, *, pixels: bool) -> None:
    published = directory.parent / "published" if pixels else directory
    options = {"kind": "imagenet", "out": str(published), "samples": 3, "validation_samples": 1, "seed": 0}
    make_images.run({**options, "side": 16, "files": 2, "classes": 2, "boxes": False}, quiet)
    if pixels:
        others = dict.fromkeys(("raw", "longest_side", "shorter_side", "quality", "validation_labels", "shards"))
        build_imagenet.run(
            {**others, "records": str(published), "out": str(directory), "pixels": True, "workers": 1}, quiet
        )


def measured(workload: str, plan: Plan, *texts: str, form: str = "", is_made: bool = False) -> Dict[str, Any]:
    overrides = [assignment(text, "--set") for text in (f"data.side={SIDE}", "model.n_conv_layers=2", *texts)]
    if workload != "cosmoflow":
        del overrides[1]
    job = Job(workload, "cpu", resolve(workload, rehearsal=True, overrides=overrides).settings)
    options = {"job": to_yaml(job), "plan": to_json(plan), "seconds": 0.01, "form": form}
    return capacity.run({**options, "is_made": is_made, "reads_disk": not is_made}, quiet)


@pytest.mark.parametrize(
    ("workload", "make", "asked", "form"),
    [
        ("cosmoflow", functools.partial(volumes, gzip=False), "gzip", "records"),
        ("cosmoflow", functools.partial(volumes, gzip=True), "records", "gzip"),
        ("imagenet", functools.partial(pictures, pixels=False), "pixels-256", "jpeg"),
        ("imagenet", functools.partial(pictures, pixels=True), "jpeg", "pixels-256"),
    ],
    ids=["volumes", "packed volumes", "JPEGs", "pixels"],
)
def test_a_set_that_is_here_tells_its_form_and_nothing_is_left_beside_it(
    workload: str, make: Callable[[Path], None], asked: str, form: str, tmp_path: Path, make_plan: Callable[..., Plan]
) -> None:
    place = tmp_path / "set"
    make(place)
    files = sorted(place.rglob("*"))
    found = measured(workload, make_plan(2, 1), f"data.directory={place}", form=asked)
    assert found["form"] == form
    stored = [path.stat().st_size for pattern in ("train-*", "train/*") for path in place.glob(pattern)]
    assert found["stored_bytes"] == sum(stored) / 3
    for name in ("samples_per_core_s", "disk_bytes_per_s", "memory_bytes_per_s"):
        assert 0 < found[name]["low"] <= found[name]["high"]
    assert sorted(place.rglob("*")) == files


@pytest.mark.parametrize(
    ("workload", "texts", "form", "names"),
    [
        ("cosmoflow", ["data.directory=/not/here"], "gzip", ["form", "memory_bytes_per_s", "samples_per_core_s"]),
        ("cosmoflow", [], "", ["memory_bytes_per_s", "samples_per_core_s"]),
        ("mnist", ["data.synthetic_data=ipu", "data.side=28"], "", ["memory_bytes_per_s"]),
    ],
    ids=["a set that is not here", "synthetic samples", "samples of the device"],
)
def test_without_a_set_here(
    workload: str, texts: List[str], form: str, names: List[str], make_plan: Callable[..., Plan]
) -> None:
    found = measured(workload, make_plan(2, 1), *texts, form=form, is_made=bool(form))
    found.pop("uses_isal", None)
    assert sorted(found) == names and found.get("form", form) == form
