"""Asks the Python of the instances about itself, in a process of its own: TensorFlow may not even load."""

from __future__ import annotations

import json
from typing import Dict, NamedTuple

from ipulaunch.launcher.doctor.environment import Environment, Output

TIMEOUT_S = 120.0  # TensorFlow from a busy network file system takes a minute

# One line names the question, the next has the answer: the last question is known even if it kills the process.
_QUESTIONS = r"""
import importlib.util
import json
import os
import sys

lines = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
if importlib.util.find_spec("tf_keras"):
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

def tell(**line):
    lines.write("\n" + json.dumps(line) + "\n")
    lines.flush()

def ask(name, question):
    tell(asks=name)
    try:
        tell(name=name, value=question())
    except BaseException as error:
        tell(name=name, error="%s: %s" % (type(error).__name__, error))

def python():
    return "%d.%d.%d" % sys.version_info[:3]

def project():
    from importlib.metadata import version
    import ipulaunch.workers
    return version("ipulaunch")

def mpi4py():
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
    return MPI.Get_library_version()

def memory():
    from ipulaunch.topology.machines.hosts import discover
    from ipulaunch.workers.lifecycle.binding import bind
    nodes = discover("here").nodes
    return bind(os.sched_getaffinity(0), 1, (nodes[0].number,)).memory

def tensorflow():
    import tensorflow
    return tensorflow.__version__

def keras():
    import tensorflow
    package = tensorflow.keras.Model.__module__.split(".")[0]
    return getattr(sys.modules[package], "__version__", "") if package != "tensorflow" else tensorflow.keras.__version__

def opencv():
    import cv2
    return cv2.__version__

def simplejpeg():
    import simplejpeg
    return simplejpeg.__version__

def isal():
    from importlib.metadata import version
    from isal import igzip_lib
    return version("isal")

def popdist():
    import popdist
    return getattr(popdist, "__version__", "")

def estimators():
    import tensorflow
    tensorflow.estimator.Estimator
    return ""

def ipu_build():
    from tensorflow.python import ipu
    return ""

libraries = (mpi4py, opencv, simplejpeg, isal, popdist)
for question in (python, project, memory, *libraries, tensorflow, keras, estimators, ipu_build):
    ask(question.__name__, question)
lines.close()
os._exit(0)
"""


class Answer(NamedTuple):
    """An answer, or the reason why there is none."""

    value: str = ""
    error: str = ""


class Answers(NamedTuple):
    """All answers of one Python; `error` is for a Python that did not even start."""

    answers: Dict[str, Answer]
    error: str = ""

    def about(self, name: str) -> Answer:
        return self.answers.get(name, Answer(error=self.error or "it was not asked"))


def ask_python(python: str, environment: Environment) -> Answers:
    """Ask the Python of the instances."""
    return read_answers(environment.run([python, "-c", _QUESTIONS], TIMEOUT_S))


def read_answers(said: Output) -> Answers:
    """The answers in the output of the process; a question without an answer ended the process."""
    answers: Dict[str, Answer] = {}
    question = ""
    for line in said.out.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and "asks" in told:
            question = str(told["asks"])
        elif isinstance(told, dict) and told.get("name") == question:
            answers[question] = Answer(str(told.get("value", "")), _first_line(str(told.get("error", ""))))
            question = ""
    if question:
        how = said.last_line if said.code is None else f"Python ended with {_ending(said.code)}"
        answers[question] = Answer(error=how)
        return Answers(answers, f"not asked: {question} came before, and {how}")
    if not answers:
        return Answers({}, said.last_line or f"exit code {said.code}")
    return Answers(answers)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""
