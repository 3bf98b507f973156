"""From a model, a loss and a graph to a program and an OpGraph. Needs torch (its modules do, this page does not).

The package is also the public function ``autoplan.trace(model, graph, loss=None)``: importing any module of a package
sets the package's name on its parent, so ``autoplan.trace`` is always this module, and the module is callable.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """This module, which answers a call as `autoplan.api.trace`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # By name: the api is a layer above this package.
        return import_module("autoplan.api").trace(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
