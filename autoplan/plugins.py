"""The plugins of this environment: loaded one by one, so that a broken one costs itself and nothing else. No torch.

Entry points of group ``autoplan`` are loaded in the order of their names; each hook is called and exhausted on its own. What
fails is kept as text in its `PluginStatus` and said once through logging; with ``AUTOPLAN_STRICT_PLUGINS=1`` it raises.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from autoplan import hookspecs
from autoplan.cost import CostModel
from autoplan.device import DeviceProfile
from autoplan.errors import PluginError
from autoplan.profiles import check_profile

STRICT_VARIABLE = "AUTOPLAN_STRICT_PLUGINS"
"""Set to 1, a plugin that fails raises PluginError instead of being left out."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """One entry point and what came of it.

    Attributes:
        name: the entry point's; version, distribution: of the package that declares it.
        error: why it was left out, or None.
        devices: names of the profiles it yielded; cost_models: of its cost models.
    """

    name: str
    version: str
    distribution: str
    error: str | None = None
    devices: tuple[str, ...] = ()
    cost_models: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """For messages: ``acme (autoplan-acme 1.0)``."""
        return f"{self.name} ({self.distribution} {self.version})"


@dataclass(frozen=True, slots=True)
class Registry:
    """What the plugins yielded.

    Attributes:
        plugins: every entry point, failed ones too, by name.
        devices: profiles by name, in the order of their plugins.
        cost_models: in the order of their plugins.
        claims: names that several plugins claim, and those plugins' labels; none of them gets the name.
    """

    plugins: tuple[PluginStatus, ...]
    devices: Mapping[str, DeviceProfile]
    cost_models: tuple[CostModel, ...]
    claims: Mapping[str, tuple[str, ...]]

    @property
    def failed(self) -> tuple[PluginStatus, ...]:
        """Plugins that were left out or lost a name."""
        return tuple(plugin for plugin in self.plugins if plugin.error)

    def find(self, name: str) -> DeviceProfile | None:
        """The profile with a name or an alias; letter case, blanks and punctuation of aliases do not matter.

        Raises:
            PluginError: several plugins claim the name.
        """
        wanted = _plain(name)
        if wanted in self.claims:
            raise PluginError(_claim(wanted, self.claims[wanted]))
        for profile in self.devices.values():
            if wanted == profile.name:
                return profile
        for profile in self.devices.values():
            if wanted in {_plain(alias) for alias in profile.aliases}:
                return profile
        return None


def registry(*, strict: bool | None = None) -> Registry:
    """The installed plugins, loaded at the first call.

    Raises:
        PluginError: in strict mode, when one fails; without ``strict`` the environment decides.
    """
    return _installed(os.environ.get(STRICT_VARIABLE) == "1" if strict is None else strict)


@cache
def _installed(strict: bool) -> Registry:
    return load(entry_points(group=hookspecs.PROJECT), strict=strict)


def load(points: Iterable[EntryPoint], *, strict: bool = False) -> Registry:
    """Loads plugins in the order of their names.

    Args:
        points: entry points, each naming a module or object with hook implementations.
        strict: raise at the first failure instead of recording it.

    Raises:
        PluginError: in strict mode, naming the plugin, its distribution and the original error.
    """
    outcomes = [_load_one(point) for point in sorted(set(points), key=lambda p: (p.name, p.value))]
    claimed: dict[str, list[str]] = {}
    for status, profiles, _ in outcomes:
        for profile in profiles:
            claimed.setdefault(profile.name, []).append(status.label)
    claims = {name: tuple(labels) for name, labels in claimed.items() if len(labels) > 1}

    statuses = []
    for status, _, _ in outcomes:
        lost = [name for name in status.devices if name in claims]
        if lost:
            problem = "; ".join(_claim(name, claims[name]) for name in lost)
            kept = tuple(name for name in status.devices if name not in claims)
            status = replace(status, error=problem, devices=kept)
        if status.error:
            message = f"plugin {status.label}: {status.error}"
            if strict:
                raise PluginError(message)
            _logger.warning("%s", message)
        statuses.append(status)
    return Registry(
        plugins=tuple(statuses),
        devices={
            profile.name: profile
            for _, profiles, _ in outcomes
            for profile in profiles
            if profile.name not in claims
        },
        cost_models=tuple(model for _, _, models in outcomes for model in models),
        claims=claims,
    )


def _load_one(
    point: EntryPoint,
) -> tuple[PluginStatus, tuple[DeviceProfile, ...], tuple[CostModel, ...]]:
    """One plugin: its status, and all that it yields or, after any failure, nothing."""
    status = PluginStatus(
        name=point.name,
        version=point.dist.version if point.dist else "unknown",
        distribution=point.dist.name if point.dist else "unknown distribution",
    )
    try:
        hooks = _register(point.load(), point.name)
        profiles = tuple(
            _own(profile, point.name) for hook in hooks["autoplan_devices"] for profile in hook()
        )
        names = [profile.name for profile in profiles]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PluginError(f"it yields the profile '{twice[0]}' twice")
        models = tuple(
            _checked_model(model) for hook in hooks["autoplan_cost_models"] for model in hook()
        )
    except (Exception, SystemExit) as error:  # whatever a stranger's code raises, is recorded
        _logger.debug("plugin %s failed", status.label, exc_info=True)
        text = str(error) if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"
        return replace(status, error=text), (), ()
    status = replace(
        status, devices=tuple(names), cost_models=tuple(model.name for model in models)
    )
    return status, profiles, models


def _register(plugin: object, name: str) -> Mapping[str, list[Callable[[], Iterable[Any]]]]:
    """The plugin's implementations by hook, from a manager of its own: nothing of a bad one stays behind.

    Raises:
        PluginError: a function with a hook's name lacks the mark.
        pluggy.PluginValidationError: an implementation with wrong arguments or of an unknown hook.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name)
    manager.check_pending()
    found: dict[str, list[Callable[[], Iterable[Any]]]] = {}
    specified = inspect.getmembers(hookspecs, lambda member: hasattr(member, "autoplan_spec"))
    for hook, _ in specified:
        found[hook] = [impl.function for impl in getattr(manager.hook, hook).get_hookimpls()]
        if not found[hook] and getattr(plugin, hook, None) is not None:
            raise PluginError(f"it defines {hook} without the mark @autoplan.hookimpl")
    return found


def _own(profile: DeviceProfile, plugin: str) -> DeviceProfile:
    """The profile, checked, with the plugin's name on it. Raises PluginError when it makes no sense."""
    check_profile(profile)
    return replace(profile, plugin=plugin)


def _checked_model(model: object) -> CostModel:
    """The cost model, if it is one. Raises PluginError otherwise."""
    if not isinstance(model, CostModel) or not isinstance(model.name, str) or not model.name:
        raise PluginError(
            f"a cost model needs a name and the methods accuracy and estimate; "
            f"{type(model).__name__} ({model!r:.80}) lacks one"
        )
    return model


def _claim(name: str, labels: tuple[str, ...]) -> str:
    return f"the device name '{name}' is claimed by {' and '.join(labels)}; uninstall one of them"


def _plain(name: str) -> str:
    """A name without what may vary: ``NVIDIA A100-SXM4-80GB`` becomes ``nvidia_a100_sxm4_80gb``."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
