from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipulaunch.launcher.doctor.diagnosis import Diagnosis
from ipulaunch.launcher.doctor.environment import Output
from ipulaunch.launcher.doctor.sdk import check_sdk

SDK = "/sdk/poplar_sdk-ubuntu_20_04-3.3.0+1403/poplar-ubuntu"
POPRUN = {"poprun": Output(0, "PopRun 3.3.0\n")}
THERE = {f"{SDK[1:]}/enable.sh": ""}


@pytest.mark.parametrize(
    ("machine", "sdk", "poprun"),
    [
        pytest.param({}, ("missing", "not set"), ("missing", "not on the PATH"), id="missing"),
        pytest.param(
            {"environ": {"POPLAR_SDK_ENABLED": SDK}, "files": THERE, "says": POPRUN},
            ("ok", "3.3.0: /sdk/"),
            ("ok", "3.3.0: /opt/bin/poprun"),
            id="present",
        ),
        pytest.param(
            {"environ": {"POPLAR_SDK_ENABLED": SDK}, "says": POPRUN},
            ("missing", "which is not there"),
            ("ok", "3.3.0"),
            id="sdk-gone",
        ),
        pytest.param({"says": POPRUN}, ("warning", "there is a poprun"), ("ok", "3.3.0"), id="not-enabled"),
        pytest.param({"environ": {"POPLAR_SDK_ENABLED": "1"}}, ("ok", "enabled: 1"), ("missing", ""), id="no-version"),
        pytest.param(
            {
                "environ": {"POPLAR_SDK_ENABLED": "/old/poplar_sdk-centos-2.1.0+1"},
                "files": {"old/poplar_sdk-centos-2.1.0+1/x": ""},
                "says": {"poprun": Output(0, "2.1.0")},
            },
            ("warning", "2.1.0"),
            ("warning", "2.1.0"),
            id="too-old",
        ),
        pytest.param(
            {"says": {"poprun": Output(127, "", "libpopdist.so: cannot open shared object file")}},
            ("warning", ""),
            ("missing", "libpopdist.so"),
            id="broken",
        ),
        pytest.param(
            {"says": {"poprun": Output(None, "", "no answer within 20 s")}},
            ("warning", ""),
            ("missing", "no answer"),
            id="hangs",
        ),
        pytest.param({"says": {"poprun": Output(0, "hello")}}, ("warning", ""), ("ok", "does not report"), id="silent"),
    ],
)
def test_the_sdk_and_its_poprun(
    machine: Dict[str, Any], sdk: Any, poprun: Any, make_environment: Callable[..., Any]
) -> None:
    checks = check_sdk(Diagnosis(), make_environment(**machine))
    for check, (state, found), needing in zip(checks, (sdk, poprun), (("poprun", "direct"), ("poprun",))):
        assert (check.state, found in check.found) == (state, True), check
        assert bool(check.fix) == (state != "ok"), check
        assert check.stops == (needing if state == "missing" else ())


def test_one_process_needs_the_sdk_without_its_poprun(make_environment: Callable[..., Any]) -> None:
    environment = make_environment(environ={"POPLAR_SDK_ENABLED": SDK}, files=THERE)
    found = check_sdk(Diagnosis(engines=("direct",)), environment)
    assert [(check.name, check.state) for check in found] == [("SDK", "ok")]


@pytest.mark.parametrize("there", [True, False], ids=["there", "gone"])
def test_a_fabric_file_that_hides_the_partition_is_told(there: bool, make_environment: Callable[..., Any]) -> None:
    environment = make_environment(
        environ={"IPUOF_CONFIG_PATH": "/x/ipuof.conf"}, files={"x/ipuof.conf": ""} if there else {}
    )
    found = check_sdk(Diagnosis(), environment)[-1]
    assert (found.name, found.state) == ("IPU fabric", "warning")
    assert ("not there" in found.found) is not there
