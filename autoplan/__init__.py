"""autoplan: how should this model and this graph be spread over these devices, and why.

The names below are imported when they are first used, so that importing autoplan does not import torch.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoplan import errors
    from autoplan.api import Plan, optimize, trace, verify
    from autoplan.device import Cluster, DeviceProfile
    from autoplan.graphspec import GraphSpec
    from autoplan.graphstats import GraphStats
    from autoplan.hookspecs import hookimpl
    from autoplan.opgraph import OpGraph

    __version__: str

__all__ = [
    "Cluster",
    "DeviceProfile",
    "GraphSpec",
    "GraphStats",
    "OpGraph",
    "Plan",
    "errors",
    "hookimpl",
    "optimize",
    "trace",
    "verify",
]

_HOMES = {
    "Cluster": "autoplan.device",
    "DeviceProfile": "autoplan.device",
    "GraphSpec": "autoplan.graphspec",
    "GraphStats": "autoplan.graphstats",
    "OpGraph": "autoplan.opgraph",
    "Plan": "autoplan.api",
    "hookimpl": "autoplan.hookspecs",
    "optimize": "autoplan.api",
    "verify": "autoplan.api",
}
# `errors` is a module; `trace` is the package autoplan.trace, which is callable (see there).
_MODULES = ("errors", "trace")

# Type checkers see the imports above instead, so that a misspelt name is an error to them.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the public name that is asked for. Raises AttributeError for any other."""
        if name in _MODULES:
            return import_module(f"autoplan.{name}")
        if name in _HOMES:
            before = random.getstate()  # packages draw from it when they are imported (rich does)
            try:
                value = getattr(import_module(_HOMES[name]), name)
            finally:
                random.setstate(before)
            globals()[name] = value
            return value
        if name == "__version__":
            return import_module("autoplan.version").version()
        raise AttributeError(f"module 'autoplan' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, whether imported yet or not."""
    return sorted({*globals(), *__all__})
