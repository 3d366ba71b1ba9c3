"""What a job reads with --stage-shard: on every host only its share, and the same samples as from the set itself."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, PlanError
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.data_pipeline.order import shuffle_of
from ipulaunch.data_pipeline.share import host_share
from ipulaunch.data_pipeline.sources.selection import make_sources
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.data_pipeline.tools import make_cosmoflow, make_images
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.plan import Placement, Plan

BATCH = Batch(2, 4, 1)


def on_hosts(*hosts: str) -> Plan:
    """The plan of an instance with a replica on each of these hosts."""
    placements = [Placement(n, host, list(hosts[:n]).count(host), (0,), 1, "0", n) for n, host in enumerate(hosts)]
    return Plan("cosmoflow", "tests", 4, 1, 1, BATCH, tuple(placements), True)


PLAN = on_hosts("a", "a", "b", "b")


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Makes a small set of a workload, and the job that trains on it."""

    def made(workload: str, *settings: str, packed: bool = False) -> Job:
        directory, counts = tmp_path / "set", {"samples": 21, "validation_samples": 11, "seed": 0}
        if workload == "cosmoflow":
            made_of: Dict[str, Any] = {"side": 2, "samples_per_file": 4, "gzip": packed}
            make_cosmoflow.run({**counts, **made_of, "out": str(directory)}, lambda event: None)
            settings = ("data.side=2", "model.n_conv_layers=1", *settings)
        else:
            made_of = {"side": 40, "files": 3, "classes": 5, "boxes": True, "kind": "imagenet"}
            make_images.run({**counts, **made_of, "out": str(directory)}, lambda event: None)
            settings = ("data.side=16", "data.augment=true", *settings)
        given = [f"data.directory={directory}", "data.stage_dir=/nowhere", "data.stage_shard=true", *settings]
        overrides = [assignment(setting, "--set") for setting in given]
        return Job(workload, "cpu", resolve(workload, rehearsal=True, overrides=overrides).settings)

    return made


def on(host: str, job: Job, tmp_path: Path) -> Job:
    """The job as a host sees it: the same path is a disk of its own there."""
    return with_data(job, stage_dir=str(tmp_path / host))


def with_data(job: Job, **values: Any) -> Job:
    data = dataclasses.replace(job.settings.data, **values)
    return job._replace(settings=dataclasses.replace(job.settings, data=data))


def sources_of(job: Job, instance: int, plan: Plan = PLAN) -> Dict[str, Any]:
    return make_sources(job, plan, instance, 2, meet=str, progress=lambda what, done, total: None)


def all_sources(job: Job, tmp_path: Path) -> List[Dict[str, Any]]:
    """The sources of all instances, which wait for each other."""
    barrier, said = threading.Barrier(PLAN.instances), {}

    def of(instance: int) -> Dict[str, Any]:
        def meet(text: str) -> str:
            if instance == 0:
                said["text"] = text
            barrier.wait(60)
            first: str = said["text"]
            barrier.wait(60)
            return first

        mine = on(PLAN.placements[instance].host, job, tmp_path)
        try:
            return make_sources(mine, PLAN, instance, 1, meet=meet, progress=lambda what, done, total: None)
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(PLAN.instances) as pool:
        return list(pool.map(of, range(PLAN.instances)))


def same(one: tf.data.Dataset, other: tf.data.Dataset) -> int:
    """How many micro-batches two streams have, which must be the same."""
    pairs = list(zip(one, other))
    assert all(np.array_equal(*values) for pair in pairs for values in zip(*pair))
    return len(pairs)


def trained(job: Job, source: Any, replica: int) -> tf.data.Dataset:
    shuffle, alone = shuffle_of(job.settings, PLAN), range(replica, replica + 1)
    return training_stream(source, BATCH, alone, shuffle=shuffle, updates=range(3), by_replica=False, threads=1)


@pytest.mark.parametrize(("workload", "packed"), [("cosmoflow", False), ("cosmoflow", True), ("imagenet", False)])
def test_a_host_reads_from_its_share_what_it_would_read_from_the_set(
    workload: str, packed: bool, make: Any, tmp_path: Path
) -> None:
    job = make(workload, packed=packed)
    whole = sources_of(with_data(job, stage_dir=None, stage_shard=False), 0)
    for instance, found in enumerate(all_sources(job, tmp_path)):
        placement = PLAN.placements[instance]
        assert same(*(trained(job, each["train"], instance) for each in (found, whole))) == 3
        alone = range(instance, instance + 1)
        assert same(*(validation_stream(each["validation"], BATCH, alone, threads=1) for each in (found, whole))) == 2
        assert len(found["train"].index.staged) == (10 if placement.host == "a" else 11)  # of 21
        assert all(tmp_path / placement.host in path.parents for path in found["train"].index.paths)
    sizes = [sum(path.stat().st_size for path in (tmp_path / host).rglob("*") if path.is_file()) for host in "ab"]
    there = sum(int((each.index.lengths + 16).sum()) for each in whole.values())
    assert there <= sum(sizes) < 1.2 * there  # padding of the validation is read by one host more


def test_a_share_is_copied_once_and_continued(make: Any, tmp_path: Path) -> None:
    job, told = on("a", make("cosmoflow"), tmp_path), []  # type: ignore[var-annotated]

    def stage() -> List[Any]:
        told.clear()
        make_sources(job, on_hosts("a", "b"), 0, 2, meet=str, progress=lambda *what: told.append(what))
        return [what for what in told if what[0] == "staging"]

    total = stage()[-1][2]
    assert stage() == []
    lost, *_ = sorted((tmp_path / "a").rglob("train/*.tfrecord"))
    lost.unlink()
    again = stage()[-1]
    assert 0 < again[1] == again[2] < total


def test_the_share_of_another_number_of_hosts_is_another(make: Any, tmp_path: Path) -> None:
    job = on("a", make("cosmoflow"), tmp_path)
    first, second = (sources_of(job, 0, on_hosts("a", *others)) for others in ("b", "bcd"))
    assert len(first["train"].index.staged) == 10 and len(second["train"].index.staged) == 5
    assert not {*first["train"].index.paths} & {*second["train"].index.paths}


def test_a_damaged_record_is_refused_with_its_place_or_replaced_from_the_share(make: Any, tmp_path: Path) -> None:
    job = on("a", make("cosmoflow"), tmp_path)
    path = sorted((tmp_path / "set" / "train").glob("*.tfrecord"))[2]
    data = bytearray(path.read_bytes())
    data[60] ^= 1  # of record 8, in the share of the first host, which ends with record 9
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"{path}, record 0 at byte 0: the data has the wrong checksum"):
        sources_of(job, 0, on_hosts("a", "b"))
    source = sources_of(with_data(job, bad_records="skip"), 0, on_hosts("a", "b"))["train"]
    _, _, read = source._load_or_replace(np.array([8, 9]))
    assert read.tolist() == [9, 9] and list(source.bad) == [8]
    assert source.following(9) == 0  # the next record belongs to another host


def test_a_disk_that_cannot_take_a_share_is_refused_with_both_numbers(
    make: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=100 << 20, free=2 << 20))
    with pytest.raises(DataError, match=r"staging needs 0 MiB in .*, which has 0 MiB to spare"):
        sources_of(on("a", make("cosmoflow"), tmp_path), 0)


def test_the_instances_of_a_host_must_be_neighbours() -> None:
    with pytest.raises(PlanError, match="host a has instances 0, 2: with --stage-shard"):
        host_share(on_hosts("a", "b", "a", "b"), 0)


def test_fewer_samples_than_hosts_have_no_shares(make: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 training samples have no share for each of 2 hosts"):
        sources_of(on("a", make("cosmoflow", "data.n_train=1"), tmp_path), 0)
