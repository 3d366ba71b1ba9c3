"""The workloads of scale.py, with their slow calls replaced by sleeps or by nothing."""

from __future__ import annotations

import functools
import os
import statistics
import threading
import time
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.records.index import open_index
from ipulaunch.data_pipeline.records.tfrecord import FOOTER
from ipulaunch.data_pipeline.sources import cosmoflow, imagenet
from ipulaunch.data_pipeline.sources.imagenet_plan import PlannedSample
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.data_pipeline.tools import bench_references as references
from ipulaunch.data_pipeline.tools.bench import Task
from ipulaunch.topology import Batch

OURS, USUAL, SLEEP = "ours", "conventional", "sleep alone"
_PLANNED = 256  # images whose decoding is measured
_VOLUMES = 8
_WINDOWS = 9
_SIDE = 128  # of a volume
_AROUND = 4096  # bytes; what lies around a volume is smaller
_USUAL_PARALLEL = 4  # maps of the conventional pipeline on volumes

Batches = Iterator[int]
Pause = Callable[[], object]


class Case(NamedTuple):
    """A workload whose slow calls are simulated."""

    name: str
    pipelines: Dict[str, Callable[[int], Batches]]  # by name, for so many threads
    slow_us: float  # of a sample, in the slow calls of our pipeline
    interpreter_us: float  # of a sample


class Watch:
    """Adds up the processor time of the calls of this thread."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.thread_time() - start

        return call


def images(directory: Path) -> Case:
    """ImageNet: one sleep for reading, checking, decoding and scaling. Files are opened, a byte is read, and closed."""

    def opened(threads: int = 1) -> Any:
        return imagenet.ImagenetRecords(directory, "train", seed=0, augment=True, threads=threads)

    source, watch = opened(), Watch()
    plan = source.planner.plan(np.zeros(1, np.int64), np.arange(_PLANNED)[None])[0]
    opencv = source.training.opencv
    source.training.decode = watch.timed(source.training.decode)
    source.training.opencv = _opencv(watch.timed(opencv.resize), watch.timed(opencv.flip))
    records = source.reader.records
    records._read_parts, records._check = watch.timed(records._read_parts), watch.timed(records._check)
    for _ in range(2):  # the first one warms up
        watch.seconds = 0.0
        source.make_images(np.int64(0), plan)
    slow_s, width = watch.seconds / _PLANNED, int(plan[0, PlannedSample._fields.index("width")])

    def simulated(source: Any, pause: Pause) -> Any:
        def decode(encoded: np.ndarray, room: np.ndarray) -> np.ndarray:
            pause()
            return room.reshape(-1, width, 3)

        records, byte = source.reader.records, bytearray(1)

        def touch(record: int, file: int, parts: List[Any]) -> None:
            descriptor = os.open(records.path(file), os.O_RDONLY)
            try:
                os.preadv(descriptor, [byte], int(source.index.offsets[record]))
            finally:
                os.close(descriptor)

        records._read_parts, records._check = touch, _nothing
        source.training.decode, source.training.opencv = decode, _opencv(_nothing, _nothing)
        return source

    task = Task("imagenet", str(directory), 0, 1, (0,))
    usual_s = _processor_s(references.images_as_usual(source.index, task))
    usual_s -= _processor_s(_sizes(references.usual_images(source.index, task, lambda *_: _picture()), 1))

    def usual(threads: int) -> Batches:
        made = references.usual_images(source.index, task, lambda *_: _slept(_picture(), usual_s), threads)
        return _sizes(made, threads)

    pause = functools.partial(time.sleep, slow_s)
    pipelines = {
        OURS: lambda threads: _stream(simulated(opened(threads), pause), 16, threads),
        USUAL: usual,
        SLEEP: lambda threads: _sleeping(pause, threads, 16),
    }
    return Case("imagenet", pipelines, 1e6 * slow_s, 1e6 * _interpreter_s(simulated(opened(), _nothing), 16))


def volumes(directory: Path) -> Case:
    """CosmoFlow: sleeps for reading and checking volumes."""
    data = CosmoflowData(directory=str(directory), n_train=10**9, side=_SIDE)

    def opened(threads: int = 1) -> Any:
        return cosmoflow.CosmoflowRecords(data, "train", threads=threads)

    source, watch = opened(), Watch()
    reader = source.reader
    reader._read_parts, reader._check = watch.timed(reader._read_parts), watch.timed(reader._check)
    for _ in range(2):
        watch.seconds = 0.0
        for number in range(_VOLUMES):
            source.load(np.array([number]))
    slow_s = watch.seconds / _VOLUMES

    def simulated(source: Any, pause: Pause) -> Any:
        """A source that reads only what lies around a volume."""
        read_parts = source.reader._read_parts

        def around(record: int, file: int, parts: List[Any]) -> None:
            pause()
            position = 0
            for part in parts:
                view = memoryview(part).cast("B")
                if len(view) < _AROUND:
                    view[:] = frames[position : position + len(view)]
                position += len(view)

        frames = bytearray(reader.length(0) + FOOTER)
        read_parts(0, 0, [frames])
        source.reader._read_parts, source.reader._check = around, _nothing
        return source

    pause = functools.partial(time.sleep, slow_s)
    index = open_index(cosmoflow.find_files(directory, "train"), threads=1)
    task = Task("cosmoflow", str(directory), 0, 1, (0,))
    whole_s = _processor_s(references.volumes_as_usual(index, task, _SIDE))
    read_s = _processor_s(1 for _ in references.usual_records(index, task))

    def usual(threads: int) -> Batches:
        # One thread reads the records one after the other, four convert them.
        records = tf.data.Dataset.range(10**9).map(lambda _: _slept(tf.zeros(1), read_s))
        made = records.map(lambda value: _slept(value, whole_s - read_s), _USUAL_PARALLEL)
        return _sizes(made.batch(1).map(lambda value: (value, value)).prefetch(4), threads)

    pipelines = {
        OURS: lambda threads: _stream(simulated(opened(threads), pause), 1, threads),
        USUAL: usual,
        SLEEP: lambda threads: _sleeping(pause, threads, 1),
    }
    silent = simulated(opened(), _nothing)
    return Case("cosmoflow", pipelines, 1e6 * slow_s, 1e6 * _interpreter_s(silent, 1))


def _nothing(*arguments: Any, **options: Any) -> None:
    return None


def _opencv(resize: Callable[..., Any], flip: Callable[..., Any]) -> SimpleNamespace:
    return SimpleNamespace(resize=resize, flip=flip, INTER_LINEAR=1)


def _picture() -> Any:
    return tf.zeros((224, 224, 3), tf.uint8)


def _slept(value: Any, seconds: float) -> Any:
    """The value, after a sleep inside of TensorFlow, where no interpreter is needed."""
    kinds = {"output_types": [value.dtype], "output_shapes": [value.shape]}
    one = tf.data.Dataset.from_tensors(value)
    # A single element is taken by asking for two.
    half = tf.constant(int(5e5 * seconds), tf.int64)
    variant = tf.raw_ops.ExperimentalSleepDataset(input_dataset=one._variant_tensor, sleep_microseconds=half, **kinds)
    return tf.raw_ops.DatasetToSingleElement(dataset=variant, **kinds)[0]


def _stream(source: Any, micro_size: int, threads: int) -> Batches:
    batch = Batch(micro_size, 1, 1)
    every = range(10**9)
    stream = training_stream(
        source, batch, range(1), shuffle=Shuffle(0), updates=every, by_replica=False, threads=threads
    )
    for inputs, *_ in stream:
        yield int(inputs.shape[0])


def _sizes(pipeline: tf.data.Dataset, threads: int) -> Batches:
    """The sizes of the micro-batches of a pipeline with so many threads."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    for inputs, *_ in pipeline.with_options(options):
        yield int(inputs.shape[0])


def _sleeping(pause: Pause, threads: int, size: int) -> Batches:
    """Threads that do nothing but sleep."""
    done: Queue[int] = Queue(4 * threads)
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            for _ in range(size):
                pause()
            done.put(size)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        while True:
            yield done.get()
    finally:
        is_over.set()
        while any(worker.is_alive() for worker in workers):
            while not done.empty():
                done.get()
            time.sleep(0.001)


def _processor_s(batches: Batches, seconds: float = 1.0) -> float:
    """Processor time of a sample."""
    for _ in range(8):
        next(batches)
    start, end, samples = time.process_time(), time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        samples += next(batches)
    return (time.process_time() - start) / samples


def _interpreter_s(source: Any, micro_size: int, batches: int = 50) -> float:
    """Processor time of a sample in the Python functions of a source whose slow calls do nothing."""
    watch, guarded = Watch(), source.guarded
    source.guarded = lambda function: watch.timed(guarded(function))
    stream = _stream(source, micro_size, 1)
    found = []
    for _ in range(_WINDOWS):
        before = watch.seconds
        samples = sum(next(stream) for _ in range(batches))
        found.append((watch.seconds - before) / samples)
    return statistics.median(found)
