"""The documents: links that lead somewhere, commands that parse, a fresh reference."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import click
import pytest
from click.testing import CliRunner

from ipulaunch.launcher.cli.main import cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md")])

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
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


def _commands(program: str) -> Iterator[Tuple[str, str]]:
    """Every command line of a program in a block of code, with the document that has it."""
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for block in (*_FENCE.findall(text), *_INDENTED.findall(text)):
            for line in block.replace("\\\n", " ").splitlines():
                command = line.strip()
                command = command[2:] if command.startswith("$ ") else command
                is_usage = "[OPTIONS]" in command  # of the reference
                if command.startswith(f"{program} ") and not is_usage:
                    yield str(path.relative_to(ROOT)), command


@pytest.mark.parametrize(("document", "line"), list(_commands("ipulaunch")))
def test_commands_in_documents_parse(document: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Command, "invoke", lambda self, ctx: None)  # groups still look for their commands
    result = CliRunner().invoke(cli, shlex.split(line, comments=True)[1:])
    assert result.exit_code == 0, f"{document}: {line}\n{result.output}"


@pytest.mark.parametrize(("document", "line"), list(_commands("make")))
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
