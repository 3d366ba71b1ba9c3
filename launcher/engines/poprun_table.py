"""The options of poprun, in the order in which they stand on our lines: what each takes, and which SDKs have it.

Our own options for them, the lines that we write, those that we check and what a run records are all made from this.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import SettingsError, UsageError
from ipulaunch.configs.messages import Message, note
from ipulaunch.configs.text import YES_NO
from ipulaunch.launcher.engines.launch_options import LaunchOptions

Sdk = Tuple[int, int]

NEWEST: Sdk = (3, 4)
OLDEST: Sdk = (2, 0)


class Option(NamedTuple):
    """One option of poprun: what follows it, the SDK that it was first seen in, and the last one that has it."""

    name: str
    kind: str  # "int", "bool", "text" or "flag" (nothing follows)
    help: str = ""  # of our option for it; without one it is the plan's to say, or of no use in a launch
    first: Sdk = OLDEST
    last: Sdk = NEWEST
    repeatable: bool = False
    deprecated: Optional[Sdk] = None  # from this SDK on another one is meant to be used
    instead: str = ""  # the one that other SDKs have for it
    instead_values: Mapping[object, str] = {}  # what that one takes for a value of this one, where they differ
    ours: str = ""  # the name of our option, where poprun's is taken
    metavar: str = "TEXT"
    least: int = 1
    most: int = 999_999_999
    is_path: bool = False
    attaches: bool = False  # means nothing to a run that attaches no IPU
    for_hosts: bool = False  # means nothing on one host
    variable: str = ""  # in which poprun tells it to the instances

    @property
    def flag(self) -> str:
        """Our option for it, without its dashes."""
        return self.ours or self.name

    @property
    def key(self) -> str:
        """The name of our option in Python."""
        return self.flag.replace("-", "_")

    @property
    def about(self) -> str:
        """The help of our option, with the SDKs that have it."""
        if self.deprecated is not None:
            return f"{self.help[:-1]} (deprecated since SDK {sdk_text(self.deprecated)})."
        if self.last < NEWEST:
            return f"{self.help[:-1]} (up to SDK {sdk_text(self.last)})."
        return f"{self.help[:-1]} (SDK {sdk_text(self.first)} and later)." if self.first > (2, 1) else self.help


# The first SDK is that of the first published use, where it is not OLDEST: an option can be older than that.
OPTIONS = (
    Option("help", "flag"),
    Option("version", "flag"),
    Option("version-format", "text"),
    Option("import-config", "text", "File that poprun takes further options from.", metavar="FILE", is_path=True),
    Option("export-config", "text", "File that poprun writes its options to.", metavar="FILE", is_path=True),
    Option("overwrite-config", "bool", "Let poprun write over the file of --export-config."),
    Option("host", "text"),
    Option(
        "host-subnet", "text", "Network that the hosts use to reach each other.",
        first=(2, 6), metavar="CIDR", for_hosts=True,
    ),
    Option(
        "synchronise-python-venv", "text", "Copy the virtual environment to the other hosts; the value is poprun's.",
        first=(2, 6), for_hosts=True,
    ),
    Option(
        "synchronise-poplar-sdk", "text", "Copy the SDK to the other hosts; the value is poprun's.",
        first=(2, 6), for_hosts=True,
    ),
    Option(
        "distribute-ssh-key", "text", "Give the other hosts an ssh key; the value is poprun's.",
        first=(2, 6), for_hosts=True,
    ),
    Option("num-instances", "int"),
    Option("num-replicas", "int"),
    Option("ipus-per-replica", "int"),
    Option("num-ilds", "int"),
    Option(
        "process-placement", "text", "How poprun binds instances to NUMA nodes: spreadnuma, the default, or disabled.",
        first=(3, 1), instead="numa-aware", instead_values={"spreadnuma": "yes", "disabled": "no"}, metavar="NAME",
    ),
    Option(
        "numa-aware", "bool", "Bind instances to NUMA nodes, the default, or not.",
        last=(3, 0), instead="process-placement", instead_values={True: "spreadnuma", False: "disabled"},
    ),
    Option(
        "vipu-server-host", "text", "Host of the V-IPU controller.",
        metavar="HOST", attaches=True, variable="IPUOF_VIPU_API_HOST",
    ),
    Option(
        "vipu-server-port", "int", "Port of the V-IPU controller.",
        most=65535, attaches=True, variable="IPUOF_VIPU_API_PORT",
    ),
    Option(
        "vipu-server-timeout", "int", "Seconds to wait for the V-IPU controller.",
        attaches=True, variable="IPUOF_VIPU_API_TIMEOUT",
    ),
    Option(
        "vipu-partition", "text", "V-IPU partition to use.",
        metavar="NAME", attaches=True, variable="IPUOF_VIPU_API_PARTITION_ID",
    ),
    Option(
        "vipu-partition-attempts", "int", "How often to try a partition that does not become active.", attaches=True
    ),
    Option(
        "vipu-allocation", "text", "V-IPU allocation to create the partition in.",
        first=(3, 2), instead="vipu-cluster", metavar="NAME", attaches=True,
    ),
    Option(
        "vipu-cluster", "text", "V-IPU cluster to create the partition in.",
        deprecated=(3, 2), instead="vipu-allocation", metavar="NAME", attaches=True,
    ),
    Option("sync-type", "text", "V-IPU sync type of a partition that poprun creates, e.g. ST_POD_NATIVE_DEFAULT.",
           first=(2, 6), metavar="TYPE", attaches=True),
    Option("update-partition", "bool", "Change or create the partition if it does not fit.", attaches=True),
    Option("reset-partition", "bool", "Reset the partition before the run.", attaches=True),
    Option("remove-partition", "bool", "Remove a partition that poprun created, after the run.", attaches=True),
    Option(
        "executable-cache-path", "text", "Directory that compiled programs are kept in.",
        first=(2, 1), metavar="DIR", is_path=True,
    ),
    Option("offline-mode", "bool", "Run without IPUs, only to compile."),
    Option("print-topology", "bool", "Let poprun print its own table of the plan."),
    Option(
        "only-output-from-instance", "int", "Instance whose output alone poprun shows; the others' logs stay empty.",
        least=0,
    ),
    Option("verbose", "flag", "Let poprun log what it does.", ours="poprun-verbose"),
    Option("vv", "flag", "Let poprun log everything."),
    Option("mpi-global-args", "text", repeatable=True),
    Option("allow-run-as-root", "bool", first=(3, 3)),
    Option("mpi-local-args", "text", repeatable=True),
    Option(
        "instance-mpi-local-args", "text", "mpirun options for one instance, after its number; may be repeated.",
        first=(2, 6), repeatable=True, metavar="INDEX:TEXT",
    ),
)  # fmt: skip
OPTION = {option.name: option for option in OPTIONS}
OFFERED: Dict[str, Option] = {option.key: option for option in OPTIONS if option.help}  # under our own names


def parse_sdk(text: str) -> Sdk:
    """The SDK in `3.3` or `3.3.0`."""
    parts = text.split(".")
    if len(parts) in (2, 3) and all(part.isdecimal() for part in parts):
        sdk = (int(parts[0]), int(parts[1]))
        if OLDEST <= sdk <= NEWEST:
            return sdk
    raise UsageError(
        f"{text!r} is not an SDK version that has poprun", hint=f"{sdk_text(OLDEST)} to {sdk_text(NEWEST)}"
    )


def sdk_text(sdk: Sdk) -> str:
    return f"{sdk[0]}.{sdk[1]}"


def is_given(value: Any) -> bool:
    """Whether an option was given: no is an answer too."""
    return value not in (None, (), [], {})


def poprun_below(given: Mapping[str, Any], below: Mapping[str, Any]) -> Dict[str, Any]:
    """Options `below` without those that given ones replace: an allocation replaces a cluster, and the reverse."""
    replaced = {OFFERED[key].instead for key, value in given.items() if is_given(value)}
    return {key: value for key, value in below.items() if OFFERED[key].name not in replaced}


def with_variables(given: Mapping[str, Any]) -> List[Option]:
    """The given options that reach the instances in a variable."""
    return [OFFERED[key] for key, value in given.items() if is_given(value) and OFFERED[key].variable]


def refuse_contradictions(given: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Refuse a variable that --env asks for and that an option sets to something else.

    mpirun takes the first of several values, and says nothing of the others.
    """
    for option in with_variables(given):
        if environ.get(option.variable, str(given[option.key])) != str(given[option.key]):
            raise UsageError(
                f"--{option.flag} {given[option.key]} sets {option.variable}, and --env asks for another value of it",
                hint="give one of them",
            )


def require(name: str, sdk: Sdk, value: object = None) -> None:
    """Refuse an option that the poprun of this SDK is not known to have; we write no other."""
    option = OPTION[name]
    if not option.first <= sdk <= option.last:
        since = f"SDK {sdk_text(option.first)} to {sdk_text(option.last)} have it"
        raise UsageError(f"the poprun of SDK {sdk_text(sdk)} has no --{name}", hint=since + use_instead(name, value))


def deprecation(name: str, sdk: Sdk) -> str:
    """A sentence about an option that the poprun of this SDK advises against; empty for others."""
    option = OPTION[name]
    if option.deprecated is None or sdk < option.deprecated:
        return ""
    return f"--{name} is deprecated from SDK {sdk_text(option.deprecated)} on{use_instead(name)}"


def doubt(name: str, sdk: Sdk, value: object = None) -> str:
    """A sentence about an option that only later SDKs are known to have; empty for others."""
    option = OPTION[name]
    if option.first <= sdk:
        return ""
    seen = f"--{name} was first seen in SDK {sdk_text(option.first)}"
    return f"{seen}; the poprun of SDK {sdk_text(sdk)} may not have it{use_instead(name, value)}"


def use_instead(name: str, value: object = None) -> str:
    """What to use where an SDK does not have an option, to add to a sentence; with a value, also what that takes."""
    if name == "allow-run-as-root":
        return "; use --mpi-global-args=--allow-run-as-root"
    option = OPTION[name]
    if isinstance(value, str) and option.kind == "bool":
        value = YES_NO.get(value.lower())
    same = option.instead_values.get(value, "")
    return f"; use --{option.instead} {same}".rstrip() if option.instead else ""


def offline(options: LaunchOptions) -> Tuple[LaunchOptions, List[Message]]:
    """The options of a run that attaches no IPU, and a note about those that have no effect there."""
    poprun = options.poprun
    if not poprun.get("executable_cache_path") and "--executable_cache_path" not in os.environ.get(
        "TF_POPLAR_FLAGS", ""
    ):
        raise SettingsError(
            "--compile-only has no place to keep what it compiles",
            hint="give --executable-cache-path, the same as in the training that follows",
        )
    useless = [key for key, value in poprun.items() if is_given(value) and OFFERED[key].attaches]
    kept = {key: value for key, value in poprun.items() if key not in useless}
    names = ", ".join(f"--{OFFERED[key].flag}" for key in useless)
    messages = [note(f"no IPU is attached, so without effect: {names}")] if names else []
    return options._replace(poprun={**kept, "offline_mode": True}), messages
