"""`ipulaunch check`: what is wrong with a poprun command line that already exists."""

from __future__ import annotations

import json
import os
import re
from typing import List, Optional, Tuple

import click

from ipulaunch.configs.errors import PlanError, UsageError
from ipulaunch.configs.text import counted
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.command import shell_words
from ipulaunch.launcher.engines.poprun import about_output
from ipulaunch.launcher.engines.poprun_reader import Line, read_line
from ipulaunch.launcher.engines.poprun_table import parse_sdk
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.machines.pods import usual_ilds
from ipulaunch.topology.planning.rules import Finding, Numbers, check

_COUNTS = ("replicas", "instances", "ipus_per_replica", "hosts", "ilds")  # what a line says


@click.command("check", context_settings={"allow_interspersed_args": False})
@click.option(
    "--sdk-version",
    "sdk",
    metavar="X.Y",
    help="The Poplar SDK whose poprun the line is for. Default: the enabled one, else 3.4.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.argument("line", nargs=-1, type=click.UNPROCESSED, metavar="-- poprun ...")
def command(line: Tuple[str, ...], sdk: Optional[str], as_json: bool) -> None:
    """Check a poprun command line: its options against the SDK, its numbers against the rules."""
    words = _words(line[0]) if len(line) == 1 else list(line)
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        words.pop(0)  # variables in front, as in the lines we print
    read = read_line(words, parse_sdk(sdk) if sdk else discovery.sdk_here(os.environ))
    ilds = read.number("num-ilds", 0)
    if "num-ilds" in read.options and not ilds:
        raise PlanError("0 IPU-Link domains: a job needs at least 1", hint="leave --num-ilds out")
    hosts = hostlist.parse(read.text("host") or hostlist.LOCALHOST)
    replicas, depth = read.number("num-replicas", 1), read.number("ipus-per-replica", 1)
    numbers = Numbers(
        replicas=replicas,
        instances=read.number("num-instances", 1),
        ipus_per_replica=depth,
        hosts=len(hosts),
        ilds=ilds or usual_ilds(replicas * depth),
        free=() if ilds else ("ilds",),
    )
    findings = [*check(numbers), *_about_output(read, numbers.instances)]
    files = read.options.get("import-config", [])
    if files:  # a number that is not on the line may be there
        findings = [found._replace(hard=False) for found in findings]
    hard = [found for found in findings if found.hard]
    warnings = [
        *read.warnings,
        *(
            f"--import-config {path}: ipulaunch does not read the file, and treats what is not on the line as left out"
            for path in files
        ),
        *(f"{found.message} ({found.rule}); {found.hint}" for found in findings if not found.hard),
    ]
    if as_json:
        counts = {name: getattr(numbers, name) for name in _COUNTS}
        data = {"numbers": counts, "findings": [found._asdict() for found in findings], "warnings": warnings}
        click.echo(json.dumps(data, indent=1))
    else:
        click.echo(
            f"{counted(numbers.ipus, 'IPU')} = {counted(replicas, 'replica')} x {depth};"
            f" {counted(numbers.instances, 'instance')} on {counted(numbers.hosts, 'host')};"
            f" {counted(numbers.ilds, 'IPU-Link domain')}"
        )
        for warning in warnings:
            click.echo(f"warning: {warning}")
    if hard:
        raise PlanError(f"{hard[0].message} ({hard[0].rule})", hint=hard[0].hint)
    if not as_json:
        click.echo("ok" if not warnings else "ok, with warnings")


def _about_output(read: Line, instances: int) -> List[Finding]:
    name = "only-output-from-instance"
    return about_output(read.number(name, 0), instances) if name in read.options else []


def _words(line: str) -> List[str]:
    try:
        return shell_words(line)
    except ValueError as error:
        raise UsageError(f"a quote is not closed in: {line}", hint="close it, or give the words after --") from error
