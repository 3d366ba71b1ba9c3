"""The Python of the instances: our package, TensorFlow, its Keras, and the SDK's part of it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import List

from ipulaunch.configs.text import ENABLE_SDK
from ipulaunch.launcher.doctor.answers import Answer, ask_python
from ipulaunch.launcher.doctor.diagnosis import MISSING, OK, SYNTHETIC, WARNING, Check, Diagnosis
from ipulaunch.launcher.doctor.environment import Environment
from ipulaunch.launcher.doctor.machine import check_policy
from ipulaunch.launcher.doctor.mpi import check_mpi4py
from ipulaunch.launcher.doctor.sdk import GROUP as ON_IPUS
from ipulaunch.launcher.engines.engine import MPI, SDK
from ipulaunch.launcher.engines.registry import ENGINES, engines_that_need
from ipulaunch.launcher.launch.needs import are_packed

GROUP = "Python of the instances"
_TENSORFLOW = "pip install 'ipulaunch[cpu]', or on a POD the SDK's tensorflow and keras wheels"
_ESTIMATORS = "pip install 'tensorflow<2.16' or the Poplar SDK's, or train with Keras: --api keras, --no-use-estimator"
_IMAGES = "pip install 'ipulaunch[images]'"
_ISAL = "pip install 'ipulaunch[gzip]'"
_WHEELS = "pip install the tensorflow and keras wheels inside the SDK; those of the package index do not support IPUs"


def check_interpreter(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """All checks of the Python of the instances."""
    answers = ask_python(diagnosis.python, environment)
    python = answers.about("python")
    if python.error:
        fix = "name the Python that has ipulaunch and TensorFlow with --python"
        return [Check(GROUP, "Python", MISSING, f"{diagnosis.python}: {python.error}", fix, ENGINES)]
    checks = [
        Check(GROUP, "Python", OK, f"{python.value}: {diagnosis.python}"),
        _project(diagnosis, answers.about("project")),
        _tensorflow(diagnosis, answers.about("tensorflow")),
    ]
    if not answers.about("tensorflow").error:
        checks.append(_keras(diagnosis, answers.about("keras")))
    if diagnosis.needs_estimators and not answers.about("tensorflow").error:
        checks.append(_estimators(diagnosis, answers.about("tensorflow"), answers.about("estimators")))
    if diagnosis.plan is not None and diagnosis.plan.workload == "imagenet":
        checks.append(_for_crops(diagnosis, "OpenCV", answers.about("opencv")))
        checks.append(_for_crops(diagnosis, "simplejpeg", answers.about("simplejpeg")))
    if diagnosis.volumes is not None and are_packed(diagnosis.volumes):
        checks.append(_isal(answers.about("isal")))
    if diagnosis.examines(SDK):
        checks += [_popdist(diagnosis, answers.about("popdist")), _ipu_build(diagnosis, answers.about("ipu_build"))]
    if diagnosis.examines(MPI):
        checks.append(check_mpi4py(diagnosis, environment, answers.about("mpi4py")))
    return [*checks, check_policy(answers.about("memory"))]


def own_version() -> str:
    """The version of this launcher."""
    try:
        return version("ipulaunch")
    except PackageNotFoundError:
        return ""


def _project(diagnosis: Diagnosis, answer: Answer) -> Check:
    if answer.error:
        fix = f"{diagnosis.python} -m pip install ipulaunch, or another --python"
        return Check(GROUP, "ipulaunch", MISSING, answer.error, fix, diagnosis.through_ours)
    if answer.value != own_version():
        found = f"{answer.value}, and this launcher is {own_version() or 'not installed'}"
        return Check(GROUP, "ipulaunch", MISSING, found, "install the same version in both", diagnosis.for_workloads())
    return Check(GROUP, "ipulaunch", OK, answer.value)


def _tensorflow(diagnosis: Diagnosis, answer: Answer) -> Check:
    if answer.error:
        return Check(GROUP, "TensorFlow", MISSING, answer.error, _TENSORFLOW, diagnosis.for_workloads())
    return Check(GROUP, "TensorFlow", OK, answer.value)


def _keras(diagnosis: Diagnosis, answer: Answer) -> Check:
    """TensorFlow 2.16 and later come with Keras 3, which knows neither our training step nor the IPU."""
    fix = "pip install tf-keras, of the same version as TensorFlow"
    if answer.error:
        return Check(GROUP, "Keras 2", MISSING, answer.error, fix, diagnosis.for_workloads())
    if not answer.value:
        return Check(GROUP, "Keras 2", WARNING, "this Keras does not report its version", fix)
    if not answer.value.startswith("2."):
        return Check(GROUP, "Keras 2", MISSING, f"this is Keras {answer.value}", fix, diagnosis.for_workloads())
    return Check(GROUP, "Keras 2", OK, answer.value)


def _estimators(diagnosis: Diagnosis, tensorflow: Answer, answer: Answer) -> Check:
    if answer.error:
        found = f"TensorFlow {tensorflow.value} has none: 2.15 is the last version with Estimators"
        return Check(GROUP, "Estimators", MISSING, found, _ESTIMATORS, diagnosis.for_workloads())
    return Check(GROUP, "Estimators", OK, f"those of TensorFlow {tensorflow.value}")


def _for_crops(diagnosis: Diagnosis, name: str, answer: Answer) -> Check:
    """For the random crops of ImageNet's images, which synthetic ones do without."""
    if answer.error:
        stops = () if diagnosis.samples == SYNTHETIC else diagnosis.for_workloads()
        return Check(GROUP, name, MISSING if stops else WARNING, answer.error, _IMAGES, stops)
    return Check(GROUP, name, OK, answer.value)


def _isal(answer: Answer) -> Check:
    """For CosmoFlow's compressed volumes; the standard library unpacks them too."""
    if answer.error:
        found = f"{answer.error}; zlib unpacks the volumes, at about a quarter of the speed"
        return Check(GROUP, "isal", WARNING, found, _ISAL)
    return Check(GROUP, "isal", OK, answer.value)


def _popdist(diagnosis: Diagnosis, answer: Answer) -> Check:
    if answer.error:
        fix = f"{ENABLE_SDK}; it puts popdist on the PYTHONPATH"
        return Check(ON_IPUS, "popdist", MISSING, answer.error, fix, diagnosis.for_workloads(engines_that_need(SDK)))
    return Check(ON_IPUS, "popdist", OK, answer.value or "can be imported")


def _ipu_build(diagnosis: Diagnosis, answer: Answer) -> Check:
    if answer.error:
        stops = diagnosis.for_workloads(engines_that_need(SDK))
        return Check(ON_IPUS, "TensorFlow for IPUs", MISSING, answer.error, _WHEELS, stops)
    return Check(ON_IPUS, "TensorFlow for IPUs", OK, "tensorflow.python.ipu can be imported")
