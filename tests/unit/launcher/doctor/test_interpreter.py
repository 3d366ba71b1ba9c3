from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from ipulaunch.launcher.doctor.answers import read_answers
from ipulaunch.launcher.doctor.diagnosis import SYNTHETIC, Check, Diagnosis
from ipulaunch.launcher.doctor.environment import Output
from ipulaunch.launcher.doctor.interpreter import check_interpreter
from ipulaunch.launcher.engines.registry import ENGINES
from ipulaunch.launcher.launch.needs import Volumes

GOOD = {
    "python": "3.8.10",
    "project": version("ipulaunch"),
    "memory": "nodes 0",
    "mpi4py": "Open MPI v5.0.8, package: x",
    "opencv": "4.11.0",
    "simplejpeg": "1.9.0",
    "isal": "1.7.2",
    "popdist": "3.3.0",
    "tensorflow": "2.6.3",
    "keras": "2.6.0",
    "estimators": "",
    "ipu_build": "",
}


def answered(**changes: Any) -> Output:
    """What a Python answers; None is an import that fails."""
    lines = []
    for name, value in {**GOOD, **changes}.items():
        lines.append(json.dumps({"asks": name}))
        told = {"error": f"ModuleNotFoundError: No module named {name!r}"} if value is None else {"value": value}
        lines.append(json.dumps({"name": name, **told}))
    return Output(0, "\n".join(["a greeting", *lines]))


def named(checks: Any) -> Dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.parametrize(
    ("changes", "name", "state", "found", "stops"),
    [
        ({}, "Python", "ok", "3.8.10: /opt/bin/py", ()),
        ({}, "ipulaunch", "ok", version("ipulaunch"), ()),
        ({"project": None}, "ipulaunch", "missing", "No module", ENGINES),
        ({"project": "0.0.1"}, "ipulaunch", "missing", "0.0.1, and this launcher is", ENGINES),
        ({}, "TensorFlow", "ok", "2.6.3", ()),
        ({"tensorflow": None}, "TensorFlow", "missing", "No module", ENGINES),
        ({}, "Keras 2", "ok", "2.6.0", ()),
        ({"tensorflow": "2.16.1", "keras": "3.3.3"}, "Keras 2", "missing", "Keras 3.3.3", ENGINES),
        ({"keras": None}, "Keras 2", "missing", "No module", ENGINES),
        ({"keras": ""}, "Keras 2", "warning", "does not report", ()),
        ({}, "popdist", "ok", "3.3.0", ()),
        ({"popdist": ""}, "popdist", "ok", "can be imported", ()),
        ({"popdist": None}, "popdist", "missing", "No module", ("poprun", "direct")),
        ({}, "TensorFlow for IPUs", "ok", "tensorflow.python.ipu", ()),
        ({"ipu_build": None}, "TensorFlow for IPUs", "missing", "No module", ("poprun", "direct")),
        ({}, "mpi4py", "ok", "5.0.8, as mpirun does", ()),
        ({"mpi4py": None}, "mpi4py", "missing", "No module", ("openmpi",)),
        ({"mpi4py": "Open MPI v5.0.1, x"}, "mpi4py", "warning", "5.0.1, and mpirun is 5.0.8", ()),
        ({"mpi4py": "Open MPI v4.1.6, x"}, "mpi4py", "missing", "would be alone", ("openmpi",)),
        ({"mpi4py": "MPICH Version: 4.2"}, "mpi4py", "missing", "MPICH", ("openmpi",)),
        ({}, "memory policy", "ok", "nodes 0", ()),
        ({"memory": "not set: Operation not permitted"}, "memory policy", "warning", "not permitted", ()),
        ({"memory": None}, "memory policy", "warning", "No module", ()),
    ],
)
def test_what_the_python_of_the_instances_has(
    changes: Dict[str, Any], name: str, state: str, found: str, stops: Any, make_environment: Callable[..., Any]
) -> None:
    environment = make_environment(says={"py": answered(**changes)})
    check = named(check_interpreter(Diagnosis(python="/opt/bin/py"), environment))[name]
    assert (check.state, found in check.found, check.stops) == (state, True, stops), check
    assert bool(check.fix) == (state != "ok")


@pytest.mark.parametrize("output", [Output(None, "", "does not start: No such file"), Output(2, "", "bad option")])
def test_a_python_that_does_not_start_is_all_that_is_said(output: Output, make_environment: Callable[..., Any]) -> None:
    (check,) = check_interpreter(Diagnosis(python="py"), make_environment(says={"py": output}))
    assert (check.name, check.state, output.err in check.found) == ("Python", "missing", True)


@pytest.mark.parametrize(
    ("code", "err", "said"),
    [
        pytest.param(-11, "Illegal instruction", "signal 11", id="crash"),
        pytest.param(1, "", "exit code 1", id="exit"),
        pytest.param(None, "no answer within 120 s", "no answer", id="hang"),
    ],
)
def test_what_a_python_dies_of_is_known_and_the_rest_was_not_asked(code: Any, err: str, said: str) -> None:
    lines = [{"asks": "python"}, {"name": "python", "value": "3.8.1"}, {"asks": "tensorflow"}]
    answers = read_answers(Output(code, "\n".join(map(json.dumps, lines)), err))
    assert answers.about("python").value == "3.8.1"
    assert said in answers.about("tensorflow").error
    assert "tensorflow came before" in answers.about("keras").error


def test_an_engine_that_is_not_looked_at_is_not_mentioned(make_environment: Callable[..., Any]) -> None:
    environment = make_environment(says={"py": answered(popdist=None)})
    assert "popdist" not in named(check_interpreter(Diagnosis(python="py", engines=("openmpi",)), environment))
    assert "mpi4py" not in named(check_interpreter(Diagnosis(python="py", engines=("poprun",)), environment))


@pytest.mark.parametrize(("question", "name"), [("opencv", "OpenCV"), ("simplejpeg", "simplejpeg")])
@pytest.mark.parametrize(
    ("workload", "samples", "found", "state", "stops"),
    [
        ("imagenet", "", "4.11.0", "ok", ()),
        ("imagenet", "", None, "missing", ENGINES),
        ("imagenet", SYNTHETIC, None, "warning", ()),
        ("mnist", "", None, None, None),
    ],
)
def test_crops_need_their_libraries(
    question: str,
    name: str,
    workload: str,
    samples: str,
    found: Any,
    state: Any,
    stops: Any,
    make_environment: Any,
    make_plan: Any,
) -> None:
    environment = make_environment(says={"py": answered(**{question: found})})
    diagnosis = Diagnosis(python="py", plan=make_plan(2, 2)._replace(workload=workload), samples=samples)
    check = named(check_interpreter(diagnosis, environment)).get(name)
    assert (check and check.state, check and check.stops) == (state, stops)


@pytest.mark.parametrize(
    ("start", "answer", "state"),
    [
        (b"\x1f\x8b\x08", "1.7.2", "ok"),
        (b"\x1f\x8b\x08", None, "warning"),
        (b"\x18\x80\x00", None, None),
        (b"", None, None),
        (None, None, None),
    ],
    ids=["gzip", "gzip without isal", "plain", "empty", "no files"],
)
def test_compressed_volumes_are_unpacked_faster_with_isal(
    start: Any, answer: Any, state: Any, tmp_path: Path, make_environment: Callable[..., Any]
) -> None:
    if start is not None:
        (tmp_path / "train").mkdir()
        (tmp_path / "train" / "a.tfrecord").write_bytes(start)
    volumes = Volumes(tmp_path, ("train", "validation"), 128, 4, 5)
    environment = make_environment(says={"py": answered(isal=answer)})
    check = named(check_interpreter(Diagnosis(python="py", volumes=volumes), environment)).get("isal")
    assert (check and check.state, check and check.stops) == (state, () if state else None)
    if check and state == "warning":
        assert "zlib" in check.found and check.fix == "pip install 'ipulaunch[gzip]'"


@pytest.mark.parametrize(
    ("needs", "answer", "state", "stops"),
    [
        (True, "", "ok", ()),
        (True, None, "missing", ENGINES),
        (False, None, None, None),
    ],
)
def test_an_estimator_needs_a_tensorflow_that_has_them(
    needs: bool, answer: Any, state: Any, stops: Any, make_environment: Callable[..., Any]
) -> None:
    environment = make_environment(says={"py": answered(tensorflow="2.16.1", estimators=answer)})
    check = named(check_interpreter(Diagnosis(python="py", needs_estimators=needs), environment)).get("Estimators")
    assert (check and check.state, check and check.stops) == (state, stops)
    if check and check.state != "ok":
        assert check.found == "TensorFlow 2.16.1 has none: 2.15 is the last version with Estimators"
        assert "--api keras" in check.fix


def test_a_single_instance_needs_no_mpi4py(make_environment: Callable[..., Any], make_plan: Callable[..., Any]) -> None:
    environment = make_environment(says={"py": answered(mpi4py=None)})
    for instances, stops in ((1, ()), (2, ("openmpi",))):
        diagnosis = Diagnosis(python="py", plan=make_plan(2, instances), engine="openmpi")
        assert named(check_interpreter(diagnosis, environment))["mpi4py"].stops == stops


def test_a_program_of_the_users_own_brings_its_libraries(make_environment: Callable[..., Any]) -> None:
    environment = make_environment(
        says={"py": answered(project=None, tensorflow=None, popdist=None, ipu_build=None, mpi4py=None)}
    )
    checks = check_interpreter(Diagnosis(python="py", is_own_program=True), environment)
    assert {check.name: check.stops for check in checks if check.stops} == {"ipulaunch": ("openmpi",)}
