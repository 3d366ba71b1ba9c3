"""The variables of a job: copied by name, taken from a Secret by a Pod, or set by the job itself."""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Sequence, Tuple

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.secrets import is_secret
from ipulaunch.launcher.schedulers.names import plain

_FROM_SECRET = "secret:"  # --env NAME=secret:SECRET/KEY, in Kubernetes


class SecretKey(NamedTuple):
    """A variable whose value is in a Secret of Kubernetes."""

    name: str
    secret: str
    key: str


class Variables(NamedTuple):
    """The variables in --env."""

    env: Tuple[str, ...] = ()  # for the call of ipulaunch in the job
    sent: Tuple[str, ...] = ()  # names of those to copy from here
    secrets: Tuple[SecretKey, ...] = ()


def variables_of(given: Sequence[str], scheduler: str, environ: Mapping[str, str], *, has_setup: bool) -> Variables:
    """The variables of a job; a job with set-up lines may set some itself, so they need not be set here."""
    env: List[str] = []
    sent: List[str] = []
    secrets: List[SecretKey] = []
    for text in given:
        name, equals, value = text.partition("=")
        plain("variable", name, "--env")
        if scheduler == "kubernetes" and value.startswith(_FROM_SECRET):
            secret, _, key = value[len(_FROM_SECRET) :].partition("/")
            found = SecretKey(
                name, plain("secret", secret, f"--env {name}: Secret"), plain("key", key, f"--env {name}: key")
            )
            secrets.append(found)
            env.append(name)
            continue
        if scheduler == "kubernetes" and equals and is_secret(name):
            raise UsageError(f"--env {name}=... would show a secret in the manifest", hint=_how(name, scheduler))
        if not equals and scheduler != "kubernetes" and name in environ:
            sent.append(name)
        elif not equals and not has_setup:
            where = "the variables here do not reach a Pod" if scheduler == "kubernetes" else "it is not set here"
            raise UsageError(
                f"--env {name}: {where}, and no --setup could set it in the job", hint=_how(name, scheduler)
            )
        env.append(text)
    return Variables(tuple(env), tuple(sent), tuple(secrets))


def _how(name: str, scheduler: str) -> str:
    if not is_secret(name):
        return f"give --env {name}=VALUE, or set it with --setup"
    if scheduler == "kubernetes":
        return f"give --env {name}=secret:NAME/KEY, for a key of a Secret in the namespace"
    return f"export {name} first, or let the job read it: --setup 'export {name}=$(cat FILE)'"
