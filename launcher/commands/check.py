"""`ipulaunch check`: what is wrong with a poprun command line that already exists."""

from __future__ import annotations

import json
import re
import shlex
from typing import Optional, Tuple

import click

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.wording import counted
from ipulaunch.launcher.poprun_options import NEWEST, parse_sdk, read_line
from ipulaunch.topology import hostlist
from ipulaunch.topology.pods import IPUS_PER_ILD
from ipulaunch.topology.rules import Numbers, check


@click.command("check", context_settings={"allow_interspersed_args": False})
@click.option("--sdk-version", "sdk", metavar="X.Y", help="The Poplar SDK whose poprun is meant.")
@click.option("--json", "as_json", is_flag=True, help="The findings as JSON.")
@click.argument("line", nargs=-1, type=click.UNPROCESSED, metavar="-- poprun ...")
def command(line: Tuple[str, ...], sdk: Optional[str], as_json: bool) -> None:
    """Check a poprun command line: its options against the SDK, its numbers against the rules."""
    words = shlex.split(line[0]) if len(line) == 1 else list(line)
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        words.pop(0)  # variables in front, as in the lines we print
    read = read_line(words, parse_sdk(sdk) if sdk else NEWEST)
    ilds = read.number("num-ilds", 0)
    if "num-ilds" in read.options and not ilds:
        raise PlanError("0 IPU-Link domains: a job needs at least 1", hint="leave --num-ilds out")
    hosts = hostlist.parse(read.text("host") or "localhost")
    replicas, depth = read.number("num-replicas", 1), read.number("ipus-per-replica", 1)
    numbers = Numbers(
        replicas=replicas,
        instances=read.number("num-instances", 1),
        ipus_per_replica=depth,
        hosts=len(hosts),
        ilds=ilds or max(1, replicas * depth // IPUS_PER_ILD),
    )
    findings = check(numbers)
    hard = [found for found in findings if found.hard]
    warnings = [
        *read.warnings,
        *(f"{found.message} ({found.rule}); {found.hint}" for found in findings if not found.hard),
    ]
    if as_json:
        data = {"numbers": numbers._asdict(), "findings": [found._asdict() for found in findings], "warnings": warnings}
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
