"""Whatever a file says, its parser has a value or one of our own errors for it, soon, and nothing else happens."""

from __future__ import annotations

import contextlib
import copy
import gzip
import hashlib
import importlib
import io
import json
import math
import pickle
import random
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, List, Sequence, Tuple

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ipulaunch.configs.errors import IpulaunchError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, from_yaml, to_yaml
from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.configs.settings.schema import build
from ipulaunch.configs.settings.tree import assignment, from_environment, merge
from ipulaunch.configs.settings.workloads import WORKLOADS, resolve, schema_of
from ipulaunch.configs.sites import Site, read_site, shipped_sites
from ipulaunch.configs.text import utc
from ipulaunch.data_pipeline.records.archive import NotAnArchive, read_arrays
from ipulaunch.data_pipeline.records.example import NotAnExample, features_by_parts, find_features
from ipulaunch.data_pipeline.records.index import open_index
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.sources.cosmoflow import CosmoflowRecords
from ipulaunch.data_pipeline.sources.image_arrays import Cifar, Mnist
from ipulaunch.data_pipeline.sources.image_header import NotAnImage, read_header, require_end
from ipulaunch.data_pipeline.sources.imagenet import ImagenetRecords
from ipulaunch.data_pipeline.tools.new_set import encode_example, write_records
from ipulaunch.data_pipeline.tools.old_pickle import old_pickle
from ipulaunch.data_pipeline.tools.traces import COLUMNS, read_attempts, read_trace
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.openmpi import OpenMpiOptions, openmpi_argv
from ipulaunch.launcher.launch import launch_record
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise.endings import read_endings
from ipulaunch.launcher.supervise.progress import Follower
from ipulaunch.launcher.supervise.verdict import End, judge
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.planning.batch import Batch
from ipulaunch.topology.planning.plan import Placement, Plan, from_json, to_json
from ipulaunch.workers.state import checkpoints

Parse = Callable[[Path, bytes], None]  # (a directory to work in, what the file says)
Watch = Callable[[str], ContextManager[None]]

PLAN = Plan(
    "cosmoflow", "pod4", 4, 1, 1, Batch(1, 4, 2),
    (Placement(0, "a1", 0, (0,), 2, "0-1", 0), Placement(1, "a2", 0, (0, 1), 2, "2,3", 2)),
    False,
)  # fmt: skip
DRAW = np.random.RandomState(0)
IMAGES, LABELS = DRAW.randint(0, 256, (2, 28, 28)).astype(np.uint8), np.array([3, 9], np.uint8)
ROWS = DRAW.randint(0, 256, (2, 3072)).astype(np.uint8)
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x02\x00\x03\x03" + b"\x01\x22\x00" * 3 + b"\xff\xd9"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x03\0\0\0\x02\x08\x02\0\0\0" + b"\0" * 16
VOLUME = encode_example({"x": np.arange(32, dtype="<i2").tobytes(), "y": np.ones(4, np.float32)})
BOX = {f"image/object/bbox/{side}": np.array([0.2], np.float32) for side in ("ymin", "xmin", "ymax", "xmax")}
PICTURE = encode_example({"image/encoded": JPEG, "image/class/label": [7], **BOX})


# What others have found to be trouble, as pieces to put into a text or a file.
TOKENS: List[bytes] = [
    b"", b"\0", b"\xff", b"\x1b[2J", b"\r\n", b"\t", b"\xc2\x85", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\\ud800",
    b"\\u0000", b"../../../etc/passwd", b"/dev/zero", b"$(reboot)", b"`reboot`", b"; reboot", b"-oProxyCommand=reboot",
    b"{job_id}",
    b"!!python/object/apply:os.system ['reboot']", b"!!python/name:os.system", b"!!binary aGk=", b"!!set {a}",
    b"!<x> y",
    b"!!int ''", b"!!float ''", b"!!bool x", b"!!timestamp x", b"&a [*a]", b"*a", b"<<: *a", b"? ", b"- ", b"%YAML 9.9",
    b"--- ", b"...", b"|+9", b">-", b"[" * 30, b"{" * 5000, b"[" * 100_000, b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
    b"1:" + b"59:" * 300 + b"0.5", b"0e999999999", b"1e-999999999", b"1e999", b"1/0", b"9" * 5000, b"-1", b"0x7fffffff",
    b"NaN", b"Infinity", b"-Infinity", b"null", b"true", b".inf", b".nan", b"18446744073709551616",
    b"[0-99999999]", b"[0-65535]", b"[0-65535,0-65535]", b"[1-", b"]", b",", b"a[0-9],", b"0-65535,", b"-", b"#",
    b"x" * 300, b"x" * 70_000, b"PK\x05\x06", b"PK\x01\x02", b"\x93NUMPY\x01\x00\xff\xff",
    b"'descr': '|O'", b"(9999999999,)",
    b"cos\nsystem\n(S'reboot'\ntR", b"\x81", b"\x93", b"R", b"(", b"t", b"q\0h\0", b"\x85",
    b"\x86", b"\x8a\xff" + b"\x7f" * 255,
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    b"\n", b"\n{}\n", b"\n[]\n",
]  # fmt: skip
VALUES: List[Any] = [
    None, True, False, 0, -1, 1, 2, 1 << 31, 1 << 63, 10**30, 10**3000, 0.5, -0.0, 1e308, math.inf, math.nan, "", " ",
    "0",
    "..", "../x", "/dev/zero", "\0", "\n", "\x1b[2J", "a\ud800", "-x", "-oProxyCommand=reboot", "$(reboot)",
    "x" * 70_000,
    "0-65535," * 50, "host[0-99999999]", "1e-999999999", "0e999999999", "9" * 5000, "1/0", [], {}, [[]], [None],
    {"a": {}},
    {"": ""}, [0] * 300, {"update": -1}, [[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]],
]  # fmt: skip


@st.composite
def harmed(draw: Any, seeds: Sequence[bytes]) -> bytes:
    """A sound text or file with some bytes changed, taken away, repeated or put in; sometimes bytes at random."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))  # type: ignore[no-any-return]
    data = bytearray(draw(st.sampled_from(seeds)))
    for kind, where, token in draw(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1 << 16), st.sampled_from(TOKENS)), min_size=1, max_size=4)
    ):
        at = where % (len(data) + 1)
        if kind == 0:
            data[at:at] = token
        elif kind == 1:
            data[at : at + len(token)] = token
        elif kind == 2:
            del data[at : at + 1 + where % 7]
        elif kind == 3 and at < len(data):
            data[at] ^= 1 << where % 8
        elif kind == 4:
            data[at:at] = data[at : at + 1 + where % 97] * (1 + where % 5)
        else:
            del data[at:]
    return bytes(data)


def _change(value: Any, turn: random.Random) -> Any:
    """The value with one part of it replaced, removed, added or renamed."""
    parts: List[Tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        for key in list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
            parts.append((part, key))
            walk(part[key])

    whole = [copy.deepcopy(value)]
    walk(whole)
    holder, key = turn.choice(parts)
    kind = turn.randrange(8)
    if kind == 0 and holder is not whole:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[turn.choice(["x", "", "__class__", "\0", "a" * 300])] = holder.pop(key)
    elif kind == 2 and isinstance(holder[key], list):
        holder[key].extend(copy.deepcopy(holder[key]))
    else:
        holder[key] = copy.deepcopy(turn.choice(VALUES))
    return whole[0]


@st.composite
def misshapen(draw: Any, seeds: Sequence[Any], write: Callable[[Any], str]) -> bytes:
    """A sound document with other values in some places, or its text harmed."""
    value = draw(st.sampled_from(seeds))
    turn = random.Random(draw(st.integers(0, 1 << 32)))
    for _ in range(1 + turn.randrange(3)):
        value = _change(value, turn)
    return write(value).encode("utf-8", "surrogatepass")


def documents(values: Sequence[Any], texts: Sequence[str] = ()) -> st.SearchStrategy[bytes]:
    seeds = [text.encode() for text in (*texts, *map(json.dumps, values))]
    return st.one_of(harmed(seeds), misshapen(list(values), json.dumps))


@dataclass(frozen=True)
class Parser:
    """Something that reads what others wrote, and the cases for it."""

    name: str
    cases: st.SearchStrategy[bytes]
    parse: Parse
    also: Tuple[type, ...] = ()  # errors of its own, which its callers turn into ours


PARSERS: List[Parser] = []


def parser(name: str, cases: st.SearchStrategy[bytes], *also: type) -> Callable[[Parse], Parse]:
    def add(parse: Parse) -> Parse:
        PARSERS.append(Parser(name, cases, parse, also))
        return parse

    return add


def _put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


SETTINGS = {
    "data": {"side": 8, "n_train": 16},
    "training": {"num_epochs": 1, "micro_batch_size": 1, "seed": 3},
    "launch": {"io_bound": True},
    "optimizer": {"name": "sgd", "learning_rate": 0.1},
    "rehearsal": {"data": {"n_train": 4}},
}


@parser("settings", documents([SETTINGS], [yaml.safe_dump(SETTINGS)]))
def settings(place: Path, data: bytes) -> None:
    resolve("cosmoflow", rehearsal=True, config_path=_put(place / "my.yaml", data))


@parser(
    "one setting", harmed([b"data.n_train=64", b"optimizer.learning_rate=1/2", b"data.directory=/a b", b"a.b=[1, 2]"])
)
def one_setting(place: Path, data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")  # as Python hands arguments and variables to us
    key, _, value = text.partition("=")
    given = merge(assignment(text, "--set"), from_environment({f"IPULAUNCH_DATA__{key}": value}))
    build(schema_of("cosmoflow"), given, {})


SITES = [path.read_text() for path in shipped_sites().values()]
for name in shipped_sites():  # the first of them evaluates the annotations of our settings, which is watched as well
    read_site(name)


@parser("site", documents([yaml.safe_load(text) for text in SITES], SITES))
def site(place: Path, data: bytes) -> None:
    assert isinstance(read_site(str(_put(place / "site.yaml", data))), Site)


JOBS = [to_yaml(Job(name, "cpu", resolve(name, rehearsal=True).settings)) for name in WORKLOADS]


@parser("job.yaml", documents([yaml.safe_load(text) for text in JOBS], JOBS))
def job(place: Path, data: bytes) -> None:
    found = from_yaml(data.decode("utf-8", "replace"), "job.yaml")
    assert from_yaml(to_yaml(found), "job.yaml") == found


HOSTS = [b"a,b,c", b"host[0-3]", b"node[01-03,7].cluster,login", b"10.1.5.1,10.1.5.2"]


@parser("host list", harmed(HOSTS))
def host_list(place: Path, data: bytes) -> None:
    hosts = hostlist.parse(data.decode("utf-8", "surrogateescape"))
    assert hostlist.parse(hostlist.render(hosts)) == hosts


@parser("host file", harmed([b"a\nb slots=4\n# c\n", b"host[0-3]\n", b"10.0.0.1\n10.0.0.2 max_slots=2\n"]))
def host_file(place: Path, data: bytes) -> None:
    assert all(map(hostlist.is_name, hostlist.read_file(_put(place / "hosts", data))))


@parser("plan.json", documents([json.loads(to_json(PLAN))]))
def plan(place: Path, data: bytes) -> None:
    found = from_json(data.decode("utf-8", "replace"))
    assert from_json(to_json(found)) == found
    openmpi_argv(found, OpenMpiOptions(), ["program"])


OPTIONS = LaunchOptions(
    pod="16", ipus=4, host_layout="8x16", ilds=1, oversubscribe=True, python="/bin/python3", openmpi_version=4,
    sdk=(3, 3), env=("A", "B=c d"), mpi_global_args=("--mca a b",), mpi_local_args=("-x C",), allow_run_as_root=False,
    poprun={"vipu_partition": "p", "vipu_server_port": 80, "update_partition": False, "offline_mode": True},
)  # fmt: skip


@parser("asked.json", documents([json.loads(launch_record.to_json(OPTIONS))]))
def asked(place: Path, data: bytes) -> None:
    found = launch_record.from_json(data.decode("utf-8", "replace"), "asked.json")
    written = launch_record.to_json(found)
    assert launch_record.to_json(launch_record.from_json(written, "asked.json")) == written
    assert all("\0" not in word for word in (*found.env, *found.mpi_global_args, *found.mpi_local_args))


SUBMITTED = [
    {"format": 1, **record.Submitted("slurm", "4711", "job.sh", utc(), "cosmoflow", cluster="c1")._asdict()},
    {"format": 1, **record.Submitted("kubernetes", "a-b", "job.yaml", utc(), "mnist", kind="Job")._asdict()},
]


@parser("job.json", documents(SUBMITTED))
def submitted(place: Path, data: bytes) -> None:
    _put(place / "job.json", data)
    found = record.read(place)
    assert found is not None and not found.id.startswith("-") and all(word.isprintable() for word in found)


TRAINING = {"samples": 24, "epochs": 2, "updates_per_epoch": 4, "first_update": 0, "left_out": 3}
EVENTS = [
    {"event": "started", "time_ns": 1, "host": "a"},
    {"event": "training", "time_ns": 2, **TRAINING},
    {"event": "update", "time_ns": 3, "update": 3, "samples_per_s": 10.5, "loss": 0.5},
    {"event": "log", "time_ns": 4, "update": 4, "epoch": 1, "epochs": 4, "samples_per_s": 10.5, "loss": 0.5},
    {"event": "checkpoint", "time_ns": 5, "path": "checkpoints/update-00000004", "update": 4},
    {"event": "validation", "time_ns": 6, "samples": 8, "update": 4, "epoch": 1.0, "val_loss": 0.3, "checkpoint": "c"},
    {"event": "warning", "time_ns": 7, "message": "a word"},
    {"event": "resumed", "time_ns": 8, "path": "runs/a", "update": 4},
]


def lines(values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in (values if isinstance(values, list) else [values]))


@parser("events.jsonl", st.one_of(harmed([lines(EVENTS).encode()]), misshapen([EVENTS], lines)))
def events(place: Path, data: bytes) -> None:
    run = RunDirectory(place)
    _put(run.events(0), data)
    follower = Follower(run, 1)
    display = Display(io.StringIO(), io.StringIO(), False)
    for _ in range(2):
        display.show(follower.progress, follower.look())
    follower.close()


TOLD = [
    {"event": "training", **TRAINING},
    {"event": "replacement", "sample": 3, "by": 4},
    *EVENTS[2:5],
]


@parser("events.jsonl, audited", st.one_of(harmed([lines(TOLD).encode()]), misshapen([TOLD], lines)))
def audited(place: Path, data: bytes) -> None:
    run = RunDirectory(place)
    _put(run.events(0), data)
    (attempt,) = read_attempts(run, 1)
    assert attempt.first_update >= 0 and attempt.last_update >= 0


TRACE = (",".join(COLUMNS) + "\n" + "".join(f"0,{n // 4},{n % 4},1,{n}\n" for n in range(12))).encode()


@parser("samples.csv", harmed([TRACE]))
def trace(place: Path, data: bytes) -> None:
    rows = read_trace(_put(place / "samples.csv", data))
    assert rows.dtype.names == COLUMNS and len(rows) < data.count(b"\n")


ENDS = [{"time_ns": 1, "type": "DataError", "message": "m", "hint": "h", "exit_code": 5, "traceback": "t"}]


@parser("records of an end", documents(ENDS))
def end(place: Path, data: bytes) -> None:
    for name in ("error", "stopped", "done"):
        run = RunDirectory(place / name)
        for instance in range(2):
            _put(getattr(run, name)(instance), data)
        judge(End(run, PLAN, 1, [], ours=True))


ENDINGS = [{"attempt": 1, "exit_code": 75, "headline": "stopped", "time": "2026-11-16T10:00:00Z"}]


@parser("endings.jsonl", st.one_of(harmed([lines(ENDINGS).encode()]), misshapen([ENDINGS], lines)))
def endings(place: Path, data: bytes) -> None:
    run = RunDirectory(place)
    _put(run.endings, data)
    read_endings(run)


def _checkpoint() -> Tuple[Dict[str, Any], bytes]:
    with tempfile.TemporaryDirectory() as directory:
        facts = {"update": 12, "epoch": 1.5, "since_log": {"updates": 1, "sums": {"loss": 2.0}}}
        weights = [np.ones((2, 3), np.float32), np.array(7, np.float16)]
        path = checkpoints.save(Path(directory), facts, weights=weights, names=["a", "b"], optimizer=[np.array(3)])
        return json.loads((path / "manifest.json").read_text()), (path / "state.npz").read_bytes()


MANIFEST, STATE = _checkpoint()


@parser("checkpoint manifest", documents([MANIFEST]))
def manifest(place: Path, data: bytes) -> None:
    _put(place / "manifest.json", data)
    _put(place / "state.npz", STATE)
    assert checkpoints.load(place).update >= 0


@parser("checkpoint state", harmed([STATE]))
def state(place: Path, data: bytes) -> None:
    manifest = {**MANIFEST, "sha256": {"state.npz": hashlib.sha256(data).hexdigest()}}
    _put(place / "manifest.json", json.dumps(manifest).encode())
    _put(place / "state.npz", data)
    checkpoints.load(place)


def _records(place: Path) -> List[bytes]:
    index = open_index([place / "a.tfrecord"], threads=1)
    reader = RecordReader(index)
    return [reader.read(number) for number in range(index.records)]


def _index(packed: bool) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        write_records(Path(directory, "a.tfrecord"), [b"one", b"three"], packed=packed)
        open_index([Path(directory, "a.tfrecord")], threads=1)
        return Path(directory, ".ipulaunch-index.npz").read_bytes()


@st.composite
def indices(draw: Any) -> bytes:
    """An index whose columns say something else, for the very file that they are about."""
    packed = draw(st.booleans())
    with np.load(io.BytesIO(_INDICES[packed])) as arrays:
        columns = {name: arrays[name] for name in arrays.files}
    numbers = st.sampled_from([-1, 0, 1, 5, 12, 17, 40, 1 << 20, 1 << 40, 1 << 62, -(1 << 63)])
    for name in draw(st.lists(st.sampled_from(["offsets", "lengths", "counts", "packed", "format"]), max_size=3)):
        shape = draw(st.sampled_from([(), (1,), (2,), (2,), (3,), (1, 2)]))
        kind = draw(st.sampled_from([np.int64, np.int64, np.int64, np.float64, bool, np.uint8]))
        count = int(np.prod(shape))
        values = np.array(draw(st.lists(numbers, min_size=count, max_size=count)), np.float64)
        with np.errstate(all="ignore"):
            columns[name] = values.astype(kind).reshape(shape)
    file = io.BytesIO()
    np.savez(file, **columns)
    return bytes([packed]) + file.getvalue()


_INDICES = [_index(False), _index(True)]


@parser("record index", st.one_of(indices(), harmed([b"\0" + _INDICES[0], b"\1" + _INDICES[1]])))
def index(place: Path, data: bytes) -> None:
    file = place / "a.tfrecord"
    write_records(file, [b"one", b"three"], packed=data[:1] == b"\1")
    status = file.stat()
    content = data[1:]
    with contextlib.suppress(NotAnArchive):  # an index counts only for the file as it was when it was made
        columns = read_arrays(io.BytesIO(content), lambda name: True, len(content))
        columns.update(sizes=np.array([status.st_size]), times=np.array([status.st_mtime_ns]))
        made = io.BytesIO()
        np.savez(made, **columns)
        content = made.getvalue()
    _put(place / ".ipulaunch-index.npz", content)
    found = _records(place)
    assert set(found) <= {b"one", b"three"}


def _framed(*records: bytes, packed: bool = False) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        write_records(Path(directory, "a"), records, packed=packed)
        return Path(directory, "a").read_bytes()


@parser("TFRecord file", harmed([_framed(b"one", b"three"), _framed(b"", b"x" * 300), _framed(b"one", packed=True)]))
def tfrecord(place: Path, data: bytes) -> None:
    _put(place / "a.tfrecord", data)
    _records(place)


@parser("tf.Example", harmed([VOLUME, PICTURE]), NotAnExample)
def example(place: Path, data: bytes) -> None:
    for span in find_features(data).values():
        assert 0 <= span.start <= span.stop <= len(data)


@parser("tf.Example in parts", harmed([VOLUME, PICTURE]), NotAnExample)
def example_in_parts(place: Path, data: bytes) -> None:
    names = ("x", "y", "image/encoded", "image/class/label")
    found = dict(features_by_parts(lambda count, start: data[start : start + count], len(data), names))
    assert found.items() <= find_features(data).items()


@parser("CosmoFlow record", harmed([VOLUME]))
def volume(place: Path, data: bytes) -> None:
    (place / "train").mkdir()
    write_records(place / "train" / "a.tfrecord", [VOLUME, data])
    settings = CosmoflowData(directory=str(place), side=2, channels=4, targets=4, n_train=2)
    CosmoflowRecords(settings, "train", threads=1).load(np.arange(2))


# These are imported where they are needed; OpenCV executes files of its own then.
for name in ("cv2", "simplejpeg"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)


@parser("ImageNet record", harmed([PICTURE]))
def picture(place: Path, data: bytes) -> None:
    write_records(place / "train-00000-of-00001", [PICTURE, data])
    records = ImagenetRecords(place, "train", seed=0, augment=True, threads=1, side=8)
    records.make_images(np.array(0), records.planner.plan(np.array([0]), np.arange(2)[None])[0])


@parser("image header", harmed([JPEG, PNG]), NotAnImage)
def header(place: Path, data: bytes) -> None:
    found = read_header(data)
    assert 0 < found.height < 1 << 16 and 0 < found.width < 1 << 16
    require_end(data)


class Attack:
    def __reduce__(self) -> Any:
        return print, ("broken in",)


BATCHES = [
    old_pickle({b"data": ROWS, b"labels": [1, 2]}),
    *(pickle.dumps({"data": ROWS, "labels": [1, 2]}, protocol) for protocol in (2, 4)),
    pickle.dumps({b"data": ROWS, b"labels": [1, 2], b"more": Attack()}, 4),
]


@parser("CIFAR pickle", harmed(BATCHES))
def cifar_pickle(place: Path, data: bytes) -> None:
    _put(place / "test_batch", data)
    Cifar(place, "validation")


@parser("CIFAR binary", harmed([b"".join(bytes([n]) + row.tobytes() for n, row in enumerate(ROWS))]))
def cifar_binary(place: Path, data: bytes) -> None:
    _put(place / "test_batch.bin", data)
    Cifar(place, "validation")


PICTURES = b"\0\0\x08\x03\0\0\0\x02\0\0\0\x1c\0\0\0\x1c" + IMAGES.tobytes()


@parser("idx file", harmed([PICTURES, gzip.compress(PICTURES, mtime=0)]))
def idx(place: Path, data: bytes) -> None:
    _put(place / "t10k-images-idx3-ubyte", data)
    _put(place / "t10k-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x02" + LABELS.tobytes())
    Mnist(place, "validation")


def _archive(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, x_test=IMAGES, y_test=LABELS)
    return file.getvalue()


@parser("Keras archive", harmed([_archive(np.savez), _archive(np.savez_compressed)]))
def archive(place: Path, data: bytes) -> None:
    _put(place / "mnist.npz", data)
    Mnist(place, "validation")


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_anything_gets_a_value_or_one_of_our_errors(
    parser: Parser, watched: Watch, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(scratch / "cache"))
    place = scratch / "case"

    @given(parser.cases)
    def try_case(data: bytes) -> None:
        place.mkdir()
        try:
            with watched(parser.name):
                try:
                    parser.parse(place, data)
                except (IpulaunchError, *parser.also) as error:
                    str(error).encode("utf-8", "backslashreplace")
        finally:
            shutil.rmtree(place)

    try_case()


def _write_elsewhere() -> None:
    with tempfile.TemporaryFile("w"):
        pass


@pytest.mark.parametrize(
    "act",
    [
        lambda: eval("1 + 1"),  # noqa: S307
        lambda: subprocess.run(["true"], check=True),
        lambda: pickle.loads(pickle.dumps(Attack())),  # noqa: S301
        lambda: socket.create_connection(("127.0.0.1", 9), timeout=0.1).close(),
        _write_elsewhere,
        lambda: bytearray(2 << 30),
    ],
    ids=["eval", "a process", "a pickle", "a connection", "a file elsewhere", "large"],
)
def test_the_watch_sees(act: Callable[[], None], watched: Watch) -> None:
    with pytest.raises((AssertionError, MemoryError)), watched("nothing"), contextlib.suppress(OSError):
        act()
