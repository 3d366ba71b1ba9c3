"""The variables that poprun has to be told of, so that they reach the instances of other hosts."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence, Set, Tuple

from ipulaunch.configs.runs.secrets import is_secret

# Set by the SDK's enable script. PATH, LD_LIBRARY_PATH and PYTHONPATH poprun takes along by itself.
_ENABLED = ("OPAL_PREFIX", "CPATH")
_PREFIXES = ("POPLAR_", "POPART_", "GCL_", "HOROVOD_", "TF_POPLAR_", "TF_CPP_")
_OF_POPRUN = ("POPLAR_TARGET_OPTIONS",)  # which it works out for the instances


def of_the_sdk(environ: Optional[Mapping[str, str]]) -> Tuple[str, ...]:
    """The names of the SDK's variables that are set; without an environment, of those that every SDK sets."""
    if environ is None:
        return _ENABLED
    options = sorted(name for name in environ if name.startswith(_PREFIXES))
    return tuple(
        name for name in (*_ENABLED, *options) if name in environ and name not in _OF_POPRUN and not is_secret(name)
    )


def named(words: Sequence[str]) -> Set[str]:
    """The names of variables among words for mpirun: -x NAME and -x NAME=VALUE."""
    return {name.partition("=")[0] for flag, name in zip(words, words[1:]) if flag == "-x"}
