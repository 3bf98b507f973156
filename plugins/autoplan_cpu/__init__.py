"""autoplan's built-in plugin for CPUs: this machine as ``cpu``, and server processors from ``profiles.toml``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from autoplan.device import DeviceProfile
from autoplan.hookspecs import hookimpl
from autoplan.profiles import read_profiles
from autoplan_cpu.host import host_profile


@hookimpl
def autoplan_devices() -> Iterable[DeviceProfile]:
    """Yields this machine first, then the profiles of the file."""
    yield host_profile()
    yield from read_profiles(files(__name__) / "profiles.toml")
