import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoplan.cluster import ETHERNET, NETWORK, UNKNOWN_LINK, parse_cluster
from autoplan.device import Link
from autoplan.errors import DeviceError
from autoplan.plugins import registry
from autoplan.presence import CudaDevice

CPU = registry().devices["cpu"]


@pytest.fixture
def two_gpus(monkeypatch):
    found = (CudaDevice(0, "NVIDIA A100-SXM4-80GB", 84 * 10**9), CudaDevice(1, "Acme G1", 10**10))
    monkeypatch.setattr("autoplan.devicestring.cuda_devices", lambda: found)


@pytest.fixture
def no_gpus(monkeypatch):
    monkeypatch.setattr("autoplan.devicestring.cuda_devices", lambda: ())


def places(cluster):
    return [(d.profile.name, d.host, d.index) for d in cluster.devices]


@pytest.mark.parametrize(
    "devices", ["2xcpu", " 2 x CPU ", ["cpu", "cpu"], ("cpu", "1xcpu"), [CPU, CPU]]
)
def test_two_cpu_workers_share_the_machine(devices):
    cluster = parse_cluster(devices)
    assert places(cluster) == [("cpu", 0, 0), ("cpu", 0, 1)]
    assert [device.memory_bytes for device in cluster.devices] == [CPU.memory_bytes // 2] * 2
    assert [device.name for device in cluster.devices] == ["cpu:0", "cpu:1"]
    assert cluster.text == "2xcpu"
    assert cluster.inter_host is None
    assert cluster.link(0, 1) == Link(6.7e-5, 6.9e8, "cpu peers")


def test_one_is_the_count_when_none_is_given():
    assert places(parse_cluster("cpu")) == [("cpu", 0, 0)]


def test_hosts_and_devices():
    cluster = parse_cluster("2x8xh100_sxm5")
    assert [device.host for device in cluster.devices] == [0] * 8 + [1] * 8
    assert [device.index for device in cluster.devices] == [*range(8), *range(8)]
    assert cluster.devices[9].name == "host1/h100_sxm5:1"
    assert cluster.devices[0].memory_bytes == 80_000_000_000
    assert cluster.link(0, 7) == Link(7.2e-6, 4.5e11, "h100_sxm5 peers")
    assert cluster.link(7, 8) == NETWORK
    assert parse_cluster("2x2xcpu").inter_host == ETHERNET


def test_parts_without_hosts_share_one_host_and_others_have_their_own():
    cluster = parse_cluster("2xcpu + 1x2xa100 + 1xl4 + a100")
    assert [(d.profile.name, d.host) for d in cluster.devices] == [
        ("cpu", 0),
        ("cpu", 0),
        ("a100_sxm4_80gb", 1),
        ("a100_sxm4_80gb", 1),
        ("l4", 0),
        ("a100_sxm4_80gb", 0),
    ]
    assert [d.index for d in cluster.devices if d.profile.kind == "gpu"] == [0, 1, 0, 1]


def test_a_mixed_host_has_its_slowest_link():
    cluster = parse_cluster("cpu+a100")
    assert cluster.intra_host == Link(6.7e-5, 6.9e8, "cpu peers")
    assert parse_cluster("2xinferentia2").intra_host == UNKNOWN_LINK


@given(st.integers(1, 5), st.integers(1, 9), st.sampled_from(["cpu", "tpu_v4", "gaudi2"]))
def test_the_text_of_a_cluster_reads_as_the_same_cluster(hosts, count, name):
    for text in (f"{count}x{name}", f"{hosts}x{count}x{name}"):
        cluster = parse_cluster(text)
        assert parse_cluster(cluster.text) == cluster
        assert parse_cluster(cluster) is cluster


def test_cuda_devices_of_this_machine(two_gpus):
    cluster = parse_cluster(["cuda:1", "cuda:0"])
    assert places(cluster) == [("cuda", 0, 1), ("a100_sxm4_80gb", 0, 0)]
    assert [device.name for device in cluster.devices] == ["cuda:1", "cuda:0"]
    assert [device.memory_bytes for device in cluster.devices] == [10**10, 84 * 10**9]
    assert cluster.devices[0].profile.figures["bytes_per_s"].how == "assumed"
    assert places(parse_cluster("2xcuda"))[1] == ("cuda", 0, 1)
    assert places(parse_cluster("cuda")) == [("a100_sxm4_80gb", 0, 0)]
    assert places(parse_cluster("cpu+cuda:1"))[1] == ("cuda", 0, 1)


def test_dictionaries_give_names_and_limits(two_gpus):
    cluster = parse_cluster(
        [
            {"name": "small", "memory_bytes": 8 * 2**20},
            {"name": "rest"},
            {"profile": "tpu_v4", "count": 2},
            {"name": "spare", "profile": "cuda:1", "memory_bytes": 5},
            {"name": "a100", "host": 1},
        ]
    )
    assert [(d.name, d.profile.name, d.memory_bytes) for d in cluster.devices] == [
        ("small", "cpu", 8 * 2**20),
        ("rest", "cpu", CPU.memory_bytes // 2),
        ("host0/tpu_v4:0", "tpu_v4", 34359738368),
        ("host0/tpu_v4:1", "tpu_v4", 34359738368),
        ("spare", "cuda", 5),
        ("a100", "a100_sxm4_80gb", 80_000_000_000),
    ]
    assert [d.host for d in cluster.devices] == [0, 0, 0, 0, 0, 1]


def test_a_file(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text(
        """
        [[devices]]
        profile = "a100_sxm4_40gb"
        count = 2

        [[devices]]
        profile = "a100_sxm4_40gb"
        host = 1
        name = "far"
        memory_bytes = 20000000000

        [inter_host]
        latency_seconds = 2e-6
        bytes_per_s = 2.5e10
        name = "InfiniBand"
        """
    )
    for devices in (file, str(file)):
        cluster = parse_cluster(devices)
        assert places(cluster) == [
            ("a100_sxm4_40gb", 0, 0),
            ("a100_sxm4_40gb", 0, 1),
            ("a100_sxm4_40gb", 1, 0),
        ]
        assert cluster.devices[2].name == "far"
        assert cluster.devices[2].memory_bytes == 20_000_000_000
        assert cluster.inter_host == Link(2e-6, 2.5e10, "InfiniBand")
        assert cluster.intra_host.bytes_per_s == 3e11


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[[devices", "is not TOML"),
        ("", "devices: Field required"),
        ("devices = []", "no devices given"),
        ('[[devices]]\nprofil = "cpu"', "devices.0.profil: Extra inputs are not permitted"),
        ('[[devices]]\nprofile = "cpu"\ncount = 0', "devices.0.count"),
        (
            '[[devices]]\nprofile = "cpu"\n[intra_host]\nlatency_seconds = -1\nbytes_per_s = 1',
            "intra_host.latency_seconds",
        ),
    ],
)
def test_a_file_with_a_mistake_says_where(tmp_path, content, message):
    file = tmp_path / "cluster.toml"
    file.write_text(content)
    with pytest.raises(DeviceError, match=message):
        parse_cluster(file)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("cpu:2", "for 2 of 'cpu' write '2xcpu'"),
        (["cpu:2"], "for 2 of 'cpu' write '2xcpu'"),
        ("2xcuda:1", "takes no count"),
        ("a100_sxm4_80", "no device 'a100_sxm4_80'; did you mean a100_sxm4_80gb or"),
        ("gpu", "no device 'gpu'; .*known are cpu, .*v100_sxm2_32gb, .*, cuda"),
        ([{"profile": "warp"}], "no device 'warp'"),
        ([], "no devices given; give a count"),
        ("", "no devices given"),
        ("0xcpu", "'0xcpu' asks for no devices"),
        ("0x2xcpu", "asks for no devices"),
        ("cpu+", "a device is missing beside a '\\+'"),
        ("2*cpu", "'2\\*cpu' is not a device"),
        ("2x2x2xcpu", "'2x2x2xcpu' is not a device"),
        ("99999xcpu", "more than 65,536 devices"),
        (["60000xcpu", "60000xcpu"], "120,000 devices are more than 65,536"),
        (2, "devices is 2; give a count"),
        (None, "devices is None"),
        ([2], "a device is 2"),
        ([{"memory": 2}], "memory: Extra inputs are not permitted; a device takes the keys name"),
        ([{"memory_bytes": -2}], "memory_bytes: Input should be greater than 0"),
        ([{"name": "d"}, {"name": "d"}], "d is named 2 times"),
        ([{"profile": "tpu_v4:1"}], "an index is for one CUDA device"),
        ("nowhere/cluster.toml", "cannot read the devices from nowhere/cluster.toml: No such file"),
    ],
)
def test_what_cannot_be_says_what_to_write(devices, message):
    with pytest.raises(DeviceError, match=message):
        parse_cluster(devices)


def test_cuda_devices_that_are_not_here_and_twins(two_gpus):
    with pytest.raises(DeviceError, match=r"cuda:7 is not in this machine, which has cuda:0 \(NV"):
        parse_cluster(["cuda:7"])
    with pytest.raises(DeviceError, match=r"cuda:2 is not in .*4xa100_sxm4_80gb"):
        parse_cluster("3xcuda")
    with pytest.raises(DeviceError, match="cuda:0 is named 2 times"):
        parse_cluster(["cuda:0", "cuda:0"])
    with pytest.raises(DeviceError, match="also used under another name"):
        parse_cluster([{"name": "mine", "profile": "cuda:0"}, "cuda:0"])


def test_no_cuda_at_all(no_gpus):
    with pytest.raises(DeviceError, match="which has no CUDA device that torch can see"):
        parse_cluster("4xcuda")


def test_planning_for_gpus_elsewhere_imports_no_torch():
    code = (
        "import sys; from autoplan.cluster import parse_cluster; parse_cluster('2x8xh100_sxm5');"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
