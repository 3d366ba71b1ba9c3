from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.messages import note
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.poprun_table import OFFERED
from ipulaunch.launcher.launch import launch_record

OPTIONS = LaunchOptions(
    pod="16",
    ipus=8,
    hosts="a,b",
    hostfile=Path("h"),
    host_layout="8x16",
    ilds=1,
    oversubscribe=True,
    engine="poprun",
    python="/opt/python",
    openmpi_version=4,
    sdk=(3, 3),
    env=("A", "B=c=d\n"),
    mpi_global_args=("--mca a b",),
    mpi_local_args=("-x C",),
    allow_run_as_root=False,
    poprun={"vipu_partition": "p", "vipu_server_port": 8090, "update_partition": False, "offline_mode": True},
)


def again(asked: LaunchOptions) -> LaunchOptions:
    return launch_record.from_json(launch_record.to_json(asked), "asked.json")


def test_all_is_kept_but_what_the_plan_and_the_job_have() -> None:
    assert again(OPTIONS) == OPTIONS._replace(hosts=None, hostfile=None, engine=None)
    assert again(LaunchOptions()) == LaunchOptions()


def test_what_was_not_given_is_not_written() -> None:
    asked = LaunchOptions(poprun={**dict.fromkeys(OFFERED), "instance_mpi_local_args": ()})
    assert json.loads(launch_record.to_json(asked)) == {"format": 1}


def test_every_option_can_be_kept() -> None:
    values = {"int": 1, "bool": False, "flag": True, "text": "t"}
    poprun = {key: ("0:-x A",) if option.repeatable else values[option.kind] for key, option in OFFERED.items()}
    asked = LaunchOptions(poprun=poprun, poprun_args=("--new=1",), tag_output=True)
    assert again(asked) == asked
    assert set(launch_record._FIELDS) | set(launch_record._NOT_HERE) == set(LaunchOptions._fields)


def test_of_secrets_only_names_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")
    env = ("MY_TOKEN", "URL=https://x/?t=hunter2-hunter2", "OPTIONS=--api-key abcdef", "PROXY=http://u:pw@x", "A=b")
    text = launch_record.to_json(LaunchOptions(env=env))
    assert json.loads(text)["env"] == ["MY_TOKEN", "URL", "OPTIONS", "PROXY", "A=b"]


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"pod": 16},
        {"ipus": 0},
        {"ipus": True},
        {"oversubscribe": "yes"},
        {"sdk": "99.1"},
        {"env": "A"},
        {"env": [["A"]]},
        {"python": "a\0b"},
        {"python": ""},
        {"poprun": {"mpi_global_args": "x"}},
        {"poprun": {"vipu_partition": None}},
        {"poprun": {"vipu_server_port": 0}},
        {"poprun": {"only_output_from_instance": -1}},
        {"poprun": {"instance_mpi_local_args": "0:-x A"}},
        {"poprun_args": "--new"},
        {"poprun": []},
        {"hosts": "-oProxyCommand=reboot"},
        {"exec": "reboot"},
    ],
    ids=str,
)
def test_what_is_wrong_is_refused(change: Dict[str, Any]) -> None:
    data = {**json.loads(launch_record.to_json(OPTIONS)), **change}
    with pytest.raises(DataError, match=r"asked\.json does not say how a run was launched"):
        launch_record.from_json(json.dumps(data), "asked.json")


def test_what_is_given_now_wins() -> None:
    before = LaunchOptions(pod="16", oversubscribe=True, env=("A=1", "B"), mpi_local_args=("-x C",))
    before = before._replace(allow_run_as_root=True, poprun={"vipu_partition": "p", "reset_partition": True})
    unset = {"vipu_partition": None, "instance_mpi_local_args": ()}
    assert launch_record.laid_over(LaunchOptions(poprun=unset), before) == before
    given = LaunchOptions(hosts="a", env=("B=2", "D"), mpi_local_args=("-x E",), allow_run_as_root=False)
    given = given._replace(poprun={**unset, "reset_partition": False, "host_subnet": "10.0.0.0/8"})
    assert launch_record.laid_over(given, before) == LaunchOptions(
        pod="16",
        hosts="a",
        oversubscribe=True,
        env=("A=1", "B=2", "D"),
        mpi_local_args=("-x E",),
        allow_run_as_root=False,
        poprun={"vipu_partition": "p", "reset_partition": False, "host_subnet": "10.0.0.0/8"},
    )


def test_an_allocation_takes_the_place_of_a_cluster() -> None:
    before = LaunchOptions(poprun={"vipu_cluster": "c", "vipu_partition": "p"})
    given = LaunchOptions(poprun={"vipu_allocation": "a", "vipu_cluster": None})
    assert launch_record.laid_over(given, before).poprun == {"vipu_allocation": "a", "vipu_partition": "p"}


def test_a_file_of_another_user_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)
    run.launch_options.write_text(launch_record.to_json(LaunchOptions(python="/tmp/evil", ilds=2)))
    assert launch_record.read(run) == (
        LaunchOptions(python="/tmp/evil", ilds=2),
        (note("taken from the launch of the run: --num-ilds, --python"),),
    )
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    options, (message,) = launch_record.read(run)
    assert options == LaunchOptions() and "is another user's" in message.text


def test_a_run_without_it_says_so(tmp_path: Path) -> None:
    options, (message,) = launch_record.read(RunDirectory(tmp_path))
    assert options == LaunchOptions() and message.text.startswith("how it was launched is not recorded")
    (tmp_path / "asked.json").mkdir()
    with pytest.raises(DataError, match=r"asked\.json cannot be read: it is not a regular file"):
        launch_record.read(RunDirectory(tmp_path))
