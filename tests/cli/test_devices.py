from __future__ import annotations

import json

import pytest

from autoplan.plugins import registry
from autoplan.presence import CudaDevice
from tests.cli.fresh import without_torch


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (CudaDevice(0, "NVIDIA H200", 150 * 10**9), CudaDevice(1, "Acme G1", 10**10))
    monkeypatch.setattr("autoplan.presence.cuda_devices_apart", lambda: found)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoplan.presence.cuda_devices_apart", lambda: ())


def test_every_profile_is_listed(command, no_gpu) -> None:
    done = command("devices")
    assert (done.code, done.err) == (0, "")
    for name in registry().devices:
        assert f"  {name} " in done.out
    listed = json.loads(command("devices", "--json").out)["devices"]
    assert [each["name"] for each in listed] == list(registry().devices)
    assert {each["name"] for each in listed if each["here"]} >= {"cpu"}
    assert not any(each["here"] for each in listed if each["torch_device"] != "cpu")


def test_a_gpu_of_this_machine_is_here(command, gpus) -> None:
    listed = json.loads(command("devices", "--json").out)["devices"]
    here = {each["name"] for each in listed if each["here"] and each["kind"] == "gpu"}
    assert here == {"h200_sxm"}
    assert "runs: here" in command("devices", "H200").out
    assert json.loads(command("devices", "cuda", "--json").out)["name"] == "h200_sxm"


@pytest.mark.parametrize("name", ["a100", "NVIDIA A100-SXM4-80GB", "a100_sxm4_80gb"])
def test_one_profile_is_found_by_any_of_its_names(command, no_gpu, name: str) -> None:
    assert command("devices", name).out.startswith("a100_sxm4_80gb\n")
    figures = json.loads(command("devices", name, "--json").out)["figures"]
    assert figures["bytes_per_s"]["how"] == "datasheet"
    assert figures["bytes_per_s"]["source"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("H1000", "did you mean h100"),
        ("nvidia h20", "did you mean NVIDIA H200"),
        ("abacus", "known are cpu, "),
        ("cuda", "cuda:0 is not in this machine"),
    ],
)
def test_an_unknown_name_is_bad_input(command, no_gpu, name: str, message: str) -> None:
    done = command("devices", name, "--json")
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_listing_needs_no_torch() -> None:
    for arguments in (["devices", "--json"], ["devices", "cpu", "--json"], ["plugins", "--json"]):
        done = without_torch(*arguments)
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
