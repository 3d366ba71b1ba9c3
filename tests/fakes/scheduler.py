"""The commands of Slurm, PBS and Kubernetes, as far as we call them: strict in what they take, and written down.

The name it is called by comes first. FAKE_SCHEDULER is a directory: `calls` has every call, `refuse` what to refuse
with, with `hang` nothing is ever answered, and files named after commands have what those say.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from pathlib import Path
from typing import List, NoReturn

HOME = Path(os.environ["FAKE_SCHEDULER"])


def refuse(why: str, code: int = 1) -> NoReturn:
    sys.stderr.write(f"{why}\n")
    sys.exit(code)


def lines_of(name: str) -> List[str]:
    path = HOME / name
    return path.read_text().splitlines() if path.exists() else []


def check_script(path: Path, prefix: str) -> None:
    """A script that is handed over lies in a run directory that nobody else can look into."""
    if stat.S_IMODE(path.parent.stat().st_mode) != 0o700:
        refuse(f"{path.parent} can be read by others")
    if not (path.parent / "plan.json").exists() or (path.parent / "job.json").exists():
        refuse(f"{path.parent} is not a run that is about to be submitted")
    lines = path.read_text().splitlines()
    if lines[0] != "#!/bin/bash" or not any(line.startswith(prefix) for line in lines):
        refuse(f"{path} is not a script")


def sbatch(words: List[str]) -> None:
    if len(words) != 2 or words[0] != "--parsable":
        refuse(f"sbatch: unexpected arguments {words}")
    check_script(Path(words[1]), "#SBATCH --job-name=")
    print("\n".join(lines_of("sbatch")) or "4242")


def _ids(words: List[str]) -> List[str]:
    (jobs,) = [word for word in words if word.startswith("--jobs=")]
    return jobs[len("--jobs=") :].split(",")


def squeue(words: List[str]) -> None:
    ids = _ids(words)
    expected = ["--noheader", "--states=all", f"--jobs={','.join(ids)}", "--format=%i|%T|%N|%r"]
    if [word for word in words if not word.startswith("--clusters=")] != expected:
        refuse(f"squeue: unexpected arguments {words}")
    found = [line for line in lines_of("squeue") if line.split("|")[0] in ids]
    if not found and len(ids) == 1:
        refuse("slurm_load_jobs error: Invalid job id specified")
    print("\n".join(found))


def sacct(words: List[str]) -> None:
    ids = _ids(words)
    expected = ["--noheader", "--parsable2", "--allocations", f"--jobs={','.join(ids)}"]
    expected.append("--format=JobID,State,NodeList,ExitCode")
    if words != expected:
        refuse(f"sacct: unexpected arguments {words}")
    if not (HOME / "sacct").exists():
        refuse("Slurm accounting storage is disabled")
    print("\n".join(line for line in lines_of("sacct") if line.split("|")[0] in ids))


def scancel(words: List[str]) -> None:
    if len(words) != 1 or not words[0].isdigit():
        refuse(f"scancel: unexpected arguments {words}")


def qsub(words: List[str]) -> None:
    if len(words) != 1:
        refuse(f"qsub: unexpected arguments {words}")
    check_script(Path(words[0]), "#PBS -N ")
    print("\n".join(lines_of("qsub")) or "77.pbs01")


def qstat(words: List[str]) -> None:
    if words[:2] != ["-x", "-f"] or not words[2:]:
        refuse(f"qstat: unexpected arguments {words}")
    print("\n".join(lines_of("qstat")))


def qdel(words: List[str]) -> None:
    if len(words) != 1 or not re.fullmatch(r"\d+\.\w+", words[0]):
        refuse(f"qdel: unexpected arguments {words}")


def kubectl(words: List[str]) -> None:
    verb, *rest = words
    if verb == "create":
        name, kind = _created(rest)
        metadata = {"name": name, "namespace": "default", "uid": "uid-1"}
        print(json.dumps({"kind": kind, "metadata": metadata}))
    elif verb == "get":
        kind, name, namespace, output = rest
        if (namespace, output) != ("--namespace=default", "--output=json"):
            refuse(f"kubectl get: unexpected arguments {rest}")
        path = HOME / f"{kind}-{name}.json"
        if not path.exists():
            refuse(f'Error from server (NotFound): {kind} "{name}" not found')
        print(path.read_text())
    elif verb == "delete":
        kind, name, namespace, wait = rest
        if (namespace, wait) != ("--namespace=default", "--wait=false"):
            refuse(f"kubectl delete: unexpected arguments {rest}")
        (HOME / f"{kind}-{name}.json").unlink()
    elif verb == "logs":
        print("\n".join(["logs of", *rest]))
    else:
        refuse(f"kubectl: unexpected arguments {words}")


def _created(words: List[str]) -> List[str]:
    if len(words) != 2 or not words[0].startswith("--filename=") or words[1] != "--output=json":
        refuse(f"kubectl create: unexpected arguments {words}")
    path = Path(words[0][len("--filename=") :])
    text = path.read_text()
    found = [re.search(pattern, text, re.MULTILINE) for pattern in (r"^  name: (\S+)", r"^kind: (\S+)")]
    return [match.group(1) for match in found if match]


COMMANDS = (sbatch, squeue, sacct, scancel, qsub, qstat, qdel, kubectl)


def main() -> None:
    name, *words = sys.argv[1:]
    with (HOME / "calls").open("a") as calls:
        calls.write(json.dumps([name, *words]) + "\n")
    if (HOME / "hang").exists():
        signal.pause()
    if (HOME / "refuse").exists():
        refuse("\n".join(lines_of("refuse")))
    {command.__name__: command for command in COMMANDS}[name](words)


if __name__ == "__main__":
    main()
