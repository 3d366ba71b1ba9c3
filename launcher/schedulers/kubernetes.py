"""Kubernetes: an IPUJob of the IPU Operator, and for rehearsals a Job or an MPIJob."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ipulaunch.configs.errors import JobError, NotReadyError, PlanError, StoppedError, UsageError
from ipulaunch.configs.manifest import manifest_text
from ipulaunch.launcher.schedulers import script
from ipulaunch.launcher.schedulers.job import ClusterJob
from ipulaunch.launcher.schedulers.names import Expression, one_line, plain
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.scheduler import (
    DONE,
    FAILED,
    RUNNING,
    UNKNOWN,
    WAITING,
    JobState,
    Observation,
    Scheduler,
)
from ipulaunch.launcher.schedulers.tools import SUBMIT_ELSEWHERE, Answer, UnknownJob, ask, must, refuse

_MOST_IPUS = 64  # R15: the operator makes no larger partitions
# The operators add words such as -worker-0. IPUJobs with longer names start but get no IPUs, as EPCC's users have seen.
_LONGEST_NAMES = {"IPUJob": 36, "Job": 50, "MPIJob": 50}
_QUEUE = "kueue.x-k8s.io/queue-name"
_OF_JOBS = "kueue.x-k8s.io/"  # for the job only: Kueue would treat a Pod with it as a separate job
_PHASES = {"Pending": WAITING, "Running": RUNNING, "Succeeded": DONE, "Failed": FAILED}
# Conditions of Jobs and MPIJobs, the final ones first.
_CONDITIONS = {"Complete": DONE, "Succeeded": DONE, "Failed": FAILED, "Running": RUNNING, "Created": WAITING}
# Where the output of a run is.
_LOGS = {"IPUJob": "pod/{}-worker-0", "Job": "job/{}", "MPIJob": "job/{}-launcher"}


def render(job: ClusterJob) -> str:
    """The manifest of the kind that fits the plan."""
    if not job.is_rehearsal:
        spec, kind, version = _ipu_job(job), "IPUJob", "graphcore.ai/v1alpha1"
    elif job.hosts == 1:
        spec, kind, version = _plain_job(job), "Job", "batch/v1"
    else:
        spec, kind, version = _mpi_job(job), "MPIJob", "kubeflow.org/v2beta1"
    if len(job.name) > _LONGEST_NAMES[kind]:
        raise UsageError(
            f"the name {job.name} has {len(job.name)} letters, and names of {kind}s can have at most"
            f" {_LONGEST_NAMES[kind]}",
            hint="give --run-dir a shorter name: it is also the name of the job",
        )
    name = plain("dns", job.name, "the name of the job")
    if job.wishes.requeue and kind != "Job":
        raise UsageError(f"--requeue: {kind}s are not started again", hint="submit again with --resume")
    metadata: Dict[str, Any] = {"name": name}
    if job.wishes.namespace:
        metadata["namespace"] = plain("dns", job.wishes.namespace, "--namespace")
    metadata["labels"] = {"app.kubernetes.io/managed-by": "ipulaunch", **_labels(job)}
    if _annotations(job):
        metadata["annotations"] = _annotations(job)
    text = manifest_text({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    return f"{script.about(job)}\n{text}"


def _labels(job: ClusterJob) -> Dict[str, str]:
    """The labels of the job, and the queue among them: the site's, overridden by the command line's."""
    site, given = job.site.kubernetes, _pairs(job.wishes.labels, "--label")
    if job.wishes.queue is not None and given.setdefault(_QUEUE, job.wishes.queue) != job.wishes.queue:
        message = f"--queue {job.wishes.queue} and --label {_QUEUE}={given[_QUEUE]} name two queues"
        raise UsageError(message, hint="give one of them")
    queue = {} if site.queue is None else {_QUEUE: site.queue}
    found = {**_pairs(site.labels, "--label"), **queue, **given}
    return {key: plain("label value", value, f"the value of --label {key}") for key, value in found.items()}


def _annotations(job: ClusterJob) -> Dict[str, str]:
    flag = "--annotation"
    found = {**_pairs(job.site.kubernetes.annotations, flag), **_pairs(job.wishes.annotations, flag)}
    return {key: one_line(value, f"the value of {flag} {key}") for key, value in found.items()}


def _pairs(given: Sequence[str], flag: str) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{flag} {text!r} is refused", hint="expected KEY=VALUE")
        if found.setdefault(plain("label", key, flag), value) != value:
            raise UsageError(f"{flag} {key} is given twice: {found[key]!r} and {value!r}", hint="give one of them")
    return found


def _template(job: ClusterJob, pod: Mapping[str, Any]) -> Dict[str, Any]:
    """A template of Pods, with the labels and annotations of their job."""
    metadata = {
        name: {key: value for key, value in found.items() if not key.startswith(_OF_JOBS)}
        for name, found in (("labels", _labels(job)), ("annotations", _annotations(job)))
    }
    given = {name: found for name, found in metadata.items() if found}
    return {**({"metadata": given} if given else {}), "spec": dict(pod)}


def _ipu_job(job: ClusterJob) -> Dict[str, Any]:
    ipus = job.plan.ipus
    if ipus > _MOST_IPUS:
        raise PlanError(
            f"{ipus} IPUs, and the IPU Operator makes partitions of at most {_MOST_IPUS} (R15)",
            hint=f"use --ipus {_MOST_IPUS} or fewer",
        )
    if ipus & (ipus - 1):
        raise PlanError(f"{ipus} IPUs are not a power of two, as partitions of the IPU Operator are (R15)")
    if job.hosts > 1:
        instead = "leave --nodes out" if job.wishes.nodes else "use --nodes 1, or a site without hosts.ipus_per_host"
        raise PlanError(
            f"{job.hosts} hosts, but an IPUJob has 1 worker Pod (R15)",
            hint=f"{instead}: one Pod can have up to {_MOST_IPUS} IPUs",
        )
    container = {**_container(job, _shell(job, None)), "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}
    pod = {**_pod(job, container), "hostIPC": True}
    if job.wishes.asked_after_s is not None:
        pod["activeDeadlineSeconds"] = job.wishes.asked_after_s
    return {
        "jobInstances": 1,
        "ipusPerJobInstance": str(ipus),
        "modelReplicasPerWorker": str(job.plan.replicas),
        "workers": {"template": _template(job, pod)},
    }


def _plain_job(job: ClusterJob) -> Dict[str, Any]:
    spec: Dict[str, Any] = {"backoffLimit": 0}
    pod = _pod(job, _container(job, _shell(job, None)))
    limited = pod if job.wishes.requeue else spec  # each Pod has its own limit if others may follow
    if job.wishes.asked_after_s is not None:
        limited["activeDeadlineSeconds"] = job.wishes.asked_after_s
    if job.wishes.requeue:
        # The first matching rule applies. Kubernetes restarts a Pod that was lost with its node, or whose run was
        # stopped, but not one that failed.
        lost = {"onPodConditions": [{"type": "DisruptionTarget"}], "action": "Ignore"}
        stopped = {"onExitCodes": {"operator": "In", "values": [StoppedError.exit_code]}, "action": "Ignore"}
        failed = {"onExitCodes": {"operator": "NotIn", "values": [StoppedError.exit_code]}, "action": "FailJob"}
        spec = {"backoffLimit": 6, "podFailurePolicy": {"rules": [lost, stopped, failed]}}
    return {**spec, "template": _template(job, pod)}


def _mpi_job(job: ClusterJob) -> Dict[str, Any]:
    if not job.wishes.volumes:
        raise UsageError(
            f"{job.hosts} hosts need a directory that all of them see",
            hint="give --volume CLAIM:/path, with the run in it",
        )
    policy: Dict[str, Any] = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    if job.wishes.asked_after_s is not None:
        policy["activeDeadlineSeconds"] = job.wishes.asked_after_s
    # The launcher has one core of its own, and cannot see those of the workers.
    layout = f"--host-layout=1x{job.cores_per_host}"
    told = job._replace(first=(*job.first, layout), again=(*job.again, layout))
    launcher = _container(job, _shell(told, Expression("--hostfile=/etc/mpi/hostfile")))
    # Workers have no command: the operator starts their sshd. mpirun passes variables to them.
    worker = {name: value for name, value in _container(job, "").items() if name not in ("command", "args", "env")}
    small = {**launcher, "resources": {"limits": {"cpu": 1}}}
    return {
        "slotsPerWorker": job.plan.instances_per_host,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": policy,
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": _template(job, _pod(job, small))},
            "Worker": {"replicas": job.hosts, "template": _template(job, _pod(job, worker))},
        },
    }


def _shell(job: ClusterJob, hosts: Optional[Expression]) -> str:
    # The script already runs in the image, and Kubernetes handles signals: ipulaunch replaces the shell.
    inside = job._replace(wishes=job.wishes._replace(image=None))
    lines = [
        *script.environment(job),
        *script.choice(inside, hosts, None),
        '(umask 077 && mkdir -p "$run")',
        'exec "$@"',
    ]
    return "\n".join(lines) + "\n"


def _container(job: ClusterJob, shell: str) -> Dict[str, Any]:
    if job.wishes.image is None:
        raise UsageError(
            "Kubernetes runs images, but none is named", hint="give --container-image, with ipulaunch in it"
        )
    settings = job.site.kubernetes
    limits: Dict[str, Any] = {"cpu": settings.cpu or job.cores_per_host}
    if settings.memory is not None:
        limits["memory"] = plain("quantity", settings.memory, "the memory of a Pod")
    mounts = [{"name": "devshm", "mountPath": "/dev/shm"}]
    for index, (_, path) in enumerate(map(volume, job.wishes.volumes)):
        mounts.append({"name": f"volume-{index}", "mountPath": path})
    container: Dict[str, Any] = {
        "name": "ipulaunch",
        "image": plain("image", job.wishes.image, "--container-image"),
        "command": ["/bin/bash", "-c", "--"],
        "args": [_for_the_shell(shell)],
        "resources": {"limits": limits},
        "volumeMounts": mounts,
    }
    if job.wishes.secrets:
        container["env"] = [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
            for name, secret, key in job.wishes.secrets
        ]
    return container


def _for_the_shell(text: str) -> str:
    """The text with its $ doubled where Kubernetes would expand it: it replaces $(NAME) and $$."""
    return re.sub(r"\$(?=\$|\(\w+\))", "$$", text)


def _pod(job: ClusterJob, container: Mapping[str, Any]) -> Dict[str, Any]:
    size = plain("quantity", job.site.kubernetes.shared_memory, "the shared memory of a Pod")
    volumes: List[Dict[str, Any]] = [{"name": "devshm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    for index, (claim, _) in enumerate(map(volume, job.wishes.volumes)):
        volumes.append({"name": f"volume-{index}", "persistentVolumeClaim": {"claimName": claim}})
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": job.wishes.lead_s,
        "containers": [dict(container)],
        "volumes": volumes,
    }


def volume(text: str) -> Sequence[str]:
    """The claim and the path in CLAIM:/path."""
    claim, colon, path = text.partition(":")
    if not colon or not path.startswith("/"):
        raise UsageError(f"--volume {text!r} is refused", hint="expected CLAIM:/path")
    return plain("dns", claim, "--volume"), plain("path", path, "--volume")


def submit(path: str) -> Mapping[str, str]:
    """Create the job; `create` and not `apply`, which would change a job of the same name."""
    printed = must(["kubectl", "create", f"--filename={path}", "--output=json"], "the job", SUBMIT_ELSEWHERE)
    try:
        data = json.loads(printed)
        names = data["metadata"]
        found = {"id": names["name"], "kind": data["kind"], "namespace": names["namespace"], "uid": names["uid"]}
    except (ValueError, KeyError, TypeError) as error:
        hint = "look for it with kubectl get"
        raise UnknownJob(f"kubectl took the job but did not report its name: {error}", hint=hint) from error
    return {name: str(value) for name, value in found.items()}


def observe(jobs: Sequence[Submitted]) -> Observation:
    """The states of the jobs that still exist with the same uid."""
    found: Dict[str, JobState] = {}
    notes: List[str] = []
    for job in jobs:
        try:
            data = _object(job, job.kind, job.id)
            if data is not None and data["metadata"].get("uid") == job.uid:
                found[job.id] = _ipu_state(job) if job.kind == "IPUJob" else _state(data)
        except JobError as error:
            notes.append(error.message)
        except NotReadyError as error:  # the server does not answer, and will not for the next job
            notes.append(error.message)
            break
    return Observation(found, tuple(notes))


def _state(data: Mapping[str, Any]) -> JobState:
    status = data.get("status") or {}
    holding = [c.get("type") for c in status.get("conditions") or [] if c.get("status") == "True"]
    for name, word in _CONDITIONS.items():
        if name in holding:
            return JobState(word, name)
    return JobState(RUNNING, "active") if status.get("active") else JobState(WAITING, "not started")


def _ipu_state(job: Submitted) -> JobState:
    pod = _object(job, "pod", f"{job.id}-worker-0")
    if pod is None:
        return JobState(WAITING, "no worker Pod yet")
    phase = str((pod.get("status") or {}).get("phase"))
    return JobState(_PHASES.get(phase, UNKNOWN), phase, str((pod.get("spec") or {}).get("nodeName") or ""))


def _object(job: Submitted, kind: str, name: str) -> Optional[Dict[str, Any]]:
    answer: Answer = ask(["kubectl", "get", kind, name, f"--namespace={job.namespace}", "--output=json"])
    if answer.code and ("NotFound" in answer.err or "not found" in answer.err):
        return None
    if answer.code:
        refuse("kubectl", f"to report the state of {kind} {name}", answer)
    try:
        data = json.loads(answer.out)
    except ValueError:
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("metadata"), dict):
        raise JobError(f"kubectl does not report the state of {kind} {name}: {answer.words}")
    return data


def cancel(job: Submitted) -> None:
    """Delete the job, if it is still the one that we made."""
    data = _object(job, job.kind, job.id)
    if data is None or data["metadata"].get("uid") != job.uid:
        raise JobError(f"{job.kind} {job.id} does not exist any more")
    argv = ["kubectl", "delete", job.kind, job.id, f"--namespace={job.namespace}", "--wait=false"]
    must(argv, f"to delete {job.kind} {job.id}")


def log_argv(job: Submitted, follow: bool) -> List[str]:
    """The command for the output of the launcher; the logs of instances are on the volume."""
    what = _LOGS.get(job.kind, "job/{}").format(job.id)
    return ["kubectl", "logs", what, f"--namespace={job.namespace}", *(["--follow"] if follow else [])]


def job_name(text: str) -> str:
    """A name for Kubernetes, made from the name of a run."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")


SCHEDULER = Scheduler("manifest.yaml", render, submit, observe, cancel, log_argv)
