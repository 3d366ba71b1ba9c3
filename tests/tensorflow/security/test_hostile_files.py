"""Files that were made to do harm: what each would have done, and that it gets an error and nothing else."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import platform
import struct
import time
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any, Callable, Dict

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, IpulaunchError, PlanError, SettingsError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import Update
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.configs.settings.schema import build, leaves, value_of
from ipulaunch.configs.settings.tree import assignment, parse_yaml
from ipulaunch.configs.settings.workloads import resolve, schema_of
from ipulaunch.configs.text import utc
from ipulaunch.data_pipeline.records import gzip_files
from ipulaunch.data_pipeline.records.archive import NotAnArchive, read_arrays
from ipulaunch.data_pipeline.records.index import open_index
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.sources.image_arrays import Cifar
from ipulaunch.data_pipeline.sources.pickled import NotAPlainPickle, read_pickle
from ipulaunch.data_pipeline.tools.new_set import write_records
from ipulaunch.data_pipeline.tools.old_pickle import old_pickle
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.supervise.progress import Follower
from ipulaunch.topology.machines import cpulist, hostlist
from ipulaunch.topology.planning.batch import Batch
from ipulaunch.topology.planning.plan import Placement, Plan, from_json, to_json
from ipulaunch.workers.models.optimizers import Sgd
from ipulaunch.workers.state import checkpoints
from ipulaunch.workers.state.training_state import TrainingState

DEEP = "[" * 100_000
A_FRACTION = next(leaf.key for leaf in leaves(schema_of("imagenet")) if leaf.kind.item is Fraction)


@pytest.fixture(autouse=True)
def soon() -> Any:
    """None of these takes long; most would have taken for ever."""
    started = time.process_time()
    yield
    assert time.process_time() - started < 60


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: !!python/object/apply:os.system ['touch broken']", id="an object"),
        pytest.param("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]", id="aliases of aliases"),
        pytest.param("a: &a [*a]", id="an alias of itself"),
        pytest.param("data: " + DEEP, id="deep"),
        pytest.param("data: {n_train: !!int ''}", id="a number without digits"),
        pytest.param("data: {n_train: 1:" + "59:" * 300 + "0.5}", id="sixties beyond every float"),
        pytest.param("data: {n_train: " + "9" * 500_000 + "}", id="a number of many digits"),
        pytest.param('data: {directory: "a\\0b"}', id="a path with a zero"),
        pytest.param('data: {directory: "a\\e[2Jb"}', id="a path that clears the screen"),
        pytest.param("<<: {data: {}}", id="a merge"),
        pytest.param("pipeline: {device_mapping: [18446744073709551616]}", id="an IPU of a high number"),
    ],
)
def test_settings(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(SettingsError):
        resolve("cosmoflow", rehearsal=False, config_path=tmp_path / "my.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["my.yaml"]


@pytest.mark.parametrize("value", ["1e-999999999", "0e999999999", "0E999999999/3", "9" * 100_000])
def test_fractions_of_a_thousand_million_digits(value: str) -> None:
    with pytest.raises(SettingsError, match=r"expected a number|a number of 100000 characters"):
        build(schema_of("imagenet"), assignment(f"{A_FRACTION}={value}", "--set"), {})


def test_small_fractions_are_still_read() -> None:
    settings = build(schema_of("imagenet"), assignment(f"{A_FRACTION}=1e-3", "--set"), {})
    assert value_of(settings, A_FRACTION) == Fraction(1, 1000)


def test_bytes_that_are_no_text_are_refused_as_a_setting() -> None:
    with pytest.raises(SettingsError, match="expected one line of text"):
        build(schema_of("cosmoflow"), assignment("data.directory=\udcff", "--set"), {})
    with pytest.raises(SettingsError, match="is not text"):
        parse_yaml("a: \udcff", "job.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "host[0-99999999]",
        "h[0-65535],i[0-65535]",
        "x" * 1_000_000 + "[0-65535]",
        "h[" + "9" * 30 + "]",
        "-oProxyCommand=x",
    ],
    ids=["many", "many twice", "a long name", "a long number", "an option of ssh"],
)
def test_host_lists(text: str) -> None:
    with pytest.raises(UsageError):
        hostlist.parse(text)


def test_a_host_file_of_thousands_of_ranges(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("".join(f"h{number}-[0-65535]\n" for number in range(10_000)))
    with pytest.raises(UsageError, match="names more than 65536 hosts"):
        hostlist.read_file(tmp_path / "hosts")


def test_a_host_file_without_an_end() -> None:
    with pytest.raises(UsageError, match="larger than"):
        hostlist.read_file(Path("/dev/zero"))


@pytest.mark.parametrize("text", ["0-65535," * 100_000, "9" * 1_000_000, "٣", "+1", "1_0"])
def test_cpu_lists(text: str) -> None:
    with pytest.raises(ValueError, match=r"CPUs"):
        cpulist.parse(text)


PLAN = Plan("w", "s", 1, 1, 1, Batch(1, 1, 1), (Placement(0, "localhost", 0, (0,), 1, "0", 0),), False)


@pytest.mark.parametrize(
    "change",
    [
        {"host": "-oProxyCommand=touch broken"},
        {"host": "a b"},
        {"host": "a,b"},
        {"host": "x" * 300},
        {"numa_nodes": [1 << 40]},
        {"numa_nodes": [-1]},
        {"cpus": "0-65535," * 1000},
        {"cores": 10**50},
    ],
    ids=str,
)
def test_plans(change: Dict[str, Any]) -> None:
    data = json.loads(to_json(PLAN))
    data["placements"][0].update(change)
    with pytest.raises(PlanError):
        from_json(json.dumps(data))


@pytest.mark.parametrize("name", ["workload", "system"])
def test_plans_have_plain_names(name: str) -> None:
    with pytest.raises(PlanError):
        from_json(to_json(PLAN._replace(**{name: "a\n#SBATCH --x"})))


@pytest.mark.parametrize(
    "text", [DEEP, "9" * 1_000_000, '"\\ud800"', "{", ""], ids=["deep", "long", "half", "cut", "none"]
)
def test_json(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_whole_characters_written_in_halves_are_read() -> None:
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"


def test_pipes_devices_and_directories_are_no_records(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read_text(path)


@pytest.mark.parametrize(
    "fields",
    [{"id": "--all"}, {"id": ["1"]}, {"cluster": "-x"}, {"submitted": "\x1b[2J"}, {"cancelled": "a b"}, {"id": 5}],
    ids=str,
)
def test_records_of_jobs(fields: Dict[str, Any], tmp_path: Path) -> None:
    sound = record.Submitted("slurm", "4711", "job.sh", utc(), "cosmoflow")
    record.write(tmp_path, sound)
    assert record.read(tmp_path) == sound
    data = json.loads((RunDirectory(tmp_path).submitted).read_text())
    (RunDirectory(tmp_path).submitted).write_text(json.dumps({**data, **fields}))
    with pytest.raises(DataError, match="not the record of a job"):
        record.read(tmp_path)


def test_events_of_the_wrong_kind_change_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.instance(0).mkdir()
    counts = {"samples": 8, "epochs": 10**9, "updates_per_epoch": "x", "first_update": 0, "left_out": 0}
    training = {"event": "training", "time_ns": 1, **counts}
    update = {"event": "update", "time_ns": 1, "update": float("inf"), "samples_per_s": 1}
    lines = [json.dumps(training), json.dumps(update), DEEP, '{"event": "log", "time_ns": 1, "update": "1"}']
    run.events(0).write_text("\n".join([*lines, json.dumps({**update, "update": 3, "instance": 7}), "{"]))
    follower = Follower(run, 1)
    assert [(each.instance, each.event) for each in follower.look()] == [(0, Update(3, 1, {}))]
    assert follower.progress.total_updates == 0
    follower.close()


def _stack(*codes: bytes) -> bytes:
    return b"\x80\x02" + b"".join(codes)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(_stack(b"}", b")", b"\x85" * 100_000, b"K\1s."), "a key is not text", id="a hash without end"),
        pytest.param(
            _stack(b"}", b")", b"q\0h\0\x86q\0" * 80, b"K\1s."), "a key is not text", id="a hash of exponential cost"
        ),
        pytest.param(
            _stack(b"cnumpy.core.multiarray\n_reconstruct\n", b")", b"q\0h\0\x86q\0" * 80, b"K\0K\0\x87R."),
            "it holds a _Array",
            id="a message of exponential size",
        ),
        pytest.param(_stack(b"L" + b"9" * 5_000_000 + b"L\n."), "it does LONG", id="a number of many digits"),
        pytest.param(_stack(b"]" * 50_000, b"(e" * 50_000, b"."), "it holds a list", id="marks above many values"),
        pytest.param(_stack(b"\x8b\xff\xff\xff\x7f"), "it does LONG4", id="two thousand million bytes of a number"),
        pytest.param(b"\x80\x04\x8d" + b"\xff" * 8, "it does BINUNICODE8", id="a text of 2^64 bytes"),
        pytest.param(_stack(b"}r\xff\xff\xff\x7f", b"h\0."), "it is broken", id="a memo of 2^31 values"),
        pytest.param(_stack(b"c_codecs\nencode\nN}X\1\0\0\0aK\1s\x86b."), "it fills a function", id="a changed name"),
        pytest.param(_stack(b"X\xff\xff\xff\x7fabc"), "it has no end", id="a text that is not there"),
    ],
)
def test_pickles(data: bytes, said: str) -> None:
    with pytest.raises(NotAPlainPickle, match=said):
        read_pickle(data)


def test_labels_that_fit_no_number(tmp_path: Path) -> None:
    rows = np.zeros((1, 3072), np.uint8)
    sound = pickle.dumps({"data": rows, "labels": [1 << 200]}, protocol=2)
    (tmp_path / "test_batch").write_bytes(sound)
    with pytest.raises(DataError, match="are not whole numbers"):
        Cifar(tmp_path, "validation")
    (tmp_path / "test_batch").write_bytes(old_pickle({b"data": rows, b"labels": [1]}))
    assert Cifar(tmp_path, "validation").samples == 1


def _npy(header: str, body: bytes = b"") -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def _zip(content: bytes, how: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.writestr("weight_00000000.npy", content)
    return file.getvalue()


HUGE = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_zip(_npy(HUGE)), id="a shape of terabytes"),
        pytest.param(_zip(_npy(HUGE.replace("<f8", "|O"))), id="objects"),
        pytest.param(_zip(_npy(HUGE.replace("'<f8'", "[('a', '|O')]"))), id="structures"),
        pytest.param(_zip(_npy("(" * 4000)), id="a header of brackets"),
        pytest.param(_zip(_npy("(" * 65_000)), id="a longer header"),
        pytest.param(_zip(_npy("{" + HUGE)), id="a header without an end"),
        pytest.param(_zip(_npy(HUGE.replace("<f8", "<U4"))), id="text"),
        pytest.param(_zip(_npy(HUGE.replace("1000000000000,", ""), bytes(9))), id="a byte too many"),
        pytest.param(_zip(_npy("__import__('os').system('true')")), id="a header that calls"),
        pytest.param(_zip(b"\0" * (1 << 28), zipfile.ZIP_DEFLATED), id="packed zeros"),
        pytest.param(_zip(b"cos\nsystem\n(S'true'\ntR."), id="a pickle"),
    ],
)
def test_archives_of_arrays(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive):
        read_arrays(io.BytesIO(data), lambda name: True, len(data))
    (tmp_path / "state.npz").write_bytes(data)
    manifest = {"facts": {"update": 1}, "sha256": {"state.npz": hashlib.sha256(data).hexdigest()}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="not a complete checkpoint"):
        checkpoints.load(tmp_path)


@pytest.mark.parametrize("update", [True, -1, 1.5, "1", 10**30, None])
def test_manifests_with_a_wrong_update(update: Any, tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, {"update": 1}, weights=[np.ones(2)], names=["a"])
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["facts"]["update"] = update
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"its update is|digits"):
        checkpoints.load(path)


def test_a_deep_manifest(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, {"update": 1}, weights=[np.ones(2)], names=["a"])
    (path / "manifest.json").write_text(DEEP)
    with pytest.raises(DataError, match="nested too deep"):
        checkpoints.load(path)


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("lengths", [1 << 50, 5]),
        ("lengths", [-1, 5]),
        ("lengths", [3]),
        ("offsets", [-(1 << 63), 31]),
        ("offsets", [1 << 62, 1 << 62]),
        ("counts", [-2]),
        ("counts", [1 << 62]),
        ("counts", [[2]]),
    ],
)
def test_an_index_that_lies(column: str, values: Any, is_packed: bool, tmp_path: Path) -> None:
    file, place = tmp_path / "a.tfrecord", tmp_path / ".ipulaunch-index.npz"
    write_records(file, [b"one", b"three"], packed=is_packed)
    open_index([file], threads=1)
    with np.load(place) as arrays:
        columns = {name: arrays[name] for name in arrays.files}
    columns[column] = np.array(values, np.int64)
    np.savez(place, **columns)
    index = open_index([file], threads=1)
    reader = RecordReader(index)
    try:
        assert [reader.read(number) for number in range(index.records)] == [b"one", b"three"]
    except DataError:
        assert is_packed and column == "lengths"  # only unpacking such a file tells how long it is


def test_an_index_is_not_written_through_a_link_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / f".ipulaunch-index.npz.{platform.node()}.{os.getpid()}").symlink_to(mine)
    write_records(tmp_path / "set" / "a.tfrecord", [b"one"])
    open_index([tmp_path / "set" / "a.tfrecord"], threads=1)
    assert mine.read_text() == "precious"


def test_packed_files_are_unpacked_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzip_files, "_MOST_BYTES", 1 << 20)
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(b"\0" * (1 << 20)))
    assert len(gzip_files.unpacked(path)) == 1 << 20
    path.write_bytes(gzip.compress(b"\0" * (1 << 23)))
    with pytest.raises(DataError, match="more than 1048576 bytes when unpacked"):
        gzip_files.unpacked(path)


@pytest.mark.parametrize("read", [gzip_files.is_gzip, gzip_files.unpacked], ids=["look", "unpack"])
def test_a_file_that_is_not_there_is_our_error(read: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(IpulaunchError, match="nowhere"):
        read(tmp_path / "nowhere")


def test_a_checkpoint_with_another_state_of_the_training_step(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    optimizer = Sgd(0.1)
    optimizer._create_all_weights(model.trainable_variables)
    state = TrainingState(model, optimizer, [tf.Variable([1.0, 2.0])])
    sound = checkpoints.load(state.save(tmp_path, {"update": 1}))
    state.restore(sound)
    with pytest.raises(DataError, match=r"is \(3,\), expected \(2,\)"):
        state.restore(sound._replace(more=[np.zeros(3, np.float32)]))
