from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.engines.command import Command, guard_colons
from ipulaunch.topology.planning.plan import from_json

pytestmark = pytest.mark.core

SHOW_ARGS = str(Path(__file__).parents[3] / "fakes" / "show_args.py")
SHOW = (sys.executable, "-IS", "-X", "utf8", SHOW_ARGS)
LAUNCHER = (sys.executable, "-m", "ipulaunch.launcher")

HOSTILE = {
    "blanks": " a  b ",
    "single-quotes": "it's 'quoted'",
    "double-quotes": 'say "hi"',
    "both-quotes": "'\"'\"",
    "newlines": "one\ntwo\n",
    "tab": "a\tb",
    "semicolon": "; echo injected",
    "substitution": "$(echo injected)",
    "backticks": "`echo injected`",
    "variable": "$HOME ${PATH}",
    "non-ascii": "grüße 日本 🚀",
    "colon": ":",
    "two-colons": "::",
    "empty": "",
    "dash": "-x",
    "long-dash": "--host",
    "only-dashes": "--",
    "equals": "A=b",
    "glob": "* ? [a-z]",
    "tilde": "~",
    "backslashes": "\\ \\n \\\\",
    "comment": "# no comment",
    "history": "!!",
    "braces": "{a,b}",
    "redirection": "> out < in | cat & ",
    "percent": "%s %%",
}


def test_shell_gives_every_word_back() -> None:
    variables = {f"HOSTILE_{number}": word for number, word in enumerate(HOSTILE.values())}
    line = Command((*SHOW, *HOSTILE.values()), variables).shell()
    done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=1800, check=True)
    shown = json.loads(done.stdout)
    assert dict(zip(HOSTILE, shown["words"])) == HOSTILE
    assert shown["variables"] == variables


def test_guarded_program_has_no_lone_colon_and_gives_all_words_back() -> None:
    guarded = guard_colons((*SHOW, *HOSTILE.values()))
    assert guarded[:2] == ("/bin/sh", "-c")
    assert ":" not in guarded
    done = subprocess.run(guarded, capture_output=True, timeout=1800, check=True)
    assert json.loads(done.stdout)["words"] == list(HOSTILE.values())


VARIABLE = {"HOSTILE": HOSTILE["both-quotes"]}


def _launch(environ: Dict[str, str], words: List[str], *options: str) -> subprocess.CompletedProcess[str]:
    where = ("--pod", "4", "--engine", "openmpi", "--num-instances", "2", "--oversubscribe")
    variable = ("--env", f"HOSTILE={VARIABLE['HOSTILE']}")
    command = [*LAUNCHER, "run", *where, *variable, *options, "--", *SHOW, *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=1800, check=True, env=environ)


def test_dry_run_can_be_pasted(mpirun: str, own_environment: Dict[str, str]) -> None:
    words = list(HOSTILE.values())
    line = _launch(own_environment, words, "--dry-run").stdout
    assert mpirun in line
    done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=1800, check=True, env=own_environment)
    tagged = re.findall(rb"^\[[^,]*,(\d)\]<stdout>: ?(.*)$", done.stdout, re.MULTILINE)
    shown = {int(instance): json.loads(text) for instance, text in tagged}
    assert sorted(shown) == [0, 1]
    assert [(s["words"], s["variables"]) for s in shown.values()] == 2 * [(words, VARIABLE)]


@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded", "bare"])
def test_real_run(is_guarded: bool, mpirun: str, own_environment: Dict[str, str], tmp_path: Path) -> None:
    words = [word for word in HOSTILE.values() if is_guarded or word != ":"]
    done = _launch(own_environment, words, "--run-dir", "my run")
    run = RunDirectory(tmp_path / "my run")
    shown = [json.loads(run.log(instance).read_text(encoding="utf-8")) for instance in range(2)]
    assert [s["instance"] for s in shown] == ["0", "1"]
    assert [(s["words"], s["variables"]) for s in shown] == 2 * [(words, VARIABLE)]
    assert sorted(re.findall(r"^localhost:(\d)\| \{", done.stdout, re.MULTILINE)) == ["0", "1"]
    assert "words" not in (run.path / "engine.txt").read_text(encoding="utf-8")  # of the instances
    assert from_json(run.plan.read_text(encoding="utf-8")).instances == 2
    assert mpirun in run.command.read_text(encoding="utf-8")
    # Pages about runs are written where Jinja2 is.
    assert sorted(path.name for path in run.path.iterdir() if path.name != "report.html") == [
        "asked.json", "command.txt", "endings.jsonl", "engine.txt", "instance-000", "instance-001", "launcher.json",
        "plan.json", "program.json",
    ]  # fmt: skip
