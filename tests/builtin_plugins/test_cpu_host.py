import pytest

from autoplan.profiles import check_profile
from autoplan_cpu import host

PHYSICAL = host.available_memory_bytes()


def write(root, files):
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_this_machine_is_a_sensible_profile():
    profile = host.host_profile()
    check_profile(profile)
    assert profile.name == profile.kind == profile.torch_device == "cpu"
    assert profile.cores >= 1
    assert profile.flop_per_s["float32"] == profile.cores * 40e9
    assert profile.figures["bytes_per_s"].how == "assumed"


def test_without_cgroups_all_is_the_machine(tmp_path):
    assert host.available_cores(tmp_path) >= 1
    assert host.available_memory_bytes(tmp_path) >= PHYSICAL


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/box/memory.max": "max\n",
            "sys/fs/cgroup/pod/memory.max": "1048576\n",
            "sys/fs/cgroup/pod/box/cpu.max": "100000 100000\n",
            "sys/fs/cgroup/pod/cpu.max": "max 100000\n",
        },
        {
            "proc/self/cgroup": "4:memory:/box\n2:cpu,cpuacct:/box\n0::/\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "1048576\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        },
        {
            "proc/self/cgroup": "0::/not/mounted/here\n",
            "sys/fs/cgroup/memory.max": "1048576\n",
            "sys/fs/cgroup/cpu.max": "20000 100000\n",
        },
    ],
    ids=["version 2", "version 1", "only the root is visible"],
)
def test_the_least_limit_of_a_cgroup_and_its_parents_counts(tmp_path, files):
    root = write(tmp_path, files)
    assert host.available_memory_bytes(root) == 1048576
    assert host.available_cores(root) == 1
