"""What no source of the package does: run code that it reads, or start a shell."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Dict, Iterator, List

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("configs", "topology", "launcher", "data_pipeline", "workers")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

MODULES = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "pty", "commands", "imp"}
CALLS = {
    *("eval", "exec", "__import__", "system", "popen", "getoutput", "getstatusoutput", "mktemp"),
    *("unsafe_load", "unsafe_load_all", "full_load", "full_load_all", "execfile", "execute_module"),
    # Keras models hold Python code in their Lambda layers, and saved models any operation of a graph.
    *("load_model", "model_from_json", "model_from_yaml", "model_from_config", "clone_from_config", "import_graph_def"),
    *("enable_unsafe_deserialization", "load_op_library"),
}
# Fine as methods of others.
CHAINS = {
    *("np.load", "numpy.load", "yaml.load", "yaml.load_all", "yaml.Loader", "yaml.UnsafeLoader"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler"),
    *("tf.saved_model.load", "saved_model.load", "tf.saved_model.loader.load", "subprocess.getoutput", "hub.load"),
}
ALLOWED = {
    # mpirun and poprun take a lone `:` among a program's own arguments for theirs; only a shell can hide it.
    "launcher/engines/command.py": ["names /bin/sh"],
    # What a Pod runs is a script, as the jobs of other schedulers are.
    "launcher/schedulers/kubernetes.py": ["names /bin/bash"],
    # CIFAR comes as pickles; the reader there takes plain values alone.
    "data_pipeline/sources/pickled.py": ["imports pickle"],
}


def _chain(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_chain(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(text: str) -> Iterator[str]:
    """What a source should not have."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            names = [module] if module else [alias.name for alias in getattr(node, "names", [])]
            yield from (f"imports {name}" for name in names if name.split(".")[0] in MODULES)
        chain = _chain(node) if isinstance(node, ast.Attribute) else ""
        if chain in CHAINS:
            yield f"uses {chain}"
        if isinstance(node, ast.Call):
            called = _chain(node.func)
            name = called.rpartition(".")[2] or getattr(node.func, "attr", "")
            if name in CALLS or called == "compile":  # others compile patterns and models
                yield f"calls {called or name}"
            for keyword in node.keywords:
                if keyword.arg == "shell" and getattr(keyword.value, "value", True) is not False:
                    yield "starts a shell"
                if keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) is not False:
                    yield "reads pickles"
        if isinstance(node, ast.Constant) and node.value in ("/bin/sh", "/bin/bash", "sh", "bash"):
            yield f"names {node.value}"


def test_no_source_runs_what_it_reads() -> None:
    found: Dict[str, List[str]] = {
        path.relative_to(ROOT).as_posix(): list(unsafe(path.read_text(encoding="utf-8"))) for path in SOURCES
    }
    assert {name: what for name, what in found.items() if what} == ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "eval('1')",
        "builtins.exec(code)",
        "os.system('x')",
        "os.popen('x')",
        "subprocess.run('x', shell=True)",
        "subprocess.run('x', shell=flag)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "f = np.load",
        "read(path, allow_pickle=flag)",
        "tf.saved_model.load(path)",
        "tf.keras.models.load_model(path)",
        "keras.models.model_from_json(text)",
        "compile(text, name, mode)",
        "run(['/bin/sh', '-c', text])",
    ],
)
def test_what_is_unsafe_is_seen(text: str) -> None:
    assert list(unsafe(text))


@pytest.mark.parametrize(
    "text",
    ["re.compile('x')", "model.compile(loss)", "checkpoints.load(path)", "self.eval_steps", "yaml.safe_load(text)"],
)
def test_what_is_safe_is_not_seen(text: str) -> None:
    assert list(unsafe(text)) == []
