"""The version of the installed distribution."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """As in the distribution's metadata; ``0+unknown`` where only the source is on the path."""
    try:
        return metadata.version("autoplan")
    except metadata.PackageNotFoundError:
        return "0+unknown"
