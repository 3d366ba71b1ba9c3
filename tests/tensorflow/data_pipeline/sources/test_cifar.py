from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.image_arrays import Cifar
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.data_pipeline.tools.old_pickle import old_pickle
from ipulaunch.topology import Batch

IMAGES = np.random.RandomState(0).randint(0, 256, (20, 32, 32, 3)).astype(np.uint8)
LABELS = np.arange(20) % 10
ROWS = IMAGES.transpose(0, 3, 1, 2).reshape(20, 3072)
PARTS = {
    "test_batch": slice(0, 20),
    **{f"data_batch_{n + 1}": part for n, part in enumerate(slice(4 * n, 4 * n + 4) for n in range(5))},
}

Dump = Callable[[Dict[str, Any]], bytes]


def binary(directory: Path) -> None:
    for name, part in PARTS.items():
        (directory / f"{name}.bin").write_bytes(np.column_stack([LABELS[part], ROWS[part]]).astype(np.uint8).tobytes())


def python_2(values: Dict[str, Any]) -> bytes:
    return old_pickle({key.encode(): value for key, value in values.items()})


def python_3(protocol: int) -> Dump:
    return lambda values: pickle.dumps(values, protocol=protocol)


def pickled(dump: Dump) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        for name, part in PARTS.items():
            values = {"batch_label": b"a batch", "labels": LABELS[part].tolist(), "data": ROWS[part]}
            (directory / name).write_bytes(dump({**values, "filenames": [b"a.png"] * len(values["labels"])}))

    return write


def inside(folder: str, write: Callable[[Path], None]) -> Callable[[Path], None]:
    def write_inside(directory: Path) -> None:
        (directory / folder).mkdir()
        write(directory / folder)

    return write_inside


def archive(directory: Path) -> None:
    arrays = {"x_train": IMAGES, "y_train": LABELS[:, None], "x_test": IMAGES, "y_test": LABELS[:, None]}
    np.savez(directory / "cifar10.npz", **arrays)


FORMS = {
    "binary": binary,
    "binary folder": inside("cifar-10-batches-bin", binary),
    "python 2": inside("cifar-10-batches-py", pickled(python_2)),
    "python 3, protocol 2": pickled(python_3(2)),
    "python 3, protocol 4": pickled(python_3(4)),
    "npz": archive,
}


@pytest.mark.parametrize("write", FORMS.values(), ids=list(FORMS))
@pytest.mark.parametrize("split", ["train", "validation"])
def test_every_published_form_gives_the_same_samples(write: Callable[[Path], None], split: str, tmp_path: Path) -> None:
    write(tmp_path)
    source = Cifar(tmp_path, split)
    images, labels = source.load(np.array([19, 0, 5]))
    assert source.samples == 20
    assert images.dtype == np.uint8 and labels.dtype == np.int32
    assert labels.tolist() == [9, 0, 5]
    np.testing.assert_array_equal(images, IMAGES[[19, 0, 5]])


def test_cifar_100_takes_the_fine_labels(tmp_path: Path) -> None:
    fine, coarse = LABELS + 90, LABELS
    (tmp_path / "train.bin").write_bytes(np.column_stack([coarse, fine, ROWS]).astype(np.uint8).tobytes())
    batch = {"data": ROWS, "coarse_labels": coarse.tolist(), "fine_labels": fine.tolist()}
    (tmp_path / "test").write_bytes(python_2(batch))
    for split in ("train", "validation"):
        images, labels = Cifar(tmp_path, split, classes=100).load(np.array([3]))
        assert labels.tolist() == [93]
        np.testing.assert_array_equal(images[0], IMAGES[3])


@pytest.mark.parametrize("classes", [10, 100])
def test_a_missing_set_is_answered_with_its_files_and_where_they_come_from(classes: int, tmp_path: Path) -> None:
    told = re.escape(f"no CIFAR-{classes} in {tmp_path}, or not all of its train files")
    with pytest.raises(DataError, match=told) as caught:
        Cifar(tmp_path, "train", classes=classes)
    expected = {10: "data_batch_1.bin to data_batch_5.bin", 100: "train.bin"}[classes]
    assert expected in caught.value.hint and f"cifar{classes}.npz" in caught.value.hint
    assert "www.cs.toronto.edu" in caught.value.hint and caught.value.exit_code == 5


class Attack:
    def __reduce__(self) -> Any:
        return os.mkdir, ("broken in",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps({"data": Attack()}, protocol=2), r"it asks for (posix|nt) mkdir"),
        (pickle.dumps({"data": Attack()}, protocol=4), r"it asks for (posix|nt) mkdir"),
        (pickle.dumps({"data": np.float64}, protocol=2), "it asks for numpy float64"),
        (b"cos\nsystem\n(S'true'\ntR.", "it asks for os system"),
        (b"(S'true'\nios\nsystem\n.", "it does"),
        (b"\x80\x02}U\x01ab.", "it fills a dict"),
        (b"\x80\x02]q\x00.", "it holds a list"),
        (b"\x80\x02}", "it has no end"),
        (b"\x80\x02R.", "it is broken"),
        (b"no pickle", "it "),
        (b"", "it has no end"),
        (old_pickle({b"data": b"text"}), "holds data, expected data and labels"),
        (old_pickle({b"data": ROWS[:, :5], b"labels": [1] * 20}), r"rows of \(5,\) bytes, expected 3072"),
        (old_pickle({b"data": ROWS, b"labels": [1] * 19}), "a label for each"),
        (old_pickle({b"data": ROWS, b"labels": [10] * 20}), "labels are 10 to 10, expected 0 to 9"),
        (old_pickle({b"data": ROWS, b"labels": [b"cat"] * 20}), "labels are not whole numbers"),
        (pickle.dumps({"data": ROWS.astype(float), "labels": [1] * 20}, protocol=2), "an array of f8, expected bytes"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_a_batch_is_read_without_being_run(content: bytes, said: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        Cifar(tmp_path, "validation")
    assert str(tmp_path / "test_batch") in caught.value.message
    assert not (tmp_path / "broken in").exists()


def test_bytes_at_random_never_do_worse_than_a_data_error(tmp_path: Path) -> None:
    draw = np.random.RandomState(0)
    sound = np.frombuffer(old_pickle({b"data": ROWS[:1], b"labels": [1]}), np.uint8)
    for _ in range(300):
        data = sound.copy()
        data[draw.randint(0, 60, 3)] = draw.randint(0, 256, 3)
        (tmp_path / "test_batch").write_bytes(data.tobytes())
        try:
            Cifar(tmp_path, "validation")
        except DataError:
            continue


def test_a_binary_batch_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_batch.bin").write_bytes(bytes(3072))
    with pytest.raises(DataError, match=r"test_batch\.bin has 3072 bytes, expected a multiple of 3073"):
        Cifar(tmp_path, "validation")


def stream(directory: Path, instances: int, augment: bool = True, seed: int = 7, epochs: int = 2) -> List[np.ndarray]:
    """The images that replica after replica trains on, update by update, put together from all instances."""
    batch = Batch(micro_size=5, replicas=4, accumulation=1)
    parts = []
    for instance in range(instances):
        local = batch.replicas // instances
        replicas = range(instance * local, (instance + 1) * local)
        source = Cifar(directory, "train", seed=seed, augment=augment)
        updates = range(epochs * (source.samples // batch.global_size))
        made = training_stream(
            source, batch, replicas, shuffle=Shuffle(1), updates=updates, by_replica=False, threads=2
        )
        parts.append(np.stack([images.numpy() for images, _ in made]).reshape(epochs, local, 5, 32, 32, 3))
    return list(np.concatenate(parts, axis=1))


def test_augmentation_is_the_same_for_any_number_of_instances_and_another_in_each_epoch(tmp_path: Path) -> None:
    binary(tmp_path)
    first, second = stream(tmp_path, 1)
    for instances in (1, 2, 4):
        again = stream(tmp_path, instances)
        np.testing.assert_array_equal(again[0], first)
        np.testing.assert_array_equal(again[1], second)
    known = {image.tobytes() for image in first.reshape(-1, 32, 32, 3)}
    assert not known & {image.tobytes() for image in second.reshape(-1, 32, 32, 3)}
    assert not np.array_equal(stream(tmp_path, 1, seed=8)[0], first)
    plain = stream(tmp_path, 2, augment=False)[0].reshape(-1, 32, 32, 3)
    assert {image.tobytes() for image in plain} == {image.tobytes() for image in IMAGES}


def test_an_augmented_image_is_the_image_shifted_and_perhaps_flipped(tmp_path: Path) -> None:
    binary(tmp_path)
    source = Cifar(tmp_path, "train", seed=7, augment=True)
    ids = np.arange(20)
    padded = np.pad(IMAGES, ((0, 0), (4, 4), (4, 4), (0, 0)))
    shifts, flips = set(), set()
    for epoch in range(10):
        images, labels = source.load_augmented(np.int64(epoch), ids)
        assert labels.tolist() == LABELS.tolist()
        for number, image in enumerate(images):
            found = [
                (top, left, flip)
                for top in range(9)
                for left in range(9)
                for flip in (1, -1)
                if np.array_equal(padded[number, top : top + 32, left : left + 32][:, ::flip], image)
            ]
            assert len(found) == 1
            shifts.add(found[0][:2])
            flips.add(found[0][2])
    assert len(shifts) > 60 and flips == {1, -1}
