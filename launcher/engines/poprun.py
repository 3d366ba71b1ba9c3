"""The engine for PODs: poprun of the Poplar SDK."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ipulaunch.configs.errors import NotReadyError, PlanError, UsageError
from ipulaunch.configs.messages import Message, note
from ipulaunch.configs.text import ENABLE_SDK, counted
from ipulaunch.launcher.engines import discovery, poprun_table
from ipulaunch.launcher.engines.command import Command, guard_colons, words_of
from ipulaunch.launcher.engines.engine import POPRUN, SDK, CommandRequest, Engine, allows_root, flags
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.poprun_table import NEWEST, OFFERED, OPTION, OPTIONS, Option, Sdk, is_given
from ipulaunch.topology import Plan
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.planning.rules import Finding

TAG_OUTPUT = "--tag-output"  # of mpirun


class Poprun(Engine):
    """poprun, on the hosts of a POD."""

    name = summary = "poprun"
    backend = "ipu"
    needs = (SDK, POPRUN)
    spreads_over_pod = True

    @classmethod
    def of_this_machine(cls, reason: str = "") -> Poprun:
        return cls(discovery.find_poprun() is not None, reason)

    def require(self) -> None:
        if not self.is_here:
            raise NotReadyError("there is no poprun here", hint=f"{ENABLE_SDK}, or rehearse with --engine openmpi")

    def offline(self, options: LaunchOptions) -> Tuple[LaunchOptions, List[Message]]:
        from ipulaunch.launcher.engines.poprun_table import offline  # other launches do without

        return offline(options)

    def program(
        self, words: Sequence[str], options: LaunchOptions, run_dir: Optional[Path]
    ) -> Tuple[List[str], List[Message]]:
        text = "without effect, as poprun starts the program itself: --python"
        return list(words), [note(text)] if options.python is not None else []

    def command(self, request: CommandRequest) -> Tuple[Command, List[Message]]:
        options, plan = request.options, request.plan
        poprun_table.refuse_contradictions(
            options.poprun, {name: request.env.get(name, os.environ.get(name, "")) for name in request.forward}
        )
        as_root, messages = allows_root(self, options)
        sdk = options.sdk or discovery.sdk_here(os.environ)
        written = PoprunOptions(
            sdk=sdk,
            given=options.poprun,
            more=options.poprun_args,
            writes_ilds=options.ilds is not None,
            tags_output=options.tag_output,
            mpi_global_args=options.mpi_global_args,
            mpi_local_args=options.mpi_local_args,
            forward=request.forward if plan.is_on_this_host else self._forwarded(request),
            run_as_root=as_root,
        )
        argv = poprun_argv(plan, written, request.program)
        used = [OFFERED[key] for key, value in options.poprun.items() if is_given(value)]
        said = [poprun_table.deprecation(option.name, sdk) for option in used]
        shown = options.poprun.get("only_output_from_instance")
        found = about_output(shown, plan.instances) if shown is not None else []
        said += [f"{finding.message}: {finding.hint}" for finding in found]
        if options.openmpi_version is not None:
            said.append("for rehearsals only, without effect on a POD: --openmpi-version")
        for_hosts = [option.key for option in used if option.for_hosts]
        if for_hosts and plan.is_on_this_host:
            said.append(f"for several hosts, without effect on one: {flags(for_hosts)}")
        return Command(argv, request.env), [*messages, *map(note, filter(None, said))]

    def _forwarded(self, request: CommandRequest) -> Tuple[str, ...]:
        """The variables that the instances of other hosts get: those of the user, and those of the SDK."""
        # A line that is only printed is for a machine that has the SDK, and whose other variables nobody knows.
        of_sdk = discovery.sdk_variables(os.environ if self.is_here else None)
        given = {*request.forward, *_named(words_of("--mpi-local-args", request.options.mpi_local_args))}
        return (*request.forward, *(name for name in of_sdk if name not in given))


ENGINE = Poprun


class PoprunOptions(NamedTuple):
    """What a site or a user adds to the plan."""

    sdk: Sdk = NEWEST
    given: Mapping[str, Any] = {}  # by the keys of poprun_table.OFFERED; None is "not given"
    more: Tuple[str, ...] = ()  # texts with options that the table does not have
    writes_ilds: bool = False  # also where there is one: unset, the V-IPU server would decide
    tags_output: bool = False  # also where poprun does so by itself
    mpi_global_args: Tuple[str, ...] = ()
    mpi_local_args: Tuple[str, ...] = ()
    forward: Tuple[str, ...] = ()  # names of variables the instances get
    run_as_root: bool = False


def poprun_argv(plan: Plan, options: PoprunOptions, program: Sequence[str]) -> Tuple[str, ...]:
    """The poprun line of a plan; every option is one the SDK has, but for those that the user adds as they are."""
    words_of("--mpi-global-args", options.mpi_global_args)
    words_of("--mpi-local-args", options.mpi_local_args)
    _check(options.given, plan)
    values = {
        **_by_default(options.sdk),
        **_of_user(plan, options.given),
        **_of_plan(plan, options),
        **_of_mpi(options),
    }
    argv: List[str] = ["poprun"]
    for option in OPTIONS:
        value = values.get(option.name)
        if is_given(value):
            poprun_table.require(option.name, options.sdk, value)
            argv += _written(option, value)
    return (*argv, *_more(options.more, argv), *guard_colons(tuple(program)))


def about_output(shown: int, instances: int) -> List[Finding]:
    """What is wrong with the output of one instance alone."""
    name = "only-output-from-instance"
    if shown >= instances:
        message = f"--{name} {shown} of {counted(instances, 'instance')}, which are numbered from 0"
        return [Finding("output", True, message, f"use 0 to {instances - 1}" if instances > 1 else "use 0")]
    if instances == 1:
        return []
    message = f"--{name} {shown} hides the errors of {counted(instances - 1, 'other instance')}"
    return [Finding("output", False, message, "leave it out of a first run")]


def _named(words: Sequence[str]) -> Set[str]:
    """The names of variables among words for mpirun: -x NAME and -x NAME=VALUE."""
    return {name.partition("=")[0] for flag, name in zip(words, words[1:]) if flag == "-x"}


def _check(given: Mapping[str, Any], plan: Plan) -> None:
    """Refuse options that do not fit each other, or the plan."""
    if is_given(given.get("vipu_allocation")) and is_given(given.get("vipu_cluster")):
        raise UsageError(
            f"--vipu-allocation {given['vipu_allocation']} and --vipu-cluster {given['vipu_cluster']} are both given:"
            " a partition is created in one place",
            hint="give --vipu-allocation from SDK 3.2 on, and --vipu-cluster before",
        )
    shown = given.get("only_output_from_instance")
    for found in about_output(shown, plan.instances) if shown is not None else ():
        if found.hard:
            raise PlanError(found.message, hint=found.hint)
    for text in given.get("instance_mpi_local_args") or ():
        match = re.match(r"(\d{1,9}):(?=.)", text, re.ASCII | re.DOTALL)
        if match is None:
            hint = "expected the number of an instance and a colon first: 0:-x NAME=VALUE"
            raise UsageError(f"--instance-mpi-local-args {text!r} is refused", hint=hint)
        words_of("--instance-mpi-local-args", [text[match.end() :]])
        if int(match.group(1)) >= plan.instances:
            raise PlanError(
                f"--instance-mpi-local-args {text!r} is for instance {match.group(1)} of"
                f" {counted(plan.instances, 'instance')}, which are numbered from 0"
            )


def _by_default(sdk: Sdk) -> Dict[str, Any]:
    return {"process-placement": "spreadnuma"} if sdk >= OPTION["process-placement"].first else {"numa-aware": True}


def _of_user(plan: Plan, given: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        OFFERED[key].name: value
        for key, value in given.items()
        if is_given(value) and not (plan.is_on_this_host and OFFERED[key].for_hosts)
    }


def _of_plan(plan: Plan, options: PoprunOptions) -> Dict[str, Any]:
    return {
        "host": None if plan.is_on_this_host else hostlist.render(plan.hosts),
        "num-instances": plan.instances,
        "num-replicas": plan.replicas,
        "ipus-per-replica": plan.ipus_per_replica,
        "num-ilds": plan.ilds if plan.ilds > 1 or options.writes_ilds else None,
    }


def _of_mpi(options: PoprunOptions) -> Dict[str, Any]:
    texts = list(options.mpi_global_args)
    if (options.sdk < (2, 6) or options.tags_output) and not any(TAG_OUTPUT in text.split() for text in texts):
        texts.append(TAG_OUTPUT)  # from 2.6 on poprun tags by itself
    has_root = options.sdk >= OPTION["allow-run-as-root"].first
    if options.run_as_root and not has_root:
        texts.append("--allow-run-as-root")
    # One text, as in every published line: of several, poprun is not known to take all.
    local = " ".join((*options.mpi_local_args, *(f"-x {name}" for name in options.forward)))
    return {
        "mpi-global-args": tuple(texts),
        "allow-run-as-root": True if options.run_as_root and has_root else None,
        "mpi-local-args": (local,) if local else (),
    }


def _written(option: Option, value: Any) -> List[str]:
    if option.kind == "flag":
        return [f"--{option.name}"] if value else []
    if option.kind == "bool":
        value = "yes" if value else "no"
    return [f"--{option.name}={each}" for each in (value if option.repeatable else (value,))]


def _more(texts: Sequence[str], argv: Sequence[str]) -> List[str]:
    """The words of --poprun-args; one that begins with no option would be taken for the program."""
    words = words_of("--poprun-args", texts)
    if words and not words[0].startswith("-"):
        raise UsageError(f"--poprun-args begins with {words[0]!r}, which poprun would take for the program",
                         hint="options begin with a dash: --poprun-args='--name=value'")  # fmt: skip
    written = {word.partition("=")[0] for word in argv}
    for word in words:
        name = word.partition("=")[0]
        option = OPTION.get(name[2:]) if name.startswith("--") else None
        if name in written and not (option and option.repeatable):
            raise UsageError(f"--poprun-args has {name}, and the line has it already", hint="leave it out there")
    return words
