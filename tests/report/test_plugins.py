from __future__ import annotations

from autoplan.plugins import PluginStatus
from autoplan.report.plugins import plugins_document, plugins_text

GOOD = PluginStatus("acme", "1.5", "autoplan-acme", None, ("npu1", "npu2"), ("acme-gather",))
BROKEN = PluginStatus("zig", "0.1", "autoplan-zig", "ImportError: libzig.so.4 [cannot] open")
HALF = PluginStatus("half", "2", "autoplan-half", "the device name 'cpu' is claimed", ("npu3",))


def test_plugins_are_listed_with_what_they_yield_and_errors_are_whole() -> None:
    text = plugins_text((GOOD, BROKEN, HALF))
    table = text.split("2 plugins with an error")[0]
    rows = {line.split()[0]: line for line in table.splitlines() if line.startswith("  ")}
    assert "devices npu1, npu2; cost models acme-gather" in rows["acme"]
    assert "nothing: an error" in rows["zig"]
    assert "npu3; an error" in rows["half"]
    assert "2 plugins with an error\n" in text
    assert "zig (autoplan-zig 0.1): ImportError: libzig.so.4 [cannot] open" in text


def test_without_errors_there_is_no_section_of_errors() -> None:
    assert "error" not in plugins_text((GOOD,))
    assert "no plugins are installed" in plugins_text(())


def test_the_document_has_null_for_no_error() -> None:
    good, broken = plugins_document((GOOD, BROKEN))["plugins"]
    assert good == {
        "name": "acme",
        "distribution": "autoplan-acme",
        "version": "1.5",
        "devices": ["npu1", "npu2"],
        "cost_models": ["acme-gather"],
        "error": None,
    }
    assert broken["error"] == BROKEN.error
