"""Makes a set in CosmoFlow's published format, of random fields whose statistics follow their four targets."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from ipulaunch.data_pipeline.parallel import Progress, Report, cores, in_order
from ipulaunch.data_pipeline.tools.new_set import Part, encode_example, generator, new_directory, write_records

# The channels of the published volumes are redshifts: the same structure at earlier and earlier times.
_GROWTH = np.array([1.0, 0.8, 0.6, 0.45], np.float32)
_MEAN_COUNT = 8.0


def run(options: Dict[str, Any], report: Report) -> Dict[str, Any]:
    """Write train/ and validation/."""
    counts = {"train": options["samples"], "validation": options["validation_samples"]}
    files = [file for split, count in counts.items() for file in _files(split, count, options["samples_per_file"])]
    progress = Progress(report, "volumes", sum(counts.values()))
    out = Path(options["out"])
    with new_directory(out) as directory:
        for split in counts:
            (directory / split).mkdir()

        def write(file: Part) -> int:
            path = directory / file.split / file.name
            write_records(path, _records(file, options["side"], options["seed"], progress), packed=options["gzip"])
            return path.stat().st_size

        size = sum(in_order(write, files, cores(), progress))
    return {"out": str(out), "samples": counts, "files": len(files), "bytes": size}


def _files(split: str, count: int, per_file: int) -> List[Part]:
    starts = range(0, count, per_file)
    return [
        Part(split, f"part-{n:05}.tfrecord", range(start, min(start + per_file, count)))
        for n, start in enumerate(starts)
    ]


def _records(file: Part, side: int, seed: int, progress: Progress) -> Iterator[bytes]:
    for number in file.samples:
        volume, targets = draw_sample(side, seed, file.split, number)
        yield encode_example({"x": volume.astype("<i2").tobytes(), "y": targets})
        progress.add()


def draw_sample(side: int, seed: int, split: str, number: int) -> Tuple[np.ndarray, np.ndarray]:
    """Counts in a volume, and their parameters: amplitude, slope, cut-off and mean, each in [-1, 1]."""
    draw = generator(seed, split, number)
    targets = draw.random(4, np.float32) * 2 - 1
    amplitude, slope, cut_off, mean = targets.tolist()
    field = _gaussian_field(side, 1.5 + 1.5 * slope, 0.25 * 2**cut_off, draw)
    sigmas = np.exp(0.8 * amplitude - 0.2) * _GROWTH
    counts = np.exp(field[..., None] * sigmas - sigmas**2 / 2)
    counts *= _MEAN_COUNT * 2**mean
    counts += draw.random(field.shape, np.float32)[..., None]  # rounds up or down so that the mean is kept
    return np.minimum(counts, 32767).astype(np.int16), targets


def _gaussian_field(side: int, steepness: float, cut_off: float, draw: np.random.Generator) -> np.ndarray:
    """A random field of variance 1, its power falling with the wave number and cut off above one."""
    wave = _wave_numbers(side)
    modes = draw.standard_normal((*wave.shape, 2), np.float32).view(np.complex64)[..., 0]
    modes *= wave ** (-steepness / 2) * np.exp(-((wave / cut_off) ** 2) / 2)
    modes[0, 0, 0] = 0
    field = np.fft.irfftn(modes, s=(side, side, side), axes=(0, 1, 2)).astype(np.float32)
    return field / max(float(field.std()), 1e-12)


@functools.lru_cache(1)
def _wave_numbers(side: int) -> np.ndarray:
    """The length of the wave vector of each mode of a real field, in waves per voxel; 1 for the constant one."""
    full, half = np.fft.fftfreq(side), np.fft.rfftfreq(side)
    wave: np.ndarray = np.sqrt(full[:, None, None] ** 2 + full[:, None] ** 2 + half**2).astype(np.float32)
    wave[0, 0, 0] = 1
    return wave
