from __future__ import annotations

from pathlib import Path
from typing import List, Tuple

import pytest

from ipulaunch.configs.errors import UsageError
from ipulaunch.topology.machines import hostlist


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("localhost", ["localhost"]),
        ("a,b", ["a", "b"]),
        ("b,a", ["b", "a"]),
        ("a, b", ["a", "b"]),
        (" a ,\tb ", ["a", "b"]),
        ("node[09-10],gpu7", ["node09", "node10", "gpu7"]),
        ("node[8-10]", ["node8", "node9", "node10"]),
        ("node[01-03,7],login", ["node01", "node02", "node03", "node7", "login"]),
        ("host[0-2,4]", ["host0", "host1", "host2", "host4"]),
        ("n[ 1 , 3-4 ]", ["n1", "n3", "n4"]),
        ("n[099-101]", ["n099", "n100", "n101"]),
        ("n[5]", ["n5"]),
        ("n[1-2]-ib.site", ["n1-ib.site", "n2-ib.site"]),
        (
            "10.1.3.[101-104],10.1.4.[101-104]",
            [f"10.1.{net}.{host}" for net in (3, 4) for host in (101, 102, 103, 104)],
        ),
        ("a-b.example.org,A_1", ["a-b.example.org", "A_1"]),
        ("rack[1-2]node[1,09-10]", [f"rack{rack}node{node}" for rack in (1, 2) for node in ("1", "09", "10")]),
        ("r[1-2]n[3]-ib,login", ["r1n3-ib", "r2n3-ib", "login"]),
        ("[1-2][3-4][5]", ["135", "145", "235", "245"]),
    ],
)
def test_parse(text: str, hosts: List[str]) -> None:
    assert hostlist.parse(text) == tuple(hosts)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "has a hole", id="empty"),
        pytest.param(" ", "has a hole", id="blank"),
        pytest.param("a,,b", "has a hole", id="hole"),
        pytest.param("a,", "has a hole", id="hole at the end"),
        pytest.param("n[1-3", "open bracket", id="open bracket"),
        pytest.param("n[1-3],m[2", "open bracket", id="open bracket later"),
        pytest.param("n1-3]", "do not match", id="closing bracket"),
        pytest.param("n[[1-3]]", "do not match", id="nested brackets"),
        pytest.param("n[]", "not a number or a range", id="empty bracket"),
        pytest.param("r[1-2]n[]", "not a number or a range", id="empty second bracket"),
        pytest.param("r[0-299]n[0-299]", "more than 65536 hosts", id="huge product"),
        pytest.param("[0-65535]" * 1000, "more than 65536 hosts", id="astronomic product"),
        pytest.param("n[0-65535]" + "[1]" * 100000, "a name of 100002 characters", id="many brackets"),
        pytest.param("n" + "[1]" * 300, "is not a host name", id="long name"),
        pytest.param("r[1-2]n[1-2]n[3", "open bracket", id="open last bracket"),
        pytest.param("r[1,1]n[1-2]", "names r1n1 twice", id="repetition in the first bracket"),
        pytest.param("n[1,,2]", "not a number or a range", id="hole in a bracket"),
        pytest.param("n[1-]", "not a number or a range", id="half a range"),
        pytest.param("n[a-c]", "not a number or a range", id="letters"),
        pytest.param("n[3-1]", "not a range of 1 to 65536 hosts", id="backwards"),
        pytest.param("n[0-65536]", "not a range of 1 to 65536 hosts", id="huge range"),
        pytest.param("n[0-99999999999999999999]", "65536 hosts|not a number or a range", id="astronomic range"),
        pytest.param(f"n[0-{'9' * 5000}]", "65536 hosts|not a number or a range", id="number of 5000 digits"),
        pytest.param("n[0-40000],m[0-40000]", "more than 65536 hosts", id="huge sum"),
        pytest.param("n[0-40000,50000-90000]", "more than 65536 hosts", id="huge sum in a bracket"),
        pytest.param("a,b,a", "names a twice", id="repetition"),
        pytest.param("n[1-3],n2", "names n2 twice", id="repetition of a range"),
    ],
)
def test_damaged_list_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        hostlist.parse(text)


@pytest.mark.parametrize(
    "name",
    [
        "-oProxyCommand=x",
        "a b",
        "$(x)",
        "`x`",
        "a;b",
        "a|b",
        "a&b",
        "a>b",
        "a'b",
        'a"b',
        "a\\b",
        "a\nb",
        "../x",
        "a/b",
        "user@host",
        "host:22",
        "*",
        "~",
        "a-",
        ".a",
        "größe",
        "n[1-2]$(x)",
        "-n[1-2]",
        "$(x)n[1-2]",
    ],
)
def test_hostile_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a host name or address"):
        hostlist.parse(f"good,{name}")


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (("a",), "a"),
        (("a", "b"), "a,b"),
        (("n1", "n2", "n3"), "n[1-3]"),
        (("n1", "n3"), "n1,n3"),
        (("n3", "n2"), "n3,n2"),
        (("n08", "n09", "n10"), "n[08-10]"),
        (("n9", "n10"), "n[9-10]"),
        (("n99", "n100"), "n[99-100]"),
        (("n09", "n010"), "n09,n010"),
        (("n1", "n02"), "n1,n02"),
        (("n1", "m2"), "n1,m2"),
        (("n", "n1", "n2"), "n,n[1-2]"),
        (("1", "2"), "[1-2]"),
        (("10.1.3.101", "10.1.3.102", "10.1.4.101"), "10.1.3.[101-102],10.1.4.101"),
        (("n1-ib", "n2-ib"), "n1-ib,n2-ib"),
    ],
)
def test_render(hosts: Tuple[str, ...], text: str) -> None:
    assert hostlist.render(hosts) == text
    assert hostlist.parse(text) == hosts


def test_parse_undoes_render_for_all_runs() -> None:
    for stem in ("n", "gpu-", "10.1.3."):
        for width in (1, 2, 3):
            for first in (0, 1, 8, 9, 98, 99, 100):
                for step in (1, 2):
                    hosts = tuple(f"{stem}{number:0{width}}" for number in range(first, first + 5 * step, step))
                    for order in (hosts, hosts[::-1], (*hosts, "login"), (hosts[0], "login", *hosts[1:])):
                        assert hostlist.parse(hostlist.render(order)) == order


def test_host_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# rack 1\nn1 slots=8\n\n  n2  # spare\nn[3-4] max-slots=2\r\n", encoding="utf-8")
    assert hostlist.read_file(path) == ("n1", "n2", "n3", "n4")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "names no host", id="empty"),
        pytest.param(b"# nothing\n\n", "names no host", id="comments"),
        pytest.param(b"n1\nn2\nn1\n", "names n1 twice", id="repetition"),
        pytest.param(b"n1\n-oProxyCommand=x\n", "is not a host name", id="hostile name"),
        pytest.param(b"n[1-\n", "open bracket", id="open bracket"),
        pytest.param(b"n1\n\xff\xfe\n", "cannot be read", id="not UTF-8"),
    ],
)
def test_damaged_host_file_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=why):
        hostlist.read_file(path)


def test_host_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match=f"the host file {path} cannot be read"):
            hostlist.read_file(path)
