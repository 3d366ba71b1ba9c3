from __future__ import annotations

import ast
import configparser
import importlib.util
import re
import sys
import sysconfig
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple

import pytest

ROOT = Path(__file__).parents[2]

# What each room may import beside the standard library and itself.
DOORS: Dict[str, Set[str]] = {
    "configs": {"yaml"},
    "topology": {"ipulaunch.configs"},
    "launcher": {"click", "rich", "jinja2", "markupsafe", "ipulaunch.configs", "ipulaunch.topology"},
    "data_pipeline": {
        "tensorflow",
        "numpy",
        "crc32c",
        "cv2",
        "isal",
        "simplejpeg",
        "ipulaunch.configs",
        "ipulaunch.topology",
    },
    "workers": {
        *("tensorflow", "keras", "tf_keras", "numpy", "mpi4py", "popdist", "matplotlib", "wandb", "grpc", "google"),
        *("ipulaunch.configs", "ipulaunch.topology", "ipulaunch.data_pipeline"),
    },
}
# Part of the standard library, and still not for these rooms: they start no process.
NEVER: Dict[str, Set[str]] = {
    "configs": {"subprocess", "multiprocessing"},
    "topology": {"subprocess", "multiprocessing"},
}

# What each folder of launcher/ may import of the others: those above it here, as far as it needs them.
LAUNCHER: Dict[str, Set[str]] = {
    "engines": set(),  # what starts instances
    "launch": {"engines"},  # what is decided
    "schedulers": {"engines", "launch"},
    "supervise": {"engines", "launch"},  # processes, and what they leave
    "serving": {"supervise"},  # servers of models, and what they serve
    "show": {"launch", "supervise"},
    "report": {"engines", "launch", "schedulers", "supervise", "show"},  # pages about runs
    "doctor": {"engines", "launch", "supervise"},
    "bench": {"engines", "launch", "supervise", "show"},  # benchmarks: what runs, what its logs say
    # what is done: run, resume, look
    "runs": {"engines", "launch", "schedulers", "supervise", "show", "report", "doctor"},
    "cli": {"engines", "launch", "schedulers", "supervise", "serving", "show", "report", "doctor", "bench", "runs"},
}

SOURCES = sorted(path for room in DOORS for path in (ROOT / room).rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def _imports(tree: ast.AST) -> Iterator[Tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from ipulaunch import workers` opens the same door as `import ipulaunch.workers`.
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "ipulaunch" else [node.module]
            )
            yield from ((node.lineno, "." * node.level + (name or "")) for name in names)


def _door(name: str) -> str:
    return ".".join(name.split(".")[: 2 if name.startswith("ipulaunch.") else 1])


def _is_standard(door: str) -> bool:
    if sys.version_info >= (3, 10):
        return door in sys.stdlib_module_names
    if door in sys.builtin_module_names:
        return True
    found = importlib.util.find_spec(door) if door else None
    origin = found.origin if found and found.origin else ""
    return origin.startswith(sysconfig.get_path("stdlib")) and "site-packages" not in origin


def _calls(tree: ast.AST) -> Iterator[Tuple[int, str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            yield node.lineno, name, node


@pytest.fixture(scope="module")
def trees() -> Dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in SOURCES}


def test_every_room_has_sources() -> None:
    assert {_room(path) for path in SOURCES} == set(DOORS)


@pytest.mark.parametrize("room", DOORS)
def test_room_imports_only_through_its_doors(room: str, trees: Dict[Path, ast.Module]) -> None:
    wrong: List[str] = []
    for path, tree in trees.items():
        if _room(path) == room:
            for line, name in _imports(tree):
                door = _door(name)
                allowed = door in DOORS[room] | {f"ipulaunch.{room}"} or _is_standard(door)
                if not allowed or door in NEVER.get(room, set()):
                    wrong.append(f"{_name(path)}:{line} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("folder", LAUNCHER)
def test_folders_of_the_launcher_import_one_way(folder: str, trees: Dict[Path, ast.Module]) -> None:
    wrong = [
        f"{_name(path)}:{line} imports {name}"
        for path, tree in trees.items()
        if path.relative_to(ROOT).parts[:2] == ("launcher", folder)
        for line, name in _imports(tree)
        if name.startswith("ipulaunch.launcher.") and name.split(".")[2] not in LAUNCHER[folder] | {folder}
    ]
    assert wrong == []


def test_every_folder_of_the_launcher_has_its_place_in_the_order() -> None:
    places = list(LAUNCHER)
    assert set(places) == {path.name for path in (ROOT / "launcher").iterdir() if (path / "__init__.py").exists()}
    for place, folder in enumerate(places):
        assert LAUNCHER[folder] <= set(places[:place]), f"{folder} imports what stands below it"


def test_what_is_installed_is_the_rooms_and_nothing_of_the_tests() -> None:
    """The stand-in for the SDK must not be within reach of an installed package."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    places = dict(line.split(" = ") for line in setup["options"]["package_dir"].split("\n") if line)
    assert places == {f"ipulaunch.{room}": room for room in DOORS}
    packages = {_name(path.parent).replace("/", ".") for path in SOURCES}
    assert set(setup["options"]["packages"].split()) == {f"ipulaunch.{package}" for package in packages}
    patterns = " ".join(setup["options.package_data"].values())
    assert ".." not in patterns and "tests" not in patterns


def test_rooms_are_only_looked_up_by_name(trees: Dict[Path, ast.Module]) -> None:
    """An import by a string would get past the other tests."""
    for path, tree in trees.items():
        for line, name, call in _calls(tree):
            if name in ("import_module", "__import__"):
                text = ast.get_source_segment(path.read_text(encoding="utf-8"), call) or ""
                assert f"ipulaunch.{_room(path)}" in text, f"{_name(path)}:{line} {text}"


def test_topology_does_not_print(trees: Dict[Path, ast.Module]) -> None:
    quiet = {path: tree for path, tree in trees.items() if _room(path) in ("configs", "topology")}
    assert [
        f"{_name(p)}:{line}" for p, tree in quiet.items() for line, name, _ in _calls(tree) if name == "print"
    ] == []


def test_only_engines_know_engines_by_their_names(trees: Dict[Path, ast.Module]) -> None:
    """Everyone else asks the engine: an engine that is added needs no other line outside its own folder."""
    compared = [
        f"{_name(path)}:{node.lineno}"
        for path, tree in trees.items()
        if _room(path) == "launcher" and path.parent.name != "engines"
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Attribute)
        and side.attr == "name"
        and "engine" in (getattr(side.value, "id", ""), getattr(side.value, "attr", ""))
    ]
    assert compared == []


def test_no_file_is_a_decision_not_yet_made() -> None:
    undecided = re.compile(r"_?(utils?|helpers?|misc|common)(_.*)?")
    assert [_name(path) for path in SOURCES if undecided.fullmatch(path.stem)] == []


def _evaluates_annotations(path: Path, tree: ast.Module) -> bool:
    code = [node for node in tree.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    only_names = all(isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign)) for node in code)
    is_front = path.name == "__init__.py" and only_names
    has_it = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    return bool(code) and not has_it and not is_front


def test_annotations_are_never_evaluated(trees: Dict[Path, ast.Module]) -> None:
    assert [_name(path) for path, tree in trees.items() if _evaluates_annotations(path, tree)] == []


def test_every_source_says_what_it_is(trees: Dict[Path, ast.Module]) -> None:
    assert [_name(path) for path, tree in trees.items() if not ast.get_docstring(tree)] == []


# Inside a room, from the bottom to the top: a folder or a module imports itself and those before it.
ORDERS = {
    "topology": ("machines", "networks", "planning", "capacity"),
    "data_pipeline": (
        *("ending", "order", "parallel", "records", "staging", "share", "sources", "stream", "reported", "tools"),
        "__main__",
    ),
    "workers": (
        *("models", "backends", "lifecycle", "pasted_line", "startup", "arguments", "programs", "bound"),
        *("instance", "feeds", "progress", "state", "trainers", "train", "validate", "run", "serving", "server"),
        *("one_update", "device_rate", "__main__"),
    ),
}
MOST_IMPORTS, MOST_LINES = 12, 350


def _modules_imported(tree: ast.AST) -> Set[str]:
    """The modules of ours that a module imports, also inside of functions."""
    found: Set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if _source(name) else str(node.module) for name in inside)
    return {name for name in found if name.startswith("ipulaunch.")}


def _source(module: str) -> Optional[Path]:
    """The file of a module of ours, if it is one."""
    path = ROOT.joinpath(*module.split(".")[1:])
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file in SOURCES), None)


@pytest.mark.parametrize("room", ORDERS)
def test_rooms_import_in_one_direction(room: str, trees: Dict[Path, ast.Module]) -> None:
    ours = {path: tree for path, tree in trees.items() if _room(path) == room and path.name != "__init__.py"}
    heights = {path: ORDERS[room].index(path.relative_to(ROOT / room).with_suffix("").parts[0]) for path in ours}
    assert set(heights.values()) == set(range(len(ORDERS[room])))
    wrong: List[str] = []
    for path, tree in ours.items():
        for module in _modules_imported(tree):
            source = _source(module)
            if source in heights and heights[source] > heights[path]:
                wrong.append(f"{_name(path)} imports {module}")
    assert wrong == []


def test_modules_know_few_others_and_are_short(trees: Dict[Path, ast.Module]) -> None:
    for path, tree in trees.items():
        imported, lines = _modules_imported(tree), len(path.read_text(encoding="utf-8").splitlines())
        assert len(imported) <= MOST_IMPORTS, f"{_name(path)} imports {sorted(imported)}"
        assert lines <= MOST_LINES, f"{_name(path)} has {lines} lines"
