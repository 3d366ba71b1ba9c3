from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ipulaunch.configs.errors import JobError
from ipulaunch.launcher.cli import data_tasks
from ipulaunch.launcher.cli.data_tasks import BarProgress, PlainProgress, make_progress

FAKE = Path(__file__).parents[4] / "fakes" / "data_task.py"
Run = Callable[..., Any]
NO_DEFECTS: Dict[str, Any] = {
    "event": "result",
    "kind": "imagenet",
    "form": "",
    "files": {"train": 2},
    "records": {"train": 7},
    "bytes": 5_000_000,
    "defects": 0,
    "notes": [
        {"message": "CMYK", "records": 1, "places": [{"file": "a", "record": 3, "offset": 9}]},
        {"message": "no record in it", "records": 1, "places": [{"file": "b", "record": None, "offset": None}]},
    ],
    "shards": {"train": {"steps": 3, "instances": 2, "per_instance": 3, "left_out": 1}},
}
AUDITED: Dict[str, Any] = {
    "event": "result",
    "instances": 2,
    "replicas": 4,
    "epochs": 2,
    "updates_per_epoch": 3,
    "first_update": 0,
    "last_update": 6,
    "replaced": 0,
    "global_batch": 8,
    "samples": 25,
    "rows": 48,
    "remainder": "drop",
    "discrepancies": 0,
    "told": 0,
}


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Callable[[], Any]]:
    """Says what the fake task does; gives back a look at how it was called."""
    seen = tmp_path / "seen.json"
    monkeypatch.setattr(data_tasks, "task_argv", lambda task: [sys.executable, "-IS", str(FAKE), task])
    monkeypatch.setenv("FAKE_TASK_SEEN", str(seen))

    def script(*events: Any, **more: Any) -> Callable[[], Any]:
        monkeypatch.setenv("FAKE_TASK", json.dumps({"events": events, **more}))
        return lambda: json.loads(seen.read_text())

    return script


MADE = {"event": "result", "out": "d", "samples": {"train": 5, "validation": 2}, "files": 7, "bytes": 1_500_000}


@pytest.mark.parametrize(
    ("words", "name", "options"),
    [
        (
            "cosmoflow --samples 5 --side 8 --gzip --seed 3",
            "make_cosmoflow",
            {"samples": 5, "validation_samples": 64, "side": 8, "samples_per_file": 1, "gzip": True, "seed": 3},
        ),
        (
            "imagenet --files 2 --classes 4",
            "make_images",
            {
                "kind": "imagenet",
                "samples": 1000,
                "validation_samples": 200,
                "side": 500,
                "files": 2,
                "classes": 4,
                "boxes": False,
                "seed": 0,
            },
        ),
        ("cifar10", "make_images", {"kind": "cifar10", "samples": 5000, "validation_samples": 1000, "seed": 0}),
        ("mnist", "make_images", {"kind": "mnist", "samples": 6000, "validation_samples": 1000, "seed": 0}),
    ],
    ids=["cosmoflow", "imagenet", "cifar10", "mnist"],
)
def test_make_hands_its_options_over(words: str, name: str, options: Any, task: Any, ipulaunch: Run) -> None:
    seen = task(MADE)
    code, out, err = ipulaunch("data", "make", *words.split(), "--out", "d")
    assert (code, out, err) == (0, "5 training and 2 validation samples in 7 files, 1.5 MB, in d\n", "")
    assert seen() == {"task": name, "options": {"out": "d", **options}}


@pytest.mark.parametrize(
    "words",
    [
        "make cosmoflow",
        "make cosmoflow --out d --files 2",
        "make nothing --out d",
        "make imagenet --out d --classes 1001",
        "bench mnist",
        "build imagenet --raw r",
    ],
)
def test_wrong_command_lines(words: str, ipulaunch: Run) -> None:
    assert ipulaunch("data", *words.split()).code == 2


def test_an_error_of_the_task_is_ours(task: Any, ipulaunch: Run) -> None:
    task({"event": "error", "message": "it is full", "hint": "empty it", "exit_code": 5}, exit_code=5)
    assert ipulaunch("data", "index", "d") == (5, "", "error: it is full\nhint: empty it\n")


def test_a_task_that_crashes_is_shown(task: Any, ipulaunch: Run) -> None:
    task("no json", '"text"', stderr="Traceback\nKeyError: 'x'\n", exit_code=1)
    code, out, err = ipulaunch("data", "index", "d")
    assert (code, out) == (7, "")
    assert err == "error: index ended with exit code 1 and no result\nhint: Traceback\nKeyError: 'x'\n"


def test_a_task_without_a_result_has_failed(task: Any) -> None:
    task()
    with pytest.raises(JobError, match="exit code 0 and no result"):
        data_tasks.run_task("index", {})


def test_index(task: Any, ipulaunch: Run) -> None:
    splits = {name: {"files": 1, "records": 5, "index": "d/i"} for name in ("train", "validation")}
    task({"event": "result", "kind": "imagenet", "splits": splits})
    assert ipulaunch("data", "index", "d").out.splitlines() == [
        "train: 5 records in 1 file",
        "validation: 5 records in 1 file",
        "index: d/i",
    ]
    assert json.loads(ipulaunch("data", "index", "d", "--json").out)["splits"] == splits


def test_a_set_that_needs_no_index(task: Any, ipulaunch: Run) -> None:
    task({"event": "result", "kind": "mnist", "splits": {}})
    code, out, _ = ipulaunch("data", "index", "d")
    assert (code, out) == (0, "mnist is read whole and needs no index\n")


def test_verify_says_what_it_found(task: Any, ipulaunch: Run) -> None:
    seen = task(NO_DEFECTS)
    code, out, _ = ipulaunch("data", "verify", "d", "--instances", "2", "--micro-batch-size", "1")
    assert (code, out.splitlines()) == (
        0,
        [
            "note: CMYK: 1 record",
            "note: no record in it: 1 file, b",
            "train: 7 records in 2 files; 2 instances x 3 samples in 3 steps, 1 left out",
            "ok: 5.0 MB read, every checksum and field is right",
        ],
    )
    given = {"instances": 2, "micro_batch_size": 1, "replicas": None, "gradient_accumulation_count": None}
    assert seen()["options"] == {"directory": "d", **given}


def test_small_images_have_no_checksums(task: Any, ipulaunch: Run) -> None:
    task({**NO_DEFECTS, "kind": "cifar10", "form": "32 x 32 x 3", "notes": [], "shards": {}})
    assert ipulaunch("data", "verify", "d").out.splitlines() == [
        "train: 7 records of 32 x 32 x 3 in 2 files",
        "ok: 5.0 MB read, every size and label is right",
    ]


def test_verify_names_every_defect(task: Any, ipulaunch: Run) -> None:
    defect = {"event": "defect", "file": "d/a", "record": 3, "offset": 99, "message": "wrong"}
    missing = {"event": "defect", "file": "d/b", "record": None, "offset": None, "message": "missing"}
    task(defect, missing, {**NO_DEFECTS, "defects": 2})
    code, out, err = ipulaunch("data", "verify", "d")
    assert (code, err) == (5, "error: 2 defects in d\n")
    assert out.splitlines()[:2] == ["d/a, record 3 at byte 99: wrong", "d/b: missing"]
    assert "ok" not in out
    code, out, _ = ipulaunch("data", "verify", "d", "--json")
    assert (code, [found["file"] for found in json.loads(out)["defects"]]) == (5, ["d/a", "d/b"])
    task(*[defect] * 60, {**NO_DEFECTS, "defects": 60})
    assert "... 10 more; --json lists all" in ipulaunch("data", "verify", "d").out


def test_audit(task: Any, ipulaunch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "r"
    run.mkdir(parents=True)
    (run / "plan.json").touch()
    seen = task(AUDITED)
    code, out, _ = ipulaunch("data", "audit", "r")
    assert seen()["options"]["run"] == str(run)
    assert (code, out.splitlines()[0]) == (
        0,
        "48 rows of 2 instances and 4 replicas: 2 epochs of 3 updates of 8 out of 25 samples, remainder drop",
    )
    assert out.count("ok: ") == 4
    task({**AUDITED, "first_update": 4})
    assert "2 epochs of 3 updates, from update 4 on, of 8 out of" in ipulaunch("data", "audit", "r").out
    task({**AUDITED, "first_update": 4, "last_update": 5})
    assert "3 updates, from update 4 on, up to update 5, of 8 out of" in ipulaunch("data", "audit", "r").out
    task({**AUDITED, "last_update": 5, "replaced": 2})
    lines = ipulaunch("data", "audit", "r").out.splitlines()
    assert "2 epochs of 3 updates, up to update 5, of 8 out of" in lines[0]
    assert lines[1] == "note: 2 samples could not be read and were replaced by a neighbour, as the run has recorded"
    assert lines[3] == "ok: but for those, no sample was taken twice in a pass"
    task({"event": "defect", "message": "sample 3 is lost"}, {**AUDITED, "discrepancies": 1})
    code, out, err = ipulaunch("data", "audit", "r")
    assert (code, out.splitlines()[0], err) == (5, "sample 3 is lost", f"error: 1 discrepancy in {run}\n")
    assert "ok" not in out
    assert json.loads(ipulaunch("data", "audit", "r", "--json").out)["messages"] == ["sample 3 is lost"]


def test_audit_of_a_run_that_was_submitted(task: Any, ipulaunch: Run, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "r"
    (run / "run").mkdir(parents=True)
    for place in (run, run / "run"):
        (place / "plan.json").touch()
    seen = task(AUDITED)
    assert ipulaunch("data", "audit", "r", "--runs-dir", str(tmp_path / "runs")).code == 0
    assert seen()["options"]["run"] == str(run / "run")


def test_build(task: Any, ipulaunch: Run) -> None:
    counts = {"images": {"train": 12}, "shards": {"train": 1}, "classes": 3, "kept": 0, "converted": 2}
    left_out = {"left_out": ["f, record 1: bad"], "damaged_files": ["g: cut off"]}
    result = {"event": "result", "out": "o", **counts, **left_out, "bytes": 2_400_000, "preparation": "pixels"}
    seen = task({"event": "note", "text": "12 images: about 2 GB"}, result)
    code, out, err = ipulaunch("data", "build", "imagenet", "--raw", "r", "--out", "o", "--shards", "1", "--pixels")
    assert (code, out.splitlines(), err) == (
        0,
        [
            "train: 12 images in 1 file",
            "3 classes; 2 images converted, 0 files kept",
            "left out: g: cut off",
            "left out: f, record 1: bad",
            "1 damaged image left out",
            "prepared: pixels",
            "2.4 MB in o",
        ],
        "12 images: about 2 GB\n",
    )
    unset = {"longest_side": None, "shorter_side": None, "quality": None, "validation_labels": None, "workers": None}
    options = {"raw": "r", "records": None, "out": "o", "shards": 1, "pixels": True, "bad_records": "fail", **unset}
    assert seen() == {"task": "build_imagenet", "options": options}


def test_bench_is_a_table_and_ratios(task: Any, ipulaunch: Run) -> None:
    row = {"samples_per_s": 186.4, "mb_per_s": 3.127, "per_core": 93.2, "first_batch_s": 0.5, "memory_mb": None}
    row = {**row, "processor_ms": 5.4, "spreads": {"samples_per_s": 0.4, "processor_ms": 0.08}}
    ratios = {"ratios": {"ours / usual": 10.234}, "ratio_spreads": {"ours / usual": 0.1}}
    seen = task({"event": "result", "rows": [{"pipeline": "ours", **row}], **ratios})
    code, out, _ = ipulaunch("data", "bench", "cosmoflow", "--seconds", "2")
    assert (code, out.splitlines()) == (
        0,
        [
            "pipeline  samples/s  +-     CPU ms/sample  +-    MB/s  per core  first batch s  memory MB",
            "ours      186        +-20%  5.4            +-4%  3.13  93.2      0.5            -",
            "ours / usual: 10.23 +-5%",
        ],
    )
    options = {"workload": "cosmoflow", "data_dir": None, "instances": 1, "seconds": 2.0, "cold": False}
    assert seen()["options"] == options


def test_progress_is_a_line_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(data_tasks.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = PlainProgress(stream)
    for second in range(12):
        now[0] = float(second)
        progress.show("files", second, 12)
    assert stream.getvalue() == "5/12 files\n10/12 files\n"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream:
        progress = make_progress(stream)
        assert isinstance(progress, BarProgress)
        with progress:
            progress.show("files", 3, 12)
            progress.show("files", 12, 12)
        drawn = b""
        while b"12/12" not in drawn:
            assert select.select([leader], [], [], 600)[0], drawn
            drawn += os.read(leader, 65536)
    os.close(leader)
    assert type(make_progress(io.StringIO())) is PlainProgress


@pytest.mark.parametrize("hang", ["polite", "stubborn"])
def test_ctrl_c_ends_the_task(
    hang: str, task: Any, lifeline: Any, monkeypatch: pytest.MonkeyPatch, ipulaunch: Run
) -> None:
    monkeypatch.setattr(data_tasks, "_GRACE_S", 0.2)
    task({"event": "progress", "what": "files", "done": 1, "total": 2}, hang=hang)

    def interrupted(self: PlainProgress, what: str, done: int, total: int) -> None:
        lifeline.wait_for(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(PlainProgress, "show", interrupted)
    assert ipulaunch("data", "index", "d").code == 130
    assert lifeline.has_ended(600)


def real(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "ipulaunch.launcher", "data", *words]
    return subprocess.run(argv, capture_output=True, encoding="utf-8", timeout=1800, check=False, **more)


def test_a_set_is_made_indexed_and_verified(own_environment: Dict[str, str]) -> None:
    words = ("--out", "set", "--samples", "5", "--validation-samples", "2", "--side", "4")
    assert real("make", "cosmoflow", *words, env=own_environment).returncode == 0
    again = real("make", "cosmoflow", *words, env=own_environment)
    assert (again.returncode, again.stderr.splitlines()[0]) == (2, "error: set exists and is not an empty directory")
    indexed = real("index", "set", env=own_environment)
    assert indexed.stdout.splitlines()[0] == "train: 5 records in 5 files"
    assert real("verify", "set", env=own_environment).returncode == 0
    path = Path("set", "train", "part-00003.tfrecord")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    spoilt = real("verify", "set", "--json", env=own_environment)
    assert spoilt.returncode == 5
    (defect,) = json.loads(spoilt.stdout)["defects"]
    assert (defect["file"], defect["record"], defect["offset"]) == (str(path), 0, 0)


def test_ctrl_c_leaves_nothing_half_written(own_environment: Dict[str, str], tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "ipulaunch.launcher", "data", "make", "cosmoflow", "--out", "set"]
    with subprocess.Popen([*argv, "--samples", "100000"], env=own_environment, stderr=subprocess.PIPE) as process:
        making: List[Path] = []
        while not making:  # the set grows in there
            assert process.poll() is None
            time.sleep(0.01)
            making = list((tmp_path / "set").glob(".making/train/*"))
        process.send_signal(signal.SIGINT)
        assert process.wait(1800) == 130
    assert not (tmp_path / "set").exists()
