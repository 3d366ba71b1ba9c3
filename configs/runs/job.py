"""The job of a run as text: job.yaml in the run directory, and the --set options of a worker line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional

import yaml

from ipulaunch.configs.errors import IpulaunchError, SettingsError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.untrusted import read_text
from ipulaunch.configs.settings.schema import build, leaves, plain, plain_value, value_of
from ipulaunch.configs.settings.tree import Given, assignment, parse_yaml
from ipulaunch.configs.settings.workloads import Resolved, schema_of

if TYPE_CHECKING:
    from ipulaunch.configs.settings.workload import WorkloadSettings

BACKENDS = _IPU, _CPU = ("ipu", "cpu")


class Job(NamedTuple):
    """What the instances of a run do: the workload and its settings, on which backend."""

    workload: str
    backend: str  # one of BACKENDS
    settings: WorkloadSettings

    @property
    def is_rehearsal(self) -> bool:
        """Whether the job runs on CPUs."""
        return self.backend == _CPU


def to_yaml(job: Job) -> str:
    """The job as text; from_yaml() gives back an equal job."""
    data: Dict[str, Any] = {"workload": job.workload, "backend": job.backend}
    data["settings"] = plain(job.settings)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def from_yaml(text: str, name: str) -> Job:
    """The job in a text, checked against the schema of its workload."""
    tree = parse_yaml(text, name)
    workload, backend, settings = tree.get("workload"), tree.get("backend"), tree.get("settings")
    if not isinstance(workload, Given) or not isinstance(backend, Given) or not isinstance(settings, dict):
        raise SettingsError(f"{name} is not a job: it needs workload, backend and settings")
    for key in sorted(set(tree) - {"workload", "backend", "settings"}):
        raise SettingsError(f"{name}: {key} is not part of a job")
    if backend.value not in BACKENDS:
        raise SettingsError(f"{backend.origin}: the backend is {backend.value!r}, expected ipu or cpu")
    return Job(str(workload.value), str(backend.value), build(schema_of(str(workload.value)), settings, {}))


def job_of(run: RunDirectory) -> Optional[Job]:
    """The job of a run, where it is whole; programs of users have none, and a checkpoint alone has none either."""
    try:
        return from_yaml(read_text(run.job), str(run.job))
    except (OSError, IpulaunchError):
        return None


def set_options(resolved: Resolved) -> List[str]:
    """The options that turn the shipped settings into these, so that a worker line stands alone."""
    options: List[str] = ["--config", resolved.config] if resolved.config else []
    for leaf in leaves(type(resolved.settings)):
        if leaf.key in resolved.given:
            value = plain_value(value_of(resolved.settings, leaf.key))
            options += ["--set", f"{leaf.key}={_written(leaf.key, value)}"]
    return options


def _written(key: str, value: object) -> str:
    """A value so that assignment() reads back the same."""
    import json  # here, because a dry run needs none

    # YAML does not read the pairs that JSON writes for what is beyond 16 bits, and folds separators of lines as such.
    texts = [json.dumps(value), json.dumps(value, ensure_ascii=False)]
    if isinstance(value, str):
        texts.insert(0, value)
    return next((text for text in texts if _read_back(key, text) == value), texts[-1])


def _read_back(key: str, text: str) -> object:
    given = assignment(f"{key}={text}", "--set")
    while isinstance(given, dict):
        (given,) = given.values()  # type: ignore[assignment]
    return given.value if isinstance(given, Given) else given
