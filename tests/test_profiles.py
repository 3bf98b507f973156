import math
from dataclasses import replace

import pytest

from autoplan.device import DeviceProfile, Figure
from autoplan.errors import PluginError
from autoplan.profiles import check_profile, read_profiles

GOOD = DeviceProfile(
    name="acme_npu2",
    kind="npu",
    title="Acme NPU 2",
    flop_per_s={"float32": 5e13},
    memory_bytes=2**34,
    bytes_per_s=1e12,
    launch_seconds=0.0,
    figures={"bytes_per_s": Figure(1e12, "datasheet", "a page")},
    aliases=("npu2",),
)
FILE = """
schema_version = 1

[devices.acme_npu2]
title = "Acme NPU 2"
kind = "npu"
vendor = "Acme"
torch_device = "cuda"
aliases = ["npu2"]
figures.memory_bytes = { value = 3.4e10, how = "datasheet", source = "a page" }
figures.flop_per_s.float32 = { value = 5e13, how = "assumed", source = "", note = "a guess" }
figures.launch_seconds = { value = 5e-6, how = "measured", source = "here" }
more.clock_hz = { value = 1.5e9, how = "datasheet", source = "a page" }
"""


def test_a_file_becomes_profiles_with_the_origin_of_every_number(tmp_path):
    file = tmp_path / "profiles.toml"
    file.write_text(FILE)
    (profile,) = read_profiles(file)
    assert profile.name == "acme_npu2"
    assert (profile.title, profile.vendor, profile.kind) == ("Acme NPU 2", "Acme", "npu")
    assert profile.torch_device == "cuda"
    assert profile.aliases == ("npu2",)
    assert profile.memory_bytes == 34_000_000_000
    assert isinstance(profile.memory_bytes, int)
    assert profile.flop_per_s == {"float32": 5e13}
    assert profile.bytes_per_s is None
    assert profile.figures == {
        "flop_per_s.float32": Figure(5e13, "assumed", "", "a guess"),
        "memory_bytes": Figure(3.4e10, "datasheet", "a page"),
        "launch_seconds": Figure(5e-6, "measured", "here"),
        "clock_hz": Figure(1.5e9, "datasheet", "a page"),
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version: Input should be 1"),
        ("schema_version", "= 1", "is not TOML"),
        ('kind = "npu"', "", "devices.acme_npu2.kind: Field required"),
        ('kind = "npu"', 'kind = "fpga"', "devices.acme_npu2.kind"),
        ("figures.memory_bytes", "figures.memory_byte", "figures.memory_byte: Extra inputs"),
        ("3.4e10", "nan", "figures.memory_bytes.value: Input should be a finite number"),
        ("3.4e10", "-1", "memory_bytes is -1"),
        ('"datasheet"', '"hearsay"', "memory_bytes.how"),
        ("float32", "float33", "flop_per_s names 'float33'"),
        ("acme_npu2", "Acme-2", "must be lower-case"),
    ],
)
def test_a_file_with_a_mistake_says_where(tmp_path, old, new, message):
    file = tmp_path / "profiles.toml"
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(PluginError, match=message):
        read_profiles(file)


def test_a_sensible_profile_passes():
    check_profile(GOOD)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "lower-case"),
        ({"name": "4x"}, "lower-case"),
        ({"name": 7}, "lower-case"),
        ({"kind": "fpga"}, "kind is 'fpga'"),
        ({"title": None}, "title is None"),
        ({"torch_device": "mps"}, "torch_device is 'mps'"),
        ({"memory_bytes": -1}, "memory_bytes is -1; it must be a whole number above 0"),
        ({"memory_bytes": 1e9}, "memory_bytes is 1000000000.0; it must be a whole number"),
        ({"memory_bytes": True}, "memory_bytes is True"),
        ({"bytes_per_s": math.nan}, "bytes_per_s is nan; it must be a finite number above 0"),
        ({"bytes_per_s": math.inf}, "bytes_per_s is inf"),
        ({"bytes_per_s": 0}, "bytes_per_s is 0"),
        ({"bytes_per_s": "fast"}, "bytes_per_s is 'fast'"),
        ({"launch_seconds": -1e-6}, "launch_seconds is -1e-06; it must be a finite number at"),
        ({"flop_per_s": {"float32": math.nan}}, "flop_per_s of float32 is nan"),
        ({"flop_per_s": {"fp32": 1.0}}, "flop_per_s names 'fp32'"),
        ({"flop_per_s": 1e12}, "flop_per_s is 1000000000000.0; it must map"),
        ({"figures": {"bytes_per_s": 1e12}}, "figures must map"),
        ({"aliases": "npu2"}, "aliases is 'npu2'"),
    ],
)
def test_nonsense_is_named(change, message):
    with pytest.raises(PluginError, match=message):
        check_profile(replace(GOOD, **change))


def test_something_else_is_no_profile():
    with pytest.raises(PluginError, match="not dict"):
        check_profile({"name": "acme"})
