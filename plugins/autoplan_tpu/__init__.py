"""autoplan's built-in plugin for Google's TPUs: profiles from ``profiles.toml``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from autoplan.device import DeviceProfile
from autoplan.hookspecs import hookimpl
from autoplan.profiles import read_profiles


@hookimpl
def autoplan_devices() -> Iterable[DeviceProfile]:
    """Yields the profiles of the file."""
    yield from read_profiles(files(__name__) / "profiles.toml")
