"""The chain from the disk to the IPUs, against arithmetic that is published."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional

import pytest

from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology.capacity.chain import ASSUMED, BUSY, OPEN, STARVE, UNCERTAIN, Chain, Inputs, Quantity, chain_of
from ipulaunch.topology.capacity.energy import energy_of
from ipulaunch.topology.capacity.forms import ISAL_BYTES_PER_CORE, ZLIB_BYTES_PER_CORE
from ipulaunch.topology.capacity.improvements import Limits, improvements
from ipulaunch.topology.capacity.known_rates import known_inputs
from ipulaunch.topology.capacity.ranges import Range, exactly
from ipulaunch.topology.planning.plan import Plan

LINK = 12.5e9  # bytes/s of 100 GbE
IMAGE = 224 * 224 * 3
VOLUME = 128**3 * 4
BOW_POD16, BOW_POD64 = 42_029, 145_287  # images/s of ResNet-50
Make = Callable[..., Inputs]


def quantity(low: float, high: Optional[float] = None) -> Quantity:
    return Quantity(Range(low, low if high is None else high), ASSUMED, "made up")


def rate(chain: Chain, name: str) -> Range:
    [found] = [link.pod for link in chain.links if link.name == name]
    assert found is not None
    return found


@pytest.fixture()
def inputs_of(make_plan: Callable[..., Plan]) -> Make:
    """The inputs of a workload on so many IPUs, with settings, on hosts of 128 cores."""

    def make(workload: str, system: str, ipus: int, *texts: str, hosts: int = 1, **more: Any) -> Inputs:
        overrides = [assignment(text, "--set") for text in ("data.directory=/set", *texts)]
        settings = resolve(workload, rehearsal=False, overrides=overrides).settings
        names = [f"host{number}" for number in range(hosts)]
        plan = make_plan(ipus, 8 * hosts, hosts=names)._replace(system=system)
        return known_inputs(workload, settings, plan, is_rehearsal=False, **more)

    return make


def resnet50(inputs: Inputs, rate: float) -> Inputs:
    """The inputs with a known rate of all IPUs together, and a disk that never limits."""
    return inputs._replace(device=quantity(rate / inputs.ipus), disk=quantity(1e12))


def test_images_in_16_bits_do_not_pass_through_100_gbe_and_bytes_do(inputs_of: Make) -> None:
    inputs = resnet50(inputs_of("imagenet", "bow-pod16", 16), BOW_POD16)
    chain = chain_of(inputs._replace(sent_bytes=IMAGE * 2))
    assert round(BOW_POD16 * IMAGE * 2 / 1e9, 2) == 12.65  # GB/s, and the link has 12.5
    assert rate(chain, "host link").high == pytest.approx(LINK / (IMAGE * 2))
    assert (chain.verdict, chain.bottleneck and chain.bottleneck.name) == (STARVE, "host link")
    halved = chain_of(inputs._replace(sent_bytes=IMAGE))
    assert rate(halved, "host link") == rate(chain, "host link").times(2)
    assert halved.verdict == BUSY


@pytest.mark.parametrize(("bytes_a_voxel", "samples"), [(2, 745), (4, 372)])
def test_volumes_that_fill_100_gbe(bytes_a_voxel: int, samples: int, inputs_of: Make) -> None:
    is_float = str(bytes_a_voxel == 4).lower()
    inputs = inputs_of("cosmoflow", "pod16", 16, "data.side=128", f"data.host_preprocess={is_float}")
    assert inputs.sent_bytes == VOLUME * bytes_a_voxel
    link = rate(chain_of(inputs), "host link")
    assert (math.floor(link.low), link.low) == (samples, link.high)


def test_cores_that_unpack_what_fills_100_gbe() -> None:
    assert [round(745 * 16.8e6 / rate) for rate in (ZLIB_BYTES_PER_CORE, ISAL_BYTES_PER_CORE)] == [35, 12]


@pytest.mark.parametrize(
    ("ipus", "images", "per_core", "verdict"),
    [(16, BOW_POD16, 328, BUSY), (64, BOW_POD64, 1135, STARVE)],
    ids=["Pod16", "Pod64 with one host"],
)
def test_what_each_of_128_cores_has_to_decode(
    ipus: int, images: int, per_core: int, verdict: str, inputs_of: Make
) -> None:
    inputs = resnet50(inputs_of("imagenet", f"bow-pod{ipus}", ipus), images)
    assert inputs.instances * inputs.busy_cores_per_instance == 128
    assert round(images / 128) == per_core
    decoding = chain_of(inputs._replace(link=quantity(1e12), memory=quantity(1e12)))
    assert rate(decoding, "decode") == Range(500 * 128, 1000 * 128)
    assert (decoding.verdict, chain_of(inputs).verdict) == (verdict, verdict)


def test_the_published_rate_of_a_bow_pod_is_exact_and_that_of_others_lies_below(inputs_of: Make) -> None:
    bow, mk2 = (chain_of(inputs_of("imagenet", name, 64)).device.pod for name in ("bow-pod64", "pod64"))
    assert bow == exactly(BOW_POD64) and mk2 is not None
    # MLPerf: 40 epochs in 28.3 minutes on an IPU-POD16.
    assert mk2.low == pytest.approx(BOW_POD64 * 40 * 1_281_167 / (28.3 * 60) / BOW_POD16)
    assert mk2.high == BOW_POD64


@pytest.mark.parametrize(
    ("workload", "texts"),
    [("cosmoflow", []), ("imagenet", ["model.name=resnet18"]), ("imagenet", ["training.precision=32.32"])],
    ids=str,
)
def test_where_no_rate_is_published_the_question_stays_open(workload: str, texts: List[str], inputs_of: Make) -> None:
    chain = chain_of(inputs_of(workload, "pod16", 16, *texts))
    assert (chain.verdict, chain.is_upper_limit, chain.device.pod) == (OPEN, True, None)
    assert chain.flow == chain.supply


@pytest.mark.parametrize(
    ("disk", "verdict"),
    [((100.0, 200.0), STARVE), ((200.0, 450.0), UNCERTAIN), ((500.0, 900.0), BUSY)],
    ids=["below", "overlap", "above"],
)
def test_the_verdict_says_when_ranges_overlap(disk: Any, verdict: str, inputs_of: Make) -> None:
    inputs = inputs_of("cosmoflow", "pod16", 16)._replace(stored=quantity(1), disk=quantity(*disk))
    chain = chain_of(inputs._replace(device=quantity(300 / 16, 500 / 16)))
    assert chain.verdict == verdict
    names = ["disk"] if verdict in (STARVE, UNCERTAIN) else ["IPUs"]
    assert chain.bottleneck and chain.bottleneck.name in names


def test_a_rehearsal_takes_turns_on_its_cores(inputs_of: Make) -> None:
    inputs = inputs_of("cosmoflow", "pod16", 16)._replace(
        is_rehearsal=True, link=None, memory=None, disk=None, stored=None, busy_cores_per_instance=1, instances=2
    )
    chain = chain_of(inputs._replace(prepare=quantity(30), device=quantity(60)))
    assert [link.name for link in chain.links] == ["read", "CPUs"]
    assert chain.flow == exactly(pytest.approx(40))  # 2 x 1 / (1 / 30 + 1 / 60)
    assert chain.epochs_per_hour == exactly(pytest.approx(40 * 3600 / inputs.samples))


def changes_of(inputs: Inputs, *texts: str, workload: str = "imagenet", **limits: Any) -> Dict[str, Chain]:
    overrides = [assignment(text, "--set") for text in ("data.directory=/set", *texts)]
    settings = resolve(workload, rehearsal=False, overrides=overrides).settings
    found = improvements(settings, inputs, Limits(**{"most_hosts": 4, **limits}))
    return {each.change: each.chain for each in found}


def test_what_helps_is_computed_again(inputs_of: Make) -> None:
    floats = "data.eight_bit_transfer=false"
    inputs = resnet50(inputs_of("imagenet", "bow-pod16", 16, floats), BOW_POD16)
    found = changes_of(inputs, floats)
    assert list(found) == ["--eight-bit-transfer", "4 hosts instead of 1 (--hosts)"]
    assert inputs.sent_bytes == 4 * IMAGE
    assert rate(found["--eight-bit-transfer"], "host link").high == pytest.approx(LINK / IMAGE)
    assert found["--eight-bit-transfer"].verdict == BUSY


def test_several_changes_together_where_none_alone_is_enough(inputs_of: Make) -> None:
    inputs = inputs_of("imagenet", "bow-pod64", 64)
    *alone, together = changes_of(inputs).items()
    assert [(change, chain.verdict) for change, chain in alone] == [("4 hosts instead of 1 (--hosts)", UNCERTAIN)]
    assert together[0].startswith(
        "4 hosts instead of 1 (--hosts); --stage-dir DIR on a local NVMe disk; ipulaunch data"
    )
    assert together[1].verdict == BUSY
    assert rate(together[1], "host link") == exactly(pytest.approx(4 * LINK / IMAGE))


def test_prepared_sets_help_cores_that_decode(inputs_of: Make) -> None:
    inputs = resnet50(inputs_of("imagenet", "bow-pod16", 16), BOW_POD16)
    few = inputs._replace(cores_per_instance=4, busy_cores_per_instance=4)
    found = changes_of(few, most_hosts=1)
    speeds = [rate(chain, name) for chain, name in zip(found.values(), ("decode", "read"))]
    assert all("data build imagenet --records" in change for change in found)
    assert speeds[0].low > 1.6 * 500 * 32 and speeds[1].low > speeds[0].low


def test_more_instances_where_each_prepares_fewer_samples_than_it_has_cores(inputs_of: Make) -> None:
    text = "data.pipeline_num_parallel=4"
    inputs = resnet50(inputs_of("imagenet", "bow-pod16", 16, text), BOW_POD16)
    assert (inputs.cores_per_instance, inputs.busy_cores_per_instance) == (16, 4)
    found = changes_of(inputs, text, most_hosts=1)
    assert "--num-instances 32" not in found  # there are 16 replicas, and 8 cores for each
    wide = inputs._replace(busy_cores_per_instance=8)
    assert rate(changes_of(resnet50(wide, 90_000), text)["--num-instances 16"], "decode").high == 128_000


@pytest.mark.parametrize(("uses_isal", "times"), [(False, 3.0), (None, None), (True, 0.0)], ids=["zlib", "?", "isal"])
def test_faster_gzip(uses_isal: Optional[bool], times: Optional[float], inputs_of: Make) -> None:
    inputs = inputs_of("cosmoflow", "pod16", 16, "data.side=128", form="gzip")
    inputs = inputs._replace(link=quantity(1e12), disk=quantity(1e12), memory=quantity(1e14))
    found = changes_of(inputs, "data.side=128", workload="cosmoflow", uses_isal=uses_isal, most_hosts=1)
    assert inputs.prepare is not None
    faster = found.get("pip install 'ipulaunch[gzip]' on every host")
    if times == 0:
        assert faster is None
    else:
        assert faster is not None
        before = inputs.prepare.value
        expected = exactly(before.high) if times is None else before.times(times)
        assert rate(faster, "unpack") == Range(pytest.approx(expected.low * 128), pytest.approx(expected.high * 128))
    assert rate(found["the set unpacked with gunzip"], "read").low > rate(chain_of(inputs), "unpack").high


def test_energy_counts_whole_machines() -> None:
    bow, mk2 = energy_of("bow-pod16", 16, exactly(2)), energy_of("2 IPUs", 2, Range(1, 2))
    assert (bow.ipu_hours, bow.kwh) == (exactly(32), exactly(10))  # 4 Bow-2000 of 1.25 kW
    assert (mk2.ipu_hours, mk2.kwh) == (Range(2, 4), Range(1.5, 3))
    assert mk2.text == (
        "2 to 4 IPU-hours, about 1.5 to 3 kWh (estimate: 1 x 1.5 kW (IPU-M2000, at most), without hosts)"
    )
