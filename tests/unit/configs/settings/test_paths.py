from __future__ import annotations

from pathlib import Path

import pytest

from ipulaunch.configs.settings.schema import leaves, relative_paths, value_of, whole_path, with_whole_paths
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import WORKLOADS, resolve, schema_of


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_directory_of_a_workload_counts_as_a_path(workload: str) -> None:
    named = {leaf.key for leaf in leaves(schema_of(workload)) if leaf.about.flag.endswith(("-dir", "-path"))}
    named.remove("training.clean_dir")  # which is a switch
    assert {leaf.key for leaf in leaves(schema_of(workload)) if leaf.about.is_path} == named
    assert "training.checkpoint_output_dir" in named and "data.stage_dir" in named


def test_paths_become_whole_and_nothing_else_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ("training.checkpoint_output_dir=a/b", "data.directory=/d/", "training.resume=auto")
    settings = resolve("cosmoflow", rehearsal=True, overrides=[assignment(text, "--set") for text in texts]).settings
    assert relative_paths(settings) == {"training.checkpoint_output_dir": "a/b"}
    whole = with_whole_paths(settings)
    assert relative_paths(whole) == {} and with_whole_paths(whole) == whole
    changed = {
        leaf.key: value_of(whole, leaf.key)
        for leaf in leaves(type(settings))
        if value_of(whole, leaf.key) != value_of(settings, leaf.key)
    }
    assert changed == {"training.checkpoint_output_dir": f"{tmp_path}/a/b"}


@pytest.mark.parametrize(
    ("path", "expected"), [("/a//b/", "/a//b/"), ("a", "{here}/a"), ("./a/", "{here}/a"), ("../a", "{here}/../a")]
)
def test_whole_path(path: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert whole_path(path) == expected.format(here=tmp_path)
