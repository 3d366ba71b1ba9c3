from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, List

import pytest

from ipulaunch.configs.benchmarks import (
    COMPILE_TIME,
    Benchmark,
    Specification,
    read_specification,
    spec_files,
)

Read = Callable[[str], Specification]


@pytest.fixture()
def read(tmp_path: Path) -> Read:
    def make(text: str) -> Specification:
        path = tmp_path / "benchmarks.yml"
        path.write_text(text)
        return read_specification([path])

    return make


def _one(found: Specification) -> Benchmark:
    assert not found.errors and not found.wrong
    (benchmark,) = found.benchmarks.values()
    return benchmark


@pytest.mark.parametrize(
    ("parameters", "variants"),
    [
        ("{}", [{}]),
        ("{size: '1,32'}", [{"size": "1"}, {"size": "32"}]),
        ("{size: 8}", [{"size": "8"}]),
        ("{size: '1, 32'}", [{"size": "1"}, {"size": "32"}]),
        ("{size: [1, 32]}", [{"size": "1"}, {"size": "32"}]),
        # Later names vary slowest.
        (
            "{b: '1,2', a: 'x,y,z'}",
            [{"b": b, "a": a} for a in ("x", "y", "z") for b in ("1", "2")],
        ),
        ("[[a, b], [1, x], [2, y]]", [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]),
    ],
)
def test_parameters_are_all_combinations_or_the_rows_of_a_table(
    read: Read, parameters: str, variants: List[Dict[str, str]]
) -> None:
    benchmark = _one(read(f"a: {{cmd: x, parameters: {parameters}}}"))
    assert list(benchmark.parameters) == variants


def test_an_entry_is_read_whole(read: Read, tmp_path: Path) -> None:
    benchmark = _one(
        read(
            """
common_options: &common
  data:
    throughput: {regexp: 'throughput: *(.*?) samples\\/sec', skip: 2, reduction_type: 'mean'}
    loss: {regexp: 'loss: (\\d+)', reduction_type: 'final'}
  output: [[samples/sec, throughput], [sec, compile_time], [batch, size]]
  env: {A: '{"b":"c"}', N: 3}
it:
  <<: *common
  description:
    one,
    two
  parameters: {size: 1}
  derived: {per_s: {expr: '{throughput} / 2'}}
  cmd: >-
    python3 a.py
        --size {size}
  location: sub
  timeout: 60
"""
        )
    )
    assert benchmark.origin == f"{tmp_path}/benchmarks.yml:8"
    assert benchmark.description == "one, two"
    assert [(metric.name, metric.skip, metric.reduction) for metric in benchmark.metrics] == [
        ("throughput", 2, "mean"),
        ("loss", 0, "final"),
    ]
    assert benchmark.derived == {"per_s": "{throughput} / 2"}
    assert benchmark.output == (("samples/sec", "throughput"), ("sec", COMPILE_TIME), ("batch", "size"))
    assert benchmark.env == {"A": '{"b":"c"}', "N": "3"}
    assert benchmark.directory == tmp_path / "sub"
    assert benchmark.timeout_s == 60
    assert benchmark.messages == ()


def test_what_nobody_does_or_reads_is_said(read: Read, tmp_path: Path) -> None:
    benchmark = _one(
        read("a: {cmd: x, requirements_path: r.txt, outputs: [], output: [[l, los]], data: {loss: {regexp: x}}}")
    )
    assert [str(message) for message in benchmark.messages] == [
        f"note: requirements_path: bench installs nothing; before it, pip install -r {tmp_path}/r.txt",
        "warning: nothing reads the key outputs; did you mean output?",
        "warning: the output 'l' shows los, which is no metric; did you mean loss?",
    ]


@pytest.mark.parametrize(
    ("name", "is_convergence"),
    [("a_conv", True), ("a_conv_pod16", True), ("a_convnext_pod4", False), ("conv", False), ("a", False)],
)
def test_long_trainings_are_known_by_their_names(read: Read, name: str, is_convergence: bool) -> None:
    assert _one(read(f"{name}: {{cmd: x}}")).is_convergence == is_convergence


def test_entries_for_others_to_merge_are_no_benchmarks(read: Read) -> None:
    found = read("my_options: {cmd: x}\nanchor: &a {env: {}}\nbook: {notebook: a.ipynb}\ntext: hello\nit: {cmd: x}\n")
    assert list(found.benchmarks) == ["it"] and not found.errors and not found.wrong
    assert list(found.others) == ["my_options", "anchor", "book", "text"]
    assert "notebook" in found.others["book"] and "has no cmd" in found.others["anchor"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{cmd: 3}", "cmd is 3, not a command line"),
        ("{cmd: x, data: {a: {regexp: '(('}}}", "regexp of a is broken"),
        ("{cmd: x, data: {a: {regexp: '(a)(b)'}}}", "has 2 groups"),
        ("{cmd: x, data: {a: {}}}", "metric a has no regexp"),
        ("{cmd: x, data: [a]}", "data is not a mapping"),
        ("{cmd: x, data: {a: {regexp: x, skip: -1}}}", "skip of a is -1"),
        ("{cmd: x, data: {a: {regexp: x, skip: yes}}}", "skip of a is True"),
        ("{cmd: x, data: {a: {regexp: x, reduction_type: avg}}}", "reduction_type of a is 'avg'"),
        ("{cmd: x, derived: {a: {}}}", "derived metric a has no expr"),
        ("{cmd: x, output: [a]}", "output is not a list"),
        ("{cmd: x, env: {A: yes}}", "A of env is True, not text"),
        ("{cmd: x, env: {'A B': x}}", "cannot be the name of a variable"),
        ("{cmd: x, timeout: 0}", "timeout is 0"),
        ("{cmd: x, timeout: .nan}", "timeout is nan"),
        ("{cmd: x, location: [a]}", "location is"),
        ("{cmd: x, parameters: 3}", "neither a mapping nor a list"),
        ("{cmd: x, parameters: [[a, b]]}", "a row of names and then"),
        ("{cmd: x, parameters: [[a, b], [1]]}", "2 names, and a row of 1 values"),
        ("{cmd: x, parameters: {a: {b: 1}}}", "not a single value"),
        ("{cmd: x, parameters: {a: []}}", "has no values"),
        ("{cmd: x, parameters: " + str(dict.fromkeys(range(40), "1,2,3")) + "}", "variants, more than"),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_an_error_with_its_line_and_leaves_the_others(read: Read, entry: str, message: str) -> None:
    found = read(f"good: {{cmd: x}}\nwrong: {entry}\n")
    assert list(found.benchmarks) == ["good"]
    assert list(found.wrong) == ["wrong"]
    text = found.wrong["wrong"].message
    assert message in text and "benchmarks.yml:2: wrong: " in text


def test_an_unknown_reduction_gets_the_near_miss(read: Read) -> None:
    found = read("a: {cmd: x, data: {a: {regexp: x, reduction_type: finale}}}")
    assert found.wrong["a"].hint == "did you mean final?"


def test_aliases_do_not_make_messages_long(read: Read) -> None:
    levels = "\n".join(f"o{n}: &o{n} [*o{n - 1}, *o{n - 1}, *o{n - 1}]" for n in range(1, 40))
    found = read(f"o0: &o0 [x, y]\n{levels}\nwrong: {{cmd: *o39, requirements_path: *o39}}\n")
    assert len(found.wrong["wrong"].message) < 1000


def test_wildcards_find_yaml_files_and_a_path_that_is_not_there_stays(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.txt", "sub/d.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "[x].yml").write_text("")
    names = spec_files([f"{tmp_path}/*", f"{tmp_path}/b.yml", f"{tmp_path}/no*.yml"])
    assert [path.name for path in names] == ["[x].yml", "a.yaml", "b.yml", "no*.yml"]
    assert [path.name for path in spec_files([f"{tmp_path}/**/d.yml", f"{tmp_path}/[x].yml"])] == ["d.yml", "[x].yml"]
    assert "there is no file" in read_specification(names).errors[0].message


def test_the_later_of_two_files_wins_with_a_warning(tmp_path: Path) -> None:
    files = [tmp_path / "a.yml", tmp_path / "b.yml"]
    for path in files:
        path.write_text(f"it: {{cmd: {path.name}}}\n")
    found = read_specification(files)
    assert found.benchmarks["it"].cmd == "b.yml"
    assert "replaces that of" in found.messages[0].text


def test_what_ships_is_right_and_runs_where_its_logs_are() -> None:
    found = read_specification(spec_files([]))
    assert not found.errors and not found.wrong and not found.messages
    assert all(not benchmark.messages and benchmark.directory is None for benchmark in found.benchmarks.values())
    assert {"tf2_resnet50_train_real_pod4", "tf2_resnet50_train_real_pod16", "mnist_rehearsal"} <= set(found.benchmarks)
