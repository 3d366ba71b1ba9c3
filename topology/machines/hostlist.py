"""Host lists as Slurm and PopRun write them: `node[01-03,7],login`."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

from ipulaunch.configs.errors import UsageError

LOCALHOST = "localhost"  # the machine that starts the instances, if no host is named
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_LONGEST_NAME = 253  # the limits of DNS
_MOST_HOSTS = 1 << 16
_MOST_BYTES = 1 << 24  # of a host file


def is_name(text: object) -> bool:
    """Whether this is the name or the address of a host, and not, for example, an option."""
    return isinstance(text, str) and len(text) <= _LONGEST_NAME and bool(re.fullmatch(_NAME, text))


def parse(text: str) -> Tuple[str, ...]:
    """The hosts of a list, in order. It allows a blank after a comma, but no empty part and no repetition."""
    hosts: List[str] = []
    for part in _split(text):
        if not part.strip():
            raise UsageError(f"the host list {text!r} has a hole", hint="write a,b or host[0-3]")
        hosts.extend(_expand(part.strip(), text))
        if len(hosts) > _MOST_HOSTS:
            raise UsageError(f"the host list {text!r} names more than {_MOST_HOSTS} hosts")
    for host in hosts:
        if not is_name(host):
            raise UsageError(f"{host!r} in the host list {text!r} is not a host name or address")
    return _distinct(hosts, f"the host list {text!r}")


def read_file(path: Path) -> Tuple[str, ...]:
    """The hosts of a file: one per line, `#` starts a comment; MPI's words after the name are ignored."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the host file {path} cannot be read: {error}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"the host file {path} is larger than {_MOST_BYTES} bytes", hint="is it a list of hosts?")
    hosts: List[str] = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            hosts.extend(parse(words[0]))
        if len(hosts) > _MOST_HOSTS:
            raise UsageError(f"the host file {path} names more than {_MOST_HOSTS} hosts")
    if not hosts:
        raise UsageError(f"the host file {path} names no host", hint="write one host per line")
    return _distinct(hosts, f"the host file {path}")


def render(hosts: Sequence[str]) -> str:
    """The shortest list that parse() turns back into the same hosts: runs of numbers become ranges."""
    groups: List[Tuple[str, List[str]]] = []
    for host in hosts:
        match = re.fullmatch(r"(.*?)(\d+)", host)
        stem, number = match.groups() if match else (host, "")
        if number and groups and groups[-1][0] == stem and groups[-1][1] and _follows(groups[-1][1][-1], number):
            groups[-1][1].append(number)
        else:
            groups.append((stem, [number] if number else []))
    return ",".join(_rendered(stem, numbers) for stem, numbers in groups)


def _follows(before: str, number: str) -> bool:
    return int(number) == int(before) + 1 and str(int(before) + 1).zfill(len(before)) == number


def _rendered(stem: str, numbers: List[str]) -> str:
    if len(numbers) < 2:
        return stem + "".join(numbers)
    return f"{stem}[{numbers[0]}-{numbers[-1]}]"


def _distinct(hosts: Sequence[str], what: str) -> Tuple[str, ...]:
    seen: Dict[str, int] = {}
    for host in hosts:
        if host in seen:
            raise UsageError(f"{what} names {host} twice", hint="name each host once; instances are divided evenly")
        seen[host] = 1
    return tuple(hosts)


def _split(text: str) -> Iterator[str]:
    """The parts between the commas that stand outside brackets."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        if character in "[]":
            depth += 1 if character == "[" else -1
            if depth not in (0, 1):
                raise UsageError(f"the brackets of the host list {text!r} do not match")
        elif character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if depth:
        raise UsageError(f"the host list {text!r} has an open bracket")
    yield text[start:]


def _expand(part: str, text: str) -> List[str]:
    """The hosts of one part: every number of every bracket; the last bracket counts fastest, as in Slurm."""
    stem, *rest = re.split(r"\[([^\[\]]*)\]", part)  # brackets and what follows them, in turn
    brackets: List[List[str]] = []
    tails, count = rest[1::2], 1
    for ranges in rest[::2]:
        brackets.append(_numbers(ranges, text))
        count *= len(brackets[-1])
        if count > _MOST_HOSTS:
            raise UsageError(f"the host list {text!r} names more than {_MOST_HOSTS} hosts")
    length = len(stem) + sum(map(len, tails)) + sum(len(numbers[0]) for numbers in brackets)
    if count > 1 and length > _LONGEST_NAME:  # every number would repeat it
        raise UsageError(f"a name of {length} characters is not that of a host")
    chosen = itertools.product(*brackets)
    return [stem + "".join(number + tail for number, tail in zip(numbers, tails)) for numbers in chosen]


def _numbers(ranges: str, text: str) -> List[str]:
    """The numbers in a bracket, with their leading zeros."""
    found: List[str] = []
    for piece in ranges.split(","):
        numbers = re.fullmatch(r"\s*([0-9]{1,18})(?:-([0-9]{1,18}))?\s*", piece)
        if not numbers:
            raise UsageError(f"{piece!r} in the host list {text!r} is not a number or a range such as 0-3")
        first, last = numbers.group(1), numbers.group(2) or numbers.group(1)
        count = int(last) - int(first) + 1
        if count < 1 or count > _MOST_HOSTS:
            raise UsageError(f"{piece!r} in the host list {text!r} is not a range of 1 to {_MOST_HOSTS} hosts")
        if len(found) + count > _MOST_HOSTS:
            raise UsageError(f"the host list {text!r} names more than {_MOST_HOSTS} hosts")
        found.extend(str(int(first) + step).zfill(len(first)) for step in range(count))
    return found
