from __future__ import annotations

from autoplan.device import DeviceProfile, Figure
from autoplan.report.devices import (
    Listed,
    device_document,
    device_text,
    devices_document,
    devices_text,
)

LONG = "https://acme.example/" + "data/" * 30 + "npu2.pdf"
NPU = DeviceProfile(
    name="acme_npu2",
    kind="npu",
    title="Acme NPU 2",
    vendor="Acme",
    flop_per_s={"float32": 5e13, "bfloat16": 2e14},
    memory_bytes=32 * 2**30,
    bytes_per_s=1.2e12,
    launch_seconds=5e-6,
    price_usd=9000.0,
    figures={
        "flop_per_s.float32": Figure(5e13, "datasheet", LONG),
        "memory_bytes": Figure(32 * 2**30, "datasheet", LONG, "of [HBM]"),
        "launch_seconds": Figure(5e-6, "assumed", "", "no source found"),
        "clock": Figure(1.5e9, "measured", "a bench"),
    },
    plugin="acme",
    aliases=("npu2", "Acme NPU2-32G"),
)
CPU = DeviceProfile(name="cpu", kind="cpu", title="this CPU", torch_device="cpu", plugin="cpu")
GPU = DeviceProfile(name="gpu9", kind="gpu", title="GPU 9", torch_device="cuda", plugin="gpu")
ALL = (Listed(NPU, False), Listed(CPU, True), Listed(GPU, False))


def test_profiles_are_listed_by_kind_with_where_they_run() -> None:
    text = devices_text(ALL)
    assert [text.index(f"{kind}\n") for kind in ("CPU", "GPU", "NPU")] == sorted(
        text.index(f"{kind}\n") for kind in ("CPU", "GPU", "NPU")
    )
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert rows["cpu"].split() == ["cpu", "-", "-", "-", "-", "-", "here", "cpu"]
    assert rows["gpu9"].split()[-2:] == ["elsewhere", "gpu"]
    for shown in ("32.0 GiB", "1.20 TB/s", "50.0 T", "200 T bfloat16", "plan only", "acme"):
        assert shown in rows["acme_npu2"]
    assert "acme_npu2: npu2, Acme NPU2-32G" in text


def test_every_figure_of_one_profile_has_its_origin() -> None:
    text = device_text(ALL[0])
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert rows["flop_per_s.float32"].split() == [
        "flop_per_s.float32",
        "50.0",
        "TFLOP/s",
        "datasheet",
        "1",
    ]
    assert "of [HBM]" in rows["memory_bytes"]
    assert "not told" in rows["flop_per_s.bfloat16"]
    assert "no source found" in rows["launch_seconds"]
    assert rows["clock"].split() == ["clock", "1.50", "G", "measured", "2"]
    assert "$9,000" in rows["price_usd"]
    # A long source is folded, not cut.
    assert LONG in "".join(line.strip() for line in text.splitlines())


def test_the_document_of_one_profile_has_every_figure() -> None:
    document = device_document(ALL[0])
    assert document["memory_bytes"] == 32 * 2**30
    assert document["gather_bytes_per_s"] is None
    assert list(document["figures"]) == [
        "flop_per_s.float32",
        "flop_per_s.bfloat16",
        "memory_bytes",
        "bytes_per_s",
        "launch_seconds",
        "price_usd",
        "clock",
    ]
    assert document["figures"]["memory_bytes"] == {
        "value": 32 * 2**30,
        "how": "datasheet",
        "source": LONG,
        "note": "of [HBM]",
    }
    assert document["figures"]["bytes_per_s"]["how"] == "not told"


def test_the_documents_of_all_say_what_is_here() -> None:
    documents = devices_document(ALL)["devices"]
    assert [(each["name"], each["here"]) for each in documents] == [
        ("acme_npu2", False),
        ("cpu", True),
        ("gpu9", False),
    ]
