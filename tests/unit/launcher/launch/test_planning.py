from __future__ import annotations

from typing import Any, Callable

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "instances", "said"),
    [
        pytest.param("--pod 16 --host-layout 2x8", 8, None, id="as many cores as the POD has instances"),
        pytest.param("--pod 16 --host-layout 1x3", 2, "8 instances, and in this rehearsal 2, which share 3", id="few"),
        pytest.param("--pod 16 --host-layout 1x1", 1, "8 instances, and in this rehearsal 1, which share 1", id="one"),
        pytest.param("--pod 4 --host-layout 1x64", 4, None, id="one instance a replica"),
        pytest.param("--pod 16 --ipus-per-replica 16 --host-layout 1x4", 1, None, id="one replica"),
        pytest.param("--pod 64 --hosts a,b --host-layout 1x3", 4, "8 instances, and in this rehearsal 4", id="hosts"),
        pytest.param("--pod 16 --num-instances 1 --host-layout 2x8", 1, None, id="as given"),
    ],
)
def test_a_rehearsed_program_has_the_instances_of_the_pod_as_far_as_cores_allow(
    words: str, instances: int, said: str, ipulaunch: Run
) -> None:
    code, out, err = ipulaunch("run", *words.split(), "--engine", "openmpi", "--dry-run", "prog")
    assert (code, out.count("POPDIST_REPLICA_INDEX_OFFSET=")) == (0, instances)
    assert (said in err) if said else ("on the POD" not in err)
