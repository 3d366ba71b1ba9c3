"""The pipelines to compare. Each is an endless iterator over the sizes of its batches."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterator, NamedTuple, Sequence

import tensorflow as tf

from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.records.index import open_index
from ipulaunch.data_pipeline.sources import cosmoflow, imagenet
from ipulaunch.data_pipeline.sources.pixel_records import image_records
from ipulaunch.data_pipeline.sources.source import Source, data_errors
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.data_pipeline.tools import bench_references as references
from ipulaunch.topology import Batch

if TYPE_CHECKING:
    from ipulaunch.data_pipeline.tools.bench import Task

_ENDLESS = range(10**9)  # weight updates: more than a measurement takes

Pipelines = Dict[str, Callable[[], Iterator[int]]]


def bound_tensorflow(threads: int) -> None:
    """Let TensorFlow have as many threads as there are cores for this process."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


class Opened(NamedTuple):
    """The pipelines of a workload by name, and what they read."""

    pipelines: Pipelines
    record_mb: float  # of one record, in the mean
    records: int
    paths: Sequence[Path]


def open_pipelines(task: Task) -> Opened:
    """The pipelines of a workload on a set."""
    threads = len(task.cores)
    directory = Path(task.data_dir)
    if task.workload == "cosmoflow":
        index = open_index(cosmoflow.find_files(directory, "train"), threads=threads)
        # The volume is nearly all of a record.
        side = int((int(index.lengths[0]) / 8) ** (1 / 3) + 1e-6) if index.records else 1
        data = CosmoflowData(directory=task.data_dir, n_train=10**9, side=side)
        source: Source = cosmoflow.CosmoflowRecords(data, "train", threads=threads)
        others: Pipelines = {
            "reference": lambda: references.volumes_as_usual(index, task, side),
            "limit": lambda: references.plain_reads(index, threads),
        }
    else:
        images = image_records(
            directory, "train", files=imagenet.find_files(directory, "train"), seed=0, augment=True, threads=threads
        )
        source, index = images, images.index
        others = {
            "reference": lambda: references.images_as_usual(index, task),
            "limit": lambda: references.decoding_alone(images, threads),
        }
    pipelines: Pipelines = {"ours": lambda: _ours(source, task), **others}
    named: Pipelines = {
        name: functools.partial(references.named, pipeline, directory) for name, pipeline in pipelines.items()
    }
    return Opened(named, float(index.lengths.mean()) / 1e6, index.records, index.paths)


def _ours(source: Source, task: Task) -> Iterator[int]:
    batch = Batch(references.MICRO_SIZES[task.workload], task.instances, 1)
    replicas = range(task.instance, task.instance + 1)
    threads = len(task.cores)
    stream = training_stream(
        source, batch, replicas, shuffle=Shuffle(0), updates=_ENDLESS, by_replica=False, threads=threads
    )
    with data_errors(source):
        for inputs, *_ in stream:
            yield int(inputs.shape[0])
