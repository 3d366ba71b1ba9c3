"""The options of a launch that commands share, and the values that they become."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.settings.schema import flag_of, whole_path
from ipulaunch.configs.settings.sections import Launch, Survival
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.poprun_table import OFFERED, Option, parse_sdk
from ipulaunch.launcher.engines.registry import ENGINES, default_engine, engine_class
from ipulaunch.launcher.launch.program import OF_PROGRAMS

Decorator = Callable[[Any], Any]


def offers(name: str) -> Callable[[click.Context, click.Parameter, str], List[str]]:
    """What offers a shell the values of that name in completion.py, which nothing else loads."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> List[str]:
        completion = importlib.import_module("ipulaunch.launcher.cli.completion")
        values: List[str] = getattr(completion, name)(ctx, param, incomplete)
        return values

    return complete


PATH = click.Path(path_type=Path, readable=False)  # our own errors say whether it can be read

_WHERE: List[Decorator] = [
    click.option(
        "--pod",
        metavar="SIZE|NAME",
        help="The POD: 4, 8, 16, 32, 64, 128, 256, or a name such as bow-pod64.",
        shell_complete=offers("pods"),
    ),
    click.option(
        "--ipus", type=click.IntRange(1), help="Number of IPUs to use: part of the POD, or a system that is not a POD."
    ),
    click.option(
        "--hosts", "--host", "-H", metavar="LIST", help="Hosts to run on: a,b or host[0-3]. Default: this machine."
    ),
    click.option("--hostfile", type=PATH, help="A file with one host per line."),
    click.option(
        "--host-layout", metavar="NODESxCORES", help="NUMA nodes of a host, and cores of each node, e.g. 8x16."
    ),
    click.option(
        "--num-ilds", "ilds", type=click.IntRange(1), help="Number of IPU-Link domains. Default: one per 64 IPUs."
    ),
    click.option("--oversubscribe", is_flag=True, help="Allow more instances than cores."),
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        help="What starts the instances. Default: poprun if the SDK is enabled. direct: one process with all replicas.",
    ),
]


def _poprun_option(option: Option) -> Decorator:
    """Our option for one of poprun's."""
    kwargs: Dict[str, Any] = {"default": None, "help": option.about}
    flag = f"--{option.flag}"
    if option.kind == "bool":
        flag = f"{flag}/--no-{option.flag}"
    elif option.kind == "flag":
        kwargs["is_flag"] = True
    elif option.kind == "int":
        kwargs["type"] = click.IntRange(option.least, option.most)
    else:
        kwargs["metavar"] = option.metavar
    if option.repeatable:
        kwargs.update(default=(), multiple=True)
    return click.option(flag, option.key, **kwargs)


_POPRUN: List[Decorator] = [
    click.option(
        "--sdk-version",
        "sdk",
        metavar="X.Y",
        help="The Poplar SDK to plan and to write the poprun line for. Default: the enabled one, else 3.4.",
    ),
    *map(_poprun_option, OFFERED.values()),
    click.option(
        "--poprun-args", multiple=True, metavar="TEXT", help="Further options for poprun, as they are; may be repeated."
    ),
]

_HOW: List[Decorator] = [
    click.option(
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Environment variable to pass to the instances; may be repeated.",
    ),
    click.option(
        "--tag-output", is_flag=True, help="Tell mpirun to tag lines, also where poprun or ipulaunch does it."
    ),
    click.option(
        "--mpi-global-args", multiple=True, metavar="TEXT", help="Options for mpirun itself; may be repeated."
    ),
    click.option(
        "--mpi-local-args", multiple=True, metavar="TEXT", help="mpirun options for every instance; may be repeated."
    ),
    click.option(
        "--allow-run-as-root/--no-allow-run-as-root",
        default=None,
        help="Let MPI run as root. Default: yes if you are root.",
    ),
    click.option(
        "--openmpi-version", type=click.IntRange(4, 5), help="Major version of Open MPI to write the mpirun line for."
    ),
    click.option("--python", metavar="PATH", help="Python interpreter that the instances use."),
]

_RUN: List[Decorator] = [
    click.option("--dry-run", is_flag=True, help="Print the command and stop."),
    click.option("--json", "as_json", is_flag=True, help="Print the plan and the command as JSON and stop."),
    click.option("--run-dir", type=PATH, help="Directory to create for the run. Default: runs/NAME-TIME."),
]
_VERBOSE = click.option(
    "--verbose", "-v", count=True, help="Show the output of all instances; -vv: and let poprun log everything (--vv)."
)

# A program's own output is always shown.
_VERBOSITY = click.option(
    "-v", "verbose", count=True, help="Let poprun log what it does (--poprun-verbose); -vv: --vv."
)

# Of a program of the user's own; a workload has settings for these.
_SURVIVAL = {
    "max_restarts": "How many times a program is called again that fails, or ends with exit code 75.",
    "restart_backoff_s": "Seconds before the first restart after a failure; doubled for each further one.",
    "grace_s": "Seconds that a program has to end when it is asked to stop.",
    "max_preemptions": "How many times a run may end with exit code 75, over its whole life.",
}

# How a model is made for a server, by those commands that export it.
SERVED_MODEL: List[Decorator] = [
    click.option(
        "--iterations",
        type=click.IntRange(1),
        help="How often the program runs in a call, on IPUs. Default: 1, or a turn of the pipeline.",
    ),
    click.option(
        "--pipeline-serving-model", is_flag=True, help="Divide the model into the pipeline stages of its training."
    ),
    click.option(
        "--engine",
        type=click.Choice(ENGINES),
        help="Whose processors the model is for. Default: IPUs if the SDK is enabled, else CPUs.",
    ),
]


def _port_option(flag: str, default: int, of: str) -> Decorator:
    kind = click.IntRange(0, 65535)
    return click.option(flag, type=kind, default=default, show_default=True, help=f"Port of {of}; 0 takes a free one.")


# Which server is started, and where it answers.
SERVER: List[Decorator] = [
    _port_option("--port", 8500, "gRPC"),
    _port_option("--rest-port", 8501, "REST"),
    click.option(
        "--serving-bin-path", type=PATH, help="TensorFlow Serving's tensorflow_model_server. Default: the one found."
    ),
    click.option(
        "--own-server", is_flag=True, help="Use ipulaunch's own server, even where tensorflow_model_server is found."
    ),
]

SEEN_FROM_HERE = "relative to the directory here, which a Pod does not see"
WHOLE_PATH = "give the path as the Pod sees it, from the root, such as /data/set; see --volume"


def where_options(command: Any) -> Any:
    """Options that say which system, hosts and engine."""
    return decorate(command, _WHERE)


def launch_options(command: Any) -> Any:
    """Options that say how the engine is called and where the run goes."""
    return decorate(command, [*_WHERE, *_RUN, _VERBOSE, *_HOW, *_POPRUN])


def run_options(command: Any) -> Any:
    """The same for a program of the user's own, whose output is always shown."""
    return decorate(command, [*_WHERE, *_RUN, _VERBOSITY, *_HOW, *_POPRUN])


def server_options(command: Any) -> Any:
    """Options that say which server is started, and where it answers."""
    return decorate(command, SERVER)


def resume_options(command: Any) -> Any:
    """Options for a run that has its settings already: where it continues, and how the engine is called."""
    instances = click.option(
        "--num-instances", type=click.IntRange(1), help="Number of host processes, over all hosts."
    )
    return decorate(command, [*_WHERE, instances, _VERBOSE, *_HOW, *_POPRUN])


def engine_options(command: Any) -> Any:
    """Options that say how the engine is called."""
    return decorate(command, _HOW + _POPRUN)


def with_help(command: click.Command, texts: Mapping[str, str]) -> None:
    """Give options that mean something else in this command a text of their own."""
    for param in command.params:
        if isinstance(param, click.Option):
            param.help = texts.get(str(param.name), param.help)


def decorate(command: Any, options: List[Decorator]) -> Any:
    """A command with these options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def verbosity_from(values: Dict[str, Any]) -> int:
    """How often -v was given; the second time is for poprun."""
    count: int = values.pop("verbose")
    if count > 1:
        values["vv"] = True
    return count


def engine_from(values: Dict[str, Any]) -> Optional[str]:
    """The engine that the user names, if any."""
    name: Optional[str] = values["engine"]
    use_ipu = values.pop("use_ipu", None)
    if use_ipu is not None:
        backend, switch = ("ipu", "--use-ipu") if use_ipu else ("cpu", "--no-use-ipu")
        if name is not None and engine_class(name).backend != backend:
            raise UsageError(f"--engine {name} and {switch} are both given", hint="give one of them")
        name = values["engine"] = name or default_engine(backend)
    return name


def launch_options_from(values: Dict[str, Any], *, elsewhere: bool = False) -> LaunchOptions:
    """The options of a launch, with whole paths; takes them out of `values`.

    What runs `elsewhere` does not see the directories that are here: there, only whole paths mean something.
    """
    poprun = {name: values.pop(name) for name in OFFERED if name in values}
    poprun.update({name: poprun[name] or None for name in poprun if OFFERED[name].kind == "flag"})
    sdk = values.pop("sdk", None)
    names: Tuple[str, ...] = LaunchOptions._fields
    given = {name: values.pop(name) for name in names if name in values}
    for name, value in (*given.items(), *poprun.items()):
        if value == "":
            raise UsageError(f"--{name.replace('_', '-')} is empty", hint="is the variable that it came from set?")
    paths = [(poprun, key) for key, option in OFFERED.items() if option.is_path]
    for found, name in ((given, "python"), *paths):
        path = found.get(name)
        if path is None or (name == "python" and "/" not in path):  # a command, to be found where the instances are
            continue
        if elsewhere and not Path(path).is_absolute():
            raise UsageError(f"--{name.replace('_', '-')} is {path}, {SEEN_FROM_HERE}", hint=WHOLE_PATH)
        found[name] = whole_path(path)
    return LaunchOptions(**given, sdk=None if sdk is None else parse_sdk(sdk), poprun=poprun)


def program_options(command: Any) -> Any:
    """What our own workloads say in their settings, for programs we know nothing of."""
    options = [
        click.option("--ipus-per-replica", type=click.IntRange(1), help="IPUs that one replica uses. Default: 1."),
        click.option(
            "--num-replicas", type=click.IntRange(1), help="Replicas in all. Default: as many as the IPUs allow."
        ),
        click.option(
            "--num-instances", type=click.IntRange(1), help="Host processes in all. Default: one per NUMA node."
        ),
        click.option(
            "--io-bound", is_flag=True, help="The host's input work limits the speed: start as many instances as fit."
        ),
        click.option(
            "--min-cores-per-instance",
            type=click.IntRange(1),
            default=1,
            help="Cores that each instance keeps, with --io-bound.",
        ),
    ]
    return decorate(command, options)


def require_words(program: Tuple[str, ...], example: str) -> None:
    """Refuse what is no program."""
    if not program or not program[0]:
        raise UsageError("there is no program to run", hint=example)
    if program[0].startswith("-"):
        raise UsageError(
            f"{program[0]} is not a program: poprun and mpirun would take it for an option of theirs",
            hint=f"write ./{program[0]} if it is a file here",
        )


def survival_options(command: Any) -> Any:
    """What happens to a program of the user's own that fails, or is asked to stop."""
    options = []
    for name in OF_PROGRAMS:
        usual = getattr(Survival(), name)
        kind = click.FloatRange(0) if isinstance(usual, float) else click.IntRange(0)
        flag = flag_of(Survival, name)
        options.append(click.option(flag, name, type=kind, default=usual, show_default=True, help=_SURVIVAL[name]))
    return decorate(command, options)


def survival_from(values: Dict[str, Any]) -> Survival:
    """What these options say; takes them out of `values`."""
    return Survival(**{name: values.pop(name) for name in OF_PROGRAMS})


def program_settings(values: Dict[str, Any]) -> Launch:
    """What these options say; takes them out of `values`."""
    names = ("ipus_per_replica", "num_replicas", "num_instances", "io_bound", "min_cores_per_instance")
    return Launch(**{name: values.pop(name) for name in names})
