from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipulaunch.launcher.doctor.diagnosis import Diagnosis, Vipu
from ipulaunch.launcher.doctor.environment import Output
from ipulaunch.launcher.doctor.sdk import check_vipu

LISTED = Output(
    0,
    " Partition   | Cluster  | ILDs | Size | GCDs | State\n"
    "-----------------------------------------------------\n"
    " p64         | c64      | 1    | 64   | 1    | ACTIVE\n"
    " slow        | c64      | 1    | 64   | 1    | PENDING\n",
)
CLOSED = {"reach": lambda host, port, timeout_s: "timed out"}


@pytest.mark.parametrize(
    ("vipu", "machine", "expected"),
    [
        pytest.param(None, {}, [], id="not-asked"),
        pytest.param(Vipu("ctrl"), {}, [("ok", "ctrl, port 8090")], id="reached"),
        pytest.param(Vipu("ctrl", 9000), CLOSED, [("missing", "port 9000: timed out")], id="not-reached"),
        pytest.param(Vipu("ctrl", partition="p64"), CLOSED, [("missing", "timed out")], id="not-reached-not-listed"),
        pytest.param(
            Vipu("ctrl", partition="p64"), {"says": {"vipu": LISTED}}, [("ok", ""), ("ok", "active")], id="active"
        ),
        pytest.param(
            Vipu(partition="p64"),
            {"says": {"vipu": LISTED}, "environ": {"IPUOF_VIPU_API_HOST": "ctrl"}},
            [("ok", "ctrl"), ("ok", "active")],
            id="host-from-environment",
        ),
        pytest.param(Vipu(partition="slow"), {"says": {"vipu": LISTED}}, [("warning", "not active")], id="not-active"),
        pytest.param(
            Vipu(partition="p6"), {"says": {"vipu": LISTED}}, [("missing", "no p6; there are p64, slow")], id="unknown"
        ),
        pytest.param(
            Vipu(partition="p6", may_create=True), {"says": {"vipu": LISTED}}, [("ok", "poprun makes it")], id="made"
        ),
        pytest.param(Vipu(partition="p64"), {}, [("warning", "no vipu tool")], id="no-tool"),
        pytest.param(
            Vipu(partition="p64"),
            {"says": {"vipu": Output(1, "", "cannot connect")}},
            [("warning", "cannot connect")],
            id="tool-fails",
        ),
        pytest.param(
            Vipu("ctrl", 9000, "p64"), {"says": {"vipu": LISTED}}, [("ok", ""), ("warning", "9000")], id="other-port"
        ),
    ],
)
def test_the_controller_and_the_partition(
    vipu: Any, machine: Dict[str, Any], expected: List[Tuple[str, str]], make_environment: Callable[..., Any]
) -> None:
    checks = check_vipu(Diagnosis(vipu=vipu), make_environment(**machine))
    assert [check.state for check in checks] == [state for state, _ in expected]
    assert all(found in check.found for check, (_, found) in zip(checks, expected)), checks


def test_the_tool_is_asked_at_the_controller_that_was_named(make_environment: Callable[..., Any]) -> None:
    calls: List[List[str]] = []
    check_vipu(Diagnosis(vipu=Vipu("ctrl", partition="p64")), make_environment(says={"vipu": LISTED}, calls=calls))
    assert calls == [["/opt/bin/vipu", "list", "partitions", "--api-host", "ctrl"]]
