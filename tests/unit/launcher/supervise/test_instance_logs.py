from __future__ import annotations

from typing import Callable, Dict, List, Tuple

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.supervise.instance_logs import InstanceLogs, Unkept
from ipulaunch.topology.planning.plan import Plan

MakePlan = Callable[..., Plan]
Split = Callable[[List[bytes]], Tuple[Dict[str, bytes], List[Tuple[str, str]]]]


@pytest.fixture()
def split(run_directory: RunDirectory, make_plan: MakePlan) -> Split:
    """What two instances and the engine have in their files, and what was echoed, after some lines."""

    def feed(lines: List[bytes]) -> Tuple[Dict[str, bytes], List[Tuple[str, str]]]:
        echoed: List[Tuple[str, str]] = []
        logs = InstanceLogs(run_directory, make_plan(4, 2), lambda who, line: echoed.append((who, line)))
        for line in lines:
            logs.feed(line)
        logs.close()
        paths = {"0": run_directory.log(0), "1": run_directory.log(1), "engine": run_directory.path / "engine.txt"}
        return {name: path.read_bytes() if path.exists() else b"" for name, path in paths.items()}, echoed

    return feed


@pytest.mark.parametrize(
    ("lines", "first", "second", "engine"),
    [
        pytest.param([b"[1,0]<stdout>:a\n", b"[1,1]<stderr>:b\n"], b"a\n", b"b\n", b"", id="tags-of-open-mpi-4"),
        pytest.param([b"[1,0]<stdout>: a\n", b"[1,1]<stderr>: b\n"], b"a\n", b"b\n", b"", id="tags-of-open-mpi-5"),
        pytest.param(
            [b"[prterun-host-1@1,0]<stdout>: a\n", b"[job-7,1]<stddiag>: b\n"], b"a\n", b"b\n", b"", id="named-jobs"
        ),
        pytest.param([b"[1,0]<stdout>:    a\n"], b"   a\n", b"", b"", id="indented-by-an-instance"),
        pytest.param([b"[1,0]<stdout>: \n", b"[1,0]<stdout>:\n"], b"\n\n", b"", b"", id="empty-lines"),
        pytest.param(
            [b"[1,0]<stdout>:a [1,1]<stdout>:b [1,0]<stdout>:c\n", b"[1,1]<stdout>:d\n"],
            b"a c\n",
            b"b d\n",
            b"",
            id="tags-within-a-line",
        ),
        pytest.param([b"[1,1]<stdout>:a", b"[1,1]<stdout>:b", b"[1,1]<stdout>:c\n"], b"", b"abc\n", b"", id="pieces"),
        pytest.param([b"[1,0]<stdout>:a"], b"a\n", b"", b"", id="last-line-without-an-end"),
        pytest.param(
            [b"[1,0]<stdout>:a", b"[1,1]<stdout>:b\n", b"[1,0]<stdout>:c\n", b"[1,1]<stdout>:d\n"],
            b"ac\n",
            b"b\nd\n",
            b"",
            id="two-interleaved",
        ),
        pytest.param([b"[1,0]<stdout>:\xff\xfe\x00\n"], b"\xff\xfe\x00\n", b"", b"", id="invalid-utf-8"),
        pytest.param([b"[1,0]<stdout>:10%\r20%\r\n"], b"10%\r20%\r\n", b"", b"", id="carriage-returns"),
        pytest.param([b"mpirun: bad news\n"], b"", b"", b"mpirun: bad news\n", id="line-of-nobody"),
        pytest.param(
            [b"[1,0]<stdout>:a\n", b"[host:4711] PMIX ERROR\n", b"[1,0]<stdout>:b\n"],
            b"a\nb\n",
            b"",
            b"[host:4711] PMIX ERROR\n",
            id="engine-in-between",
        ),
        pytest.param([b"[1,2]<stdout>:who?\n"], b"", b"", b"who?\n", id="instance-that-is-not-planned"),
        pytest.param([b"[1,0]<stdin>:a\n"], b"", b"", b"[1,0]<stdin>:a\n", id="not-a-tag"),
        pytest.param([], b"", b"", b"", id="nothing"),
    ],
)
def test_lines_go_to_their_instance(
    lines: List[bytes], first: bytes, second: bytes, engine: bytes, split: Split
) -> None:
    assert split(lines)[0] == {"0": first, "1": second, "engine": engine}


def test_rest_of_a_line_belongs_to_whoever_wrote_last(split: Split) -> None:
    files, _ = split([b"[1,1]<stdout>:a\n", b"b[1,0]<stdout>:c\n", b"[1,1]<stdout>:d\n"])
    assert files == {"0": b"c\n", "1": b"a\nbd\n", "engine": b""}


@pytest.mark.parametrize("size", [65535, 65536, 1 << 20])
def test_very_long_lines_are_whole(size: int, split: Split) -> None:
    text = b"x" * size
    files, echoed = split([b"[1,0]<stdout>:" + text + b"\n", b"[1,0]<stdout>:end\n"])
    assert files["0"] == text + b"\nend\n"
    assert "".join(line for _, line in echoed) == text.decode() + "end"


def test_line_that_never_ends_is_not_held_in_memory(run_directory: RunDirectory, make_plan: MakePlan) -> None:
    logs = InstanceLogs(run_directory, make_plan(4, 2))
    for _ in range(100):
        logs.feed(b"[1,0]<stdout>:" + b"x" * 4096)
    assert run_directory.log(0).stat().st_size > 100 * 4096 - (1 << 16)
    assert len(b"".join(logs.partial.values())) < 1 << 16
    logs.close()
    assert run_directory.log(0).read_bytes() == b"x" * 100 * 4096 + b"\n"


def test_lines_are_on_disk_at_once(run_directory: RunDirectory, make_plan: MakePlan) -> None:
    logs = InstanceLogs(run_directory, make_plan(4, 2))
    logs.feed(b"[1,1]<stdout>: now\n")
    assert run_directory.log(1).read_bytes() == b"now\n"
    logs.close()


def test_echo_says_who(split: Split) -> None:
    _, echoed = split([b"[1,1]<stdout>: b\xff\n", b"mpirun: c\n", b"[1,0]<stderr>: a\n"])
    assert echoed == [("localhost:1", "b\ufffd"), ("localhost:0", "a")]


def test_last_words_of_the_engine_are_kept(run_directory: RunDirectory, make_plan: MakePlan) -> None:
    logs = InstanceLogs(run_directory, make_plan(4, 2))
    for number in range(1000):
        logs.feed(b"%d\n" % number)
    logs.close()
    assert logs.engine_lines[-3:] == ["997", "998", "999"]
    assert len(logs.engine_lines) < 50


def test_lines_without_room_are_kept_for_the_verdict(run_directory: RunDirectory, make_plan: MakePlan) -> None:
    run_directory.log(1).symlink_to("/dev/full")
    logs = InstanceLogs(run_directory, make_plan(4, 2))
    for line in (b"[1,0]<stdout>: fine\n", b"[1,1]<stderr>: error: no space left\n", b"words of the engine\n"):
        logs.feed(line)
    logs.close()
    assert logs.engine_lines == ["words of the engine"]
    assert logs.unkept == [
        Unkept(None, f"output could not be kept in {run_directory.path}: No space left on device"),
        Unkept(1, "error: no space left"),
    ]
    assert run_directory.log(0).read_text() == "fine\n"
