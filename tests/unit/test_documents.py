"""The documents: links that lead somewhere, commands that parse, paragraphs that can be read, a fresh reference."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any, Callable, Iterator, List, Tuple

import click
import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md")])
MOST_WORDS = 90  # of a paragraph
README_LINES = 217

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FILE = re.compile(r"`((?:configs|topology|launcher|data_pipeline|workers|tests|benchmarks|docs)/[\w./-]*)`")
_COMMAND = re.compile(r"^# Command +(ipulaunch .*)$", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _names(documents: List[Path]) -> List[str]:
    return [str(path.relative_to(ROOT)) for path in documents]


def _prose(path: Path) -> str:
    """A document without its blocks of code."""
    return _INDENTED.sub("\n", _FENCE.sub("", path.read_text(encoding="utf-8")))


def _anchors(path: Path) -> List[str]:
    """What links to the headings of a document say after #, as GitHub makes it."""
    titles = _HEADING.findall(_prose(path))
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


@pytest.mark.parametrize("path", DOCUMENTS, ids=_names(DOCUMENTS))
def test_links_lead_to_files_and_headings_that_exist(path: Path) -> None:
    lost = []
    for target in _LINK.findall(_prose(path)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            lost.append(target)
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("path", DOCUMENTS, ids=_names(DOCUMENTS))
def test_paragraphs_are_short(path: Path) -> None:
    """A list is one paragraph for each item, and a table is none."""
    long = []
    for paragraph in re.split(r"\n\s*\n|\n(?=- |\d+\. )", _prose(path)):
        words = paragraph.split()
        if len(words) > MOST_WORDS and not paragraph.lstrip().startswith("|"):
            long.append(f"{len(words)} words: {' '.join(words[:12])} ...")
    assert not long, "\n".join(long)


@pytest.mark.parametrize("path", DOCUMENTS, ids=_names(DOCUMENTS))
def test_files_that_documents_name_exist(path: Path) -> None:
    named = [name for name in _FILE.findall(_prose(path)) if "NAME" not in name]
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing, "\n".join(missing)


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    missing = [
        path.name for path in ROOT.glob("docs/*.md") if path.name != "README.md" and f"({path.name})" not in index
    ]
    assert not missing, "\n".join(missing)


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def _blocks() -> Iterator[Tuple[str, str]]:
    """Every block of code, with the document that has it."""
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for block in (*_FENCE.findall(text), *_INDENTED.findall(text)):
            yield str(path.relative_to(ROOT)), block


def _commands(program: str) -> List[Tuple[str, str]]:
    """Every command line of a program in a block of code, with the document that has it."""
    found = []
    for document, block in _blocks():
        for line in map(str.strip, block.splitlines()):
            command = line[2:] if line.startswith("$ ") else line
            if command.startswith(f"{program} ") and "[OPTIONS]" not in command:  # a usage line of the reference
                found.append((document, command))
    return found


def _commands_of_settings() -> List[Tuple[str, str]]:
    """The command in the first lines of each file of settings."""
    found = []
    for path in sorted(ROOT.glob("configs/**/*.yaml")):
        lines = _COMMAND.findall(path.read_text(encoding="utf-8"))
        found += [(str(path.relative_to(ROOT)), line) for line in lines]
    return found


def _printed() -> List[Tuple[str, List[str]]]:
    """Every command of the documents that only plans or prints, with the output that is shown below it, up to `...`."""
    found = []
    for _, block in _blocks():
        for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output = shown.replace("```", "").rstrip().splitlines()
            if output and ("--dry-run" in command or command.startswith(("ipulaunch plan", "ipulaunch check"))):
                found.append((command, output[: output.index("...")] if "..." in output else output))
    return found


def _words(line: str) -> List[str]:
    return shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize(("document", "line"), [*_commands("ipulaunch"), *_commands_of_settings()])
def test_commands_in_documents_parse(
    document: str, line: str, ipulaunch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(click.Command, "invoke", lambda self, ctx: None)  # groups still look for their commands
    outcome = ipulaunch(*_words(line))
    assert outcome.code == 0, f"{document}: {line}\n{outcome.err}"


@pytest.mark.parametrize(("line", "shown"), _printed())
def test_documents_show_what_commands_print(
    line: str, shown: List[str], ipulaunch: Callable[..., Any], clean_place: None
) -> None:
    assert ipulaunch(*_words(line)).out.splitlines()[: len(shown)] == shown


@pytest.mark.parametrize(("document", "line"), _commands("make"))
def test_make_targets_in_documents_exist(document: str, line: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert line.split()[1] in targets, document


def test_the_reference_is_fresh() -> None:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    is_fresh = module.PATH.read_text(encoding="utf-8") == module.reference()
    assert is_fresh, "docs/reference.md differs from the commands: run make reference"
