"""The Python of the instances: our package, TensorFlow, its Keras, and the SDK's part of it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import List

from ipulaunch.launcher.doctor.answers import Answer, ask_python
from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import BOTH, MISSING, OK, OPENMPI, POPRUN, WARNING, Check
from ipulaunch.launcher.doctor.memory import check_policy
from ipulaunch.launcher.doctor.mpi import check_mpi4py
from ipulaunch.launcher.doctor.sdk import ENABLE
from ipulaunch.launcher.doctor.sdk import GROUP as ON_IPUS
from ipulaunch.launcher.doctor.world import World

GROUP = "Python of the instances"
_TENSORFLOW = "pip install 'ipulaunch[cpu]', or on a POD the SDK's tensorflow and keras wheels"
_WHEELS = "pip install the tensorflow and keras wheels inside the SDK; those of the package index know no IPU"


def check_interpreter(case: Case, world: World) -> List[Check]:
    """Everything that the Python of the instances says of itself."""
    answers = ask_python(case.python, world)
    python = answers.about("python")
    if python.error:
        fix = "name the Python that has ipulaunch and TensorFlow with --python"
        return [Check(GROUP, "Python", MISSING, f"{case.python}: {python.error}", fix, BOTH)]
    checks = [
        Check(GROUP, "Python", OK, f"{python.value}: {case.python}"),
        _project(case, answers.about("project")),
        _tensorflow(case, answers.about("tensorflow")),
    ]
    if not answers.about("tensorflow").error:
        checks.append(_keras(case, answers.about("keras")))
    if case.looks_at(POPRUN):
        checks += [_popdist(case, answers.about("popdist")), _ipu_build(case, answers.about("ipu_build"))]
    if case.looks_at(OPENMPI):
        checks.append(check_mpi4py(case, world, answers.about("mpi4py")))
    return [*checks, check_policy(answers.about("memory"))]


def own_version() -> str:
    """The version of this launcher."""
    try:
        return version("ipulaunch")
    except PackageNotFoundError:
        return ""


def _project(case: Case, answer: Answer) -> Check:
    if answer.error:
        fix = f"{case.python} -m pip install ipulaunch, or another --python"
        # A program of the user's own is started as it is by poprun, and through a module of ours by mpirun.
        return Check(GROUP, "ipulaunch", MISSING, answer.error, fix, (OPENMPI, *case.ours(POPRUN)))
    if answer.value != own_version():
        found = f"{answer.value}, and this launcher is {own_version() or 'not installed'}"
        return Check(GROUP, "ipulaunch", MISSING, found, "install the same version in both", case.ours(*BOTH))
    return Check(GROUP, "ipulaunch", OK, answer.value)


def _tensorflow(case: Case, answer: Answer) -> Check:
    if answer.error:
        return Check(GROUP, "TensorFlow", MISSING, answer.error, _TENSORFLOW, case.ours(*BOTH))
    return Check(GROUP, "TensorFlow", OK, answer.value)


def _keras(case: Case, answer: Answer) -> Check:
    """TensorFlow 2.16 and later come with Keras 3, which knows neither our training step nor the IPU."""
    fix = "pip install tf-keras, of the same version as TensorFlow"
    if answer.error:
        return Check(GROUP, "Keras 2", MISSING, answer.error, fix, case.ours(*BOTH))
    if not answer.value:
        return Check(GROUP, "Keras 2", WARNING, "there is a Keras that does not say its version", fix)
    if not answer.value.startswith("2."):
        return Check(GROUP, "Keras 2", MISSING, f"this is Keras {answer.value}", fix, case.ours(*BOTH))
    return Check(GROUP, "Keras 2", OK, answer.value)


def _popdist(case: Case, answer: Answer) -> Check:
    if answer.error:
        fix = f"{ENABLE}; it puts popdist on the PYTHONPATH"
        return Check(ON_IPUS, "popdist", MISSING, answer.error, fix, case.ours(POPRUN))
    return Check(ON_IPUS, "popdist", OK, answer.value or "can be imported")


def _ipu_build(case: Case, answer: Answer) -> Check:
    if answer.error:
        return Check(ON_IPUS, "TensorFlow for IPUs", MISSING, answer.error, _WHEELS, case.ours(POPRUN))
    return Check(ON_IPUS, "TensorFlow for IPUs", OK, "tensorflow.python.ipu can be imported")
