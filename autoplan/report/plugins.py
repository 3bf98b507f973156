"""The plugins of this environment as plain text and as a document. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from autoplan.plugins import PluginStatus
from autoplan.report.tables import plain_table
from autoplan.report.text import render
from autoplan.report.units import count


def plugins_text(plugins: Sequence[PluginStatus]) -> str:
    """Each plugin with its version and what it yields; then the errors of those that failed, whole."""
    if not plugins:
        return "no plugins are installed (entry-point group 'autoplan')\n"
    table = plain_table("plugin", "distribution", "version", "yields")
    for plugin in plugins:
        table.add_row(plugin.name, plugin.distribution, plugin.version, _yields(plugin))
    sections: list[tuple[str, RenderableType]] = [("Plugins", table)]
    failed = [plugin for plugin in plugins if plugin.error]
    if failed:
        lines = "\n".join(f"{plugin.label}: {plugin.error}" for plugin in failed)
        sections.append((f"{count(len(failed), 'plugin')} with an error", Text(lines)))
    return render(*sections)


def _yields(plugin: PluginStatus) -> str:
    kinds = (("devices", plugin.devices), ("cost models", plugin.cost_models))
    given = "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds if names)
    if plugin.error:
        return f"{given}; an error, see below" if given else "nothing: an error, see below"
    return given or "nothing"


def plugins_document(plugins: Sequence[PluginStatus]) -> dict[str, Any]:
    """The same in JSON's types; ``error`` is null where there is none."""
    return {
        "plugins": [
            {
                "name": plugin.name,
                "distribution": plugin.distribution,
                "version": plugin.version,
                "devices": list(plugin.devices),
                "cost_models": list(plugin.cost_models),
                "error": plugin.error,
            }
            for plugin in plugins
        ]
    }
