from __future__ import annotations

from dataclasses import replace

import pytest

from autoplan.cluster import parse_cluster, restored_cluster, used_cluster
from autoplan.clusteruse import device_differences
from autoplan.device import Cluster, Link
from autoplan.errors import DeviceError
from autoplan.search.fingerprint import devices_fingerprint


@pytest.mark.parametrize(
    "devices",
    [
        "3xcpu",
        "2x8xh100_sxm5",
        "2xcpu+1xgaudi2",
        ["l4", "a100", "l4"],
        [{"name": "small", "memory_bytes": 8 << 20}, {"name": "other"}],
    ],
)
def test_a_cluster_comes_back_from_what_a_plan_keeps(devices: object) -> None:
    cluster = parse_cluster(devices)
    again = restored_cluster(used_cluster(cluster))
    assert devices_fingerprint(again) == devices_fingerprint(cluster)
    assert device_differences(used_cluster(cluster), used_cluster(again)) == ()


def test_links_that_were_given_are_kept() -> None:
    cluster = replace(parse_cluster("2x2xcpu"), inter_host=Link(1e-3, 1e9, "slow"))
    again = restored_cluster(used_cluster(cluster))
    assert again.inter_host == Link(1e-3, 1e9, "slow")
    assert again.intra_host == cluster.intra_host


def test_a_thousand_equal_devices_are_one_entry_a_host() -> None:
    assert len(used_cluster(parse_cluster("128x8xh100_sxm5")).devices) == 128


def faster(cluster: Cluster) -> Cluster:
    devices = [
        replace(d, profile=replace(d.profile, bytes_per_s=9e9, launch_seconds=None))
        for d in cluster.devices
    ]
    return replace(cluster, devices=tuple(devices))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (
            lambda c: parse_cluster("3xcpu"),
            "2 x cpu were planned for, here are 3 x cpu",
        ),
        (lambda c: parse_cluster("2xl4"), "2 x cpu were planned for, here are 2 x l4"),
        (lambda c: parse_cluster("2x1xcpu"), "hosts were 1, here 2"),
        (faster, "cpu: launch_seconds was 5e-06, here unknown"),
        (
            lambda c: replace(c, intra_host=Link(1.0, c.intra_host.bytes_per_s)),
            "the link within a host: latency_seconds was 6.7e-05, here 1",
        ),
    ],
)
def test_what_differs_is_said(now, said: str) -> None:
    cluster = parse_cluster("2xcpu")
    found = device_differences(used_cluster(cluster), used_cluster(now(cluster)))
    assert said in found


def test_a_profile_that_is_not_here_is_named() -> None:
    use = used_cluster(parse_cluster("2xl4"))
    other = replace(use, devices=(replace(use.devices[0], profile="abacus"),))
    with pytest.raises(DeviceError, match="there is no device 'abacus'"):
        restored_cluster(other)
