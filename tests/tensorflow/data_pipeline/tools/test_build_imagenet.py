from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.data_pipeline.tools import build_imagenet, verify


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


@pytest.fixture
def archives(raw: Path, tmp_path: Path) -> Path:
    """The same images in archives as the challenge has them, with some members that are none of its images."""
    place = tmp_path / "archives"
    place.mkdir()
    with tarfile.open(place / "ILSVRC2012_img_train.tar", "w") as outer:
        for synset in ("n03", "n01", "n02"):
            part = io.BytesIO()
            with tarfile.open(fileobj=part, mode="w") as inner:
                for image in sorted((raw / "train" / synset).iterdir(), reverse=True):
                    add(inner, image.name if synset == "n01" else f"../../{synset}/{image.name}", image.read_bytes())
                add(inner, "readme.txt", b"no image")
                add(inner, "._hidden.JPEG", b"no image")
            add(outer, f"{synset}.tar", part.getvalue())
        add(outer, "readme.txt", b"no archive")
        add(outer, "._n00.tar", b"no archive")
    with tarfile.open(place / "ILSVRC2012_img_val.tar", "w") as outer:
        for image in sorted((raw / "validation").iterdir()):
            add(outer, image.name, image.read_bytes())
        link = tarfile.TarInfo("link.JPEG")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        outer.addfile(link)
    (place / "validation_labels.txt").write_text("n03\n1\nn02\n")
    return place


@pytest.fixture
def raw(tmp_path: Path, jpeg: Callable[..., bytes], cmyk_jpeg: bytes) -> Path:
    """Three classes of four images, among them a PNG named .JPEG, CMYK and grey; three to validate, flat."""
    for number, synset in enumerate(("n02", "n01", "n03")):
        folder = tmp_path / "raw" / "train" / synset
        folder.mkdir(parents=True)
        for image in range(4):
            (folder / f"{synset}_{image}.JPEG").write_bytes(jpeg(6 + image, 8 + number))
    train = tmp_path / "raw" / "train"
    png = tf.io.encode_png(tf.fill([5, 7, 4], tf.constant(50, tf.uint8))).numpy()
    (train / "n01" / "n01_0.JPEG").write_bytes(png)
    (train / "n02" / "n02_0.JPEG").write_bytes(cmyk_jpeg)
    (train / "n03" / "n03_0.JPEG").write_bytes(jpeg(channels=1))
    flat = tmp_path / "raw" / "validation"
    flat.mkdir()
    for image in range(3):
        (flat / f"val_{image}.JPEG").write_bytes(jpeg(20, 30))
    (tmp_path / "raw" / "validation_labels.txt").write_text("n03\n1\nn02\n")
    return tmp_path / "raw"


def build(raw: Path, out: Path, report: Any = lambda event: None, **options: Any) -> Dict[str, Any]:
    given = {"shards": 3, "longest_side": None, "validation_labels": None, "workers": 2, **options}
    return build_imagenet.run({"raw": str(raw), "out": str(out), **given}, report)


def features(out: Path, split: str) -> Dict[str, Any]:
    paths = [str(path) for path in sorted(out.glob(f"{split}-*"))]
    records = tf.data.TFRecordDataset(paths).as_numpy_iterator()
    found = [tf.train.Example.FromString(record).features.feature for record in records]
    return {one["image/filename"].bytes_list.value[0].decode(): one for one in found}


def labels(out: Path, split: str) -> Dict[str, int]:
    return {name: one["image/class/label"].int64_list.value[0] for name, one in features(out, split).items()}


def contents(out: Path) -> Dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def test_every_image_is_there_with_its_class(raw: Path, tmp_path: Path) -> None:
    result = build(raw, tmp_path / "out")
    assert result["images"] == {"train": 12, "validation": 3}
    assert (result["classes"], result["shards"], result["converted"]) == (3, {"train": 3, "validation": 1}, 2)
    assert labels(tmp_path / "out", "train") == {
        f"n0{label}_{image}.JPEG": label for label in (1, 2, 3) for image in range(4)
    }
    assert labels(tmp_path / "out", "validation") == {"val_0.JPEG": 3, "val_1.JPEG": 1, "val_2.JPEG": 2}
    checked = verify.run({"directory": str(tmp_path / "out")}, lambda event: None)
    assert (checked["defects"], [note["message"] for note in checked["notes"]]) == (0, ["grey"])


def test_names_that_start_with_a_dot_are_ignored(raw: Path, jpeg: Callable[..., bytes], tmp_path: Path) -> None:
    build(raw, tmp_path / "whole")
    for split in ("train", "validation"):
        hidden = raw / split / ".ipynb_checkpoints"
        hidden.mkdir()
        (hidden / "n01_0-checkpoint.JPEG").write_bytes(jpeg())
    (raw / "train" / "n01" / "._n01_1.JPEG").write_bytes(b"no image")
    (raw / "validation" / "._val_0.JPEG").write_bytes(b"no image")
    build(raw, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_odd_images_become_rgb_and_others_stay_as_they_are(raw: Path, tmp_path: Path) -> None:
    build(raw, tmp_path / "out")
    found = features(tmp_path / "out", "train")

    def pixels(name: str) -> np.ndarray:
        decoded: np.ndarray = tf.io.decode_jpeg(found[name]["image/encoded"].bytes_list.value[0]).numpy()
        return decoded

    assert pixels("n01_0.JPEG").shape == (5, 7, 3)
    assert np.abs(pixels("n01_0.JPEG").astype(int) - 50).max() <= 2
    assert pixels("n02_0.JPEG").shape == (8, 8, 3)
    assert np.abs(pixels("n02_0.JPEG").mean(axis=(0, 1)) - [0, 255, 255]).max() < 8
    original = (raw / "train" / "n01" / "n01_1.JPEG").read_bytes()
    assert found["n01_1.JPEG"]["image/encoded"].bytes_list.value[0] == original


def test_the_longest_side_is_limited(raw: Path, tmp_path: Path) -> None:
    build(raw, tmp_path / "out", longest_side=15)
    one = features(tmp_path / "out", "validation")["val_0.JPEG"]
    assert tf.io.decode_jpeg(one["image/encoded"].bytes_list.value[0]).shape == (10, 15, 3)
    assert (one["image/height"].int64_list.value[0], one["image/width"].int64_list.value[0]) == (10, 15)


def test_an_interrupted_build_goes_on_and_comes_to_the_same(raw: Path, tmp_path: Path) -> None:
    build(raw, tmp_path / "whole")

    def interrupt(event: Dict[str, Any]) -> None:
        if any((tmp_path / "out").glob("train-*")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(raw, tmp_path / "out", interrupt, workers=1)
    left = set(contents(tmp_path / "out")) - {".ipulaunch-build.json"}
    assert left and left <= {f"train-{number:05}-of-00003" for number in range(3)}
    times = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in left}
    result = build(raw, tmp_path / "out", workers=1)
    assert result["kept"] == len(left)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in left} == times


def test_archives_come_to_the_same_as_folders(raw: Path, archives: Path, tmp_path: Path) -> None:
    build(raw, tmp_path / "of folders")
    before = contents(archives)
    result = build(archives, tmp_path / "of archives")
    assert (result["images"], result["converted"]) == ({"train": 12, "validation": 3}, 2)
    assert contents(tmp_path / "of archives") == contents(tmp_path / "of folders")
    assert contents(archives) == before and not list(tmp_path.rglob("link.JPEG"))


def test_a_build_from_archives_goes_on(archives: Path, tmp_path: Path) -> None:
    build(archives, tmp_path / "out")
    whole = contents(tmp_path / "out")
    (tmp_path / "out" / "train-00001-of-00003").unlink()
    assert build(archives, tmp_path / "out")["kept"] == 3
    assert contents(tmp_path / "out") == whole


def test_a_damaged_image_of_an_archive_is_fetched_again_with_it(archives: Path, tmp_path: Path) -> None:
    path = archives / "ILSVRC2012_img_val.tar"
    path.write_bytes(path.read_bytes().replace(b"\xff\xd8\xff", b"not", 1))
    with pytest.raises(DataError, match=r"val_0\.JPEG at byte \d+ cannot be decoded") as caught:
        build(archives, tmp_path / "out")
    assert caught.value.hint.startswith("fetch the archive again")


def test_numbers_of_the_development_kit_follow_its_own_order(archives: Path, tmp_path: Path) -> None:
    (archives / "validation_labels.txt").unlink()
    (archives / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n3\n")
    with pytest.raises(DataError, match=r"synsets\.txt: No such file") as caught:
        build(archives, tmp_path / "out")
    assert "meta.mat" in caught.value.hint
    (archives / "synsets.txt").write_text("n02\nn03\nn01\nn09\n")
    build(archives, tmp_path / "out")
    assert labels(tmp_path / "out", "validation") == {"val_0.JPEG": 2, "val_1.JPEG": 3, "val_2.JPEG": 1}
    (archives / "synsets.txt").write_text("n02\nn03\n")
    with pytest.raises(DataError, match="has 2 classes, but not n01 of the training images"):
        build(archives, tmp_path / "other")


@pytest.mark.parametrize("names", [("1", "10", "2"), ("00", "01", "02")], ids=["plain", "zeros before"])
def test_where_folders_are_named_by_numbers_a_line_is_the_name_of_one(
    names: Tuple[str, ...], raw: Path, tmp_path: Path
) -> None:
    for synset, name in zip(("n01", "n02", "n03"), names):
        (raw / "train" / synset).rename(raw / "train" / name)
    (raw / "validation_labels.txt").write_text(" ".join(reversed(names)))
    build(raw, tmp_path / "out")
    assert labels(tmp_path / "out", "validation") == {"val_0.JPEG": 3, "val_1.JPEG": 2, "val_2.JPEG": 1}
    (raw / "validation_labels.txt").write_text(f"3 {names[1]} {names[0]}")
    with pytest.raises(DataError, match="'3' is not a class: the training images have classes named by numbers"):
        build(raw, tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("train", lambda data: data[:5000], "img_train.tar.* cannot be read as an archive: unexpected end"),
        ("train", lambda data: b"text", "img_train.tar cannot be read as an archive"),
        ("train", gzip.compress, "img_train.tar cannot be read as an archive"),
        ("train", lambda data: data.replace(b"n02.tar", b"n09.tar"), "neither a header nor the end at byte"),
        ("train", lambda data: data.replace(b"n02_1.JPEG", b"n02_9.JPEG"), "n02.tar cannot .* neither a header"),
        ("train", lambda data: bytes(10240), "holds no archives of classes"),
        ("val", lambda data: data[: len(data) - 10240], "img_val.tar"),
    ],
    ids=["cut off", "text", "packed", "bad header", "bad header inside", "empty", "no end"],
)
def test_archives_that_cannot_be_used(name: str, spoil: Any, message: str, archives: Path, tmp_path: Path) -> None:
    path = archives / f"ILSVRC2012_img_{name}.tar"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        build(archives, tmp_path / "out")


@pytest.fixture(autouse=True)
def every_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipulaunch.data_pipeline.parallel._REPORT_INTERVAL_S", 0.0)


def test_a_build_with_other_options_is_refused(raw: Path, tmp_path: Path) -> None:
    build(raw, tmp_path / "out")
    with pytest.raises(UsageError, match="begun with other shards and longest side"):
        build(raw, tmp_path / "out", shards=2, longest_side=10)
    with pytest.raises(UsageError, match="not an empty directory"):
        build(raw, raw)


def test_a_build_with_other_images_is_refused_with_how_many_there_are(raw: Path, tmp_path: Path) -> None:
    image, out = raw / "train" / "n01" / "n01_3.JPEG", tmp_path / "out"
    build(raw, out)
    data = image.read_bytes()
    for name in ("n01_7.JPEG", "n01_8.JPEG"):
        image.with_name(name).write_bytes(data)
    with pytest.raises(UsageError, match=r"begun with other images \(there are 17 now, 2 more\)$"):
        build(raw, out)
    image.unlink()
    image.with_name("n01_7.JPEG").unlink()
    with pytest.raises(UsageError, match=r"begun with other images \(there are still 15, with"):
        build(raw, out)
    image.with_name("n01_8.JPEG").unlink()
    with pytest.raises(
        UsageError, match=r"begun with other images \(there are 14 now, 1 fewer\) and shards$"
    ) as caught:
        build(raw, out, shards=2)
    assert "put back what is missing" in caught.value.hint
    image.write_bytes(data)
    assert build(raw, out)["kept"] == 4


def test_a_build_goes_on_when_a_damaged_image_was_replaced(raw: Path, tmp_path: Path) -> None:
    build(raw, tmp_path / "whole")
    image = raw / "train" / "n01" / "n01_1.JPEG"
    data = image.read_bytes()
    image.write_bytes(b"text")
    with pytest.raises(DataError, match=r"n01_1\.JPEG cannot be decoded") as caught:
        build(raw, tmp_path / "out")
    assert "replace it by a good image of the same name" in caught.value.hint
    image.write_bytes(data)
    build(raw, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: (raw / "train" / "n01" / "n01_1.JPEG").write_bytes(b"text"), "n01_1.JPEG cannot be decoded"),
        (lambda raw: cut_in_half(raw / "train" / "n01" / "n01_1.JPEG"), "n01_1.JPEG cannot be decoded: jpeg"),
        (
            lambda raw: (raw / "train" / "n01" / "n01_0.JPEG").write_bytes(b"\x89PNG\r\n\x1a\n"),
            "n01_0.JPEG",
        ),
        (lambda raw: (raw / "validation_labels.txt").write_text("n01\n"), "has 1 labels, .* has 3 images"),
        (lambda raw: (raw / "validation_labels.txt").write_text("n01 4 n02"), "'4' is not a class"),
        (lambda raw: (raw / "validation_labels.txt").write_text("n01 ² n02", encoding="utf-8"), "'²' is not a class"),
        (lambda raw: (raw / "validation_labels.txt").write_text("n01 0 n02"), "'0' is not a class"),
        (lambda raw: (raw / "validation_labels.txt").unlink(), "validation_labels.txt: No such file"),
        (lambda raw: (raw / "validation" / "n09").mkdir(), "train/ has no class of this name"),
        (lambda raw: (raw / "train" / "n00").mkdir(), "there are no train images of class n00"),
        (lambda raw: (raw / "validation" / "n01").mkdir(), "there are no validation images of class n01"),
        (lambda raw: (raw / "train").rename(raw / "t"), "there are no class folders"),
    ],
    ids=[
        *("text", "half", "png", "few labels", "wrong label", "no digit", "zero", "no labels"),
        *("unknown class", "empty class", "empty validation class", "no train"),
    ],
)
def test_raw_data_that_cannot_be_used(spoil: Any, message: str, raw: Path, tmp_path: Path) -> None:
    spoil(raw)
    with pytest.raises(DataError, match=message):
        build(raw, tmp_path / "out")
    assert not [path for path in (tmp_path / "out").glob(".*") if path.name != ".ipulaunch-build.json"]
