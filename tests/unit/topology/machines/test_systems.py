from __future__ import annotations

import pytest

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.pods import Catalogue
from ipulaunch.topology.machines.pods import System, find, of_size, usual_ilds


@pytest.mark.parametrize(
    ("pod", "name"),
    [("16", "pod16"), ("pod16", "pod16"), ("POD16", "pod16"), ("bow-pod64", "bow-pod64"), ("Bow-Pod64", "bow-pod64")],
)
def test_pod_is_found_by_number_or_name(pod: str, name: str, catalogue: Catalogue) -> None:
    system, entry = find(pod, catalogue), catalogue.pods[name]
    assert system == System(name, entry.ipus, entry.hosts, entry.max_hosts)


@pytest.mark.parametrize(
    ("pod", "hint"),
    [
        ("17", "the nearest is --pod 16;"),
        ("pod63", "the nearest is --pod 64;"),
        ("1" * 40, "the nearest is --pod 256;"),
        ("0", "the nearest is --pod 4;"),
        ("", "known: pod4, "),
        ("pod", "known: pod4, "),
        ("²", "known: pod4, "),
    ],
)
def test_unknown_pod_is_answered_with_the_nearest(pod: str, hint: str, catalogue: Catalogue) -> None:
    with pytest.raises(PlanError) as caught:
        find(pod, catalogue)
    assert caught.value.message == f"there is no POD {pod}"
    assert caught.value.hint.startswith(hint)
    assert all(name in caught.value.hint for name in catalogue.pods)


@pytest.mark.parametrize(("ipus", "ilds"), [(1, 1), (2, 1), (64, 1), (128, 2), (512, 8)])
def test_system_outside_the_catalogue(ipus: int, ilds: int) -> None:
    assert of_size(ipus) == System("1 IPU" if ipus == 1 else f"{ipus} IPUs", ipus, hosts=ilds, max_hosts=None)
    assert usual_ilds(ipus) == ilds


@pytest.mark.parametrize(
    ("pod", "ipus", "hosts"),
    [
        ("128", 128, 2),
        ("128", 64, 1),
        ("128", 1, 1),
        ("256", 256, 4),
        ("256", 128, 2),
        ("256", 2, 1),
        ("16", 2, 1),
        ("16", 99, 1),
    ],
)
def test_a_part_has_its_share_of_the_hosts(pod: str, ipus: int, hosts: int, catalogue: Catalogue) -> None:
    assert find(pod, catalogue).hosts_of(ipus) == hosts


def test_a_system_larger_than_any_plan_is_refused() -> None:
    assert of_size(65536).ipus == 65536
    with pytest.raises(PlanError, match="65537 IPUs, and a plan has at most 65536"):
        of_size(65537)
