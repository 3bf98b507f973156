import subprocess
import sys
import textwrap
from importlib.metadata import Distribution, EntryPoint, distributions

import pytest

from autoplan.errors import PluginError
from autoplan.plugins import load, registry

HEADER = """
import autoplan
from autoplan.cost import Cost
from autoplan.device import DeviceProfile


def device(name, **figures):
    return DeviceProfile(name=name, kind="npu", title=name, **figures)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Writes a distribution with one entry point; gives the entry points of all that were written."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, code: str) -> list[EntryPoint]:
        module = f"testplugin_{tmp_path.name}_{name}".replace("-", "_")
        (tmp_path / f"{module}.py").write_text(HEADER + textwrap.dedent(code))
        info = tmp_path / f"autoplan_{name}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: autoplan-{name}\nVersion: 1.5\n"
        )
        (info / "entry_points.txt").write_text(f"[autoplan]\n{name} = {module}\n")
        found: list[Distribution] = list(distributions(path=[str(tmp_path)]))
        return [point for each in found for point in each.entry_points]

    return write


GOOD = """
@autoplan.hookimpl
def autoplan_devices():
    yield device("good_one", bytes_per_s=1e12)
    yield device("good_two")


class Model:
    name = "good-model"

    def accuracy(self, work, profile):
        return None

    def estimate(self, work, profile):
        return None


@autoplan.hookimpl
def autoplan_cost_models():
    return [Model()]
"""

BAD = {
    "import": ("raise ImportError('libzig.so.4: cannot open')", "ImportError: libzig.so.4"),
    "exit": ("raise SystemExit('no driver')", "SystemExit: no driver"),
    "hook": (
        """
        @autoplan.hookimpl
        def autoplan_devices():
            yield device("half")
            raise RuntimeError("driver 9.1 too old")
        """,
        "RuntimeError: driver 9.1 too old",
    ),
    "model_hook": (
        """
        @autoplan.hookimpl
        def autoplan_devices():
            yield device("half")

        @autoplan.hookimpl
        def autoplan_cost_models():
            raise RuntimeError("no table")
        """,
        "RuntimeError: no table",
    ),
    "argument": (
        "@autoplan.hookimpl\ndef autoplan_devices(cluster):\n    return []",
        "PluginValidationError",
    ),
    "unknown_hook": ("@autoplan.hookimpl\ndef autoplan_device():\n    return []", "unknown hook"),
    "unmarked": ("def autoplan_devices():\n    return []", "without the mark @autoplan.hookimpl"),
    "getattr": (
        "def __getattr__(name):\n    raise RuntimeError('driver 9.1 too old')",
        "RuntimeError: driver 9.1 too old",
    ),
    "none": (
        "@autoplan.hookimpl\ndef autoplan_devices():\n    return None",
        "TypeError: 'NoneType' object is not iterable",
    ),
    "nan": (
        "@autoplan.hookimpl\ndef autoplan_devices():\n"
        "    yield device('half', bytes_per_s=float('nan'))",
        "profile 'half': bytes_per_s is nan",
    ),
    "negative": (
        "@autoplan.hookimpl\ndef autoplan_devices():\n    yield device('half', memory_bytes=-1)",
        "profile 'half': memory_bytes is -1",
    ),
    "type": (
        "@autoplan.hookimpl\ndef autoplan_devices():\n    yield 'half'",
        "must be an autoplan.DeviceProfile, not str",
    ),
    "twice": (
        "@autoplan.hookimpl\ndef autoplan_devices():\n    return [device('half')] * 2",
        "yields the profile 'half' twice",
    ),
    "no_model": (
        "@autoplan.hookimpl\ndef autoplan_cost_models():\n    yield device('half')",
        "a cost model needs a name and the methods",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_plugin_costs_only_itself(install, caplog, name):
    code, message = BAD[name]
    install(name, code)
    points = install("zgood", GOOD)
    found = load(points)
    bad, good = found.plugins
    assert message in bad.error
    assert (bad.name, bad.distribution, bad.version) == (name, f"autoplan-{name}", "1.5")
    assert bad.devices == bad.cost_models == ()
    assert good.error is None
    assert good.devices == ("good_one", "good_two")
    assert good.cost_models == ("good-model",)
    assert list(found.devices) == ["good_one", "good_two"]
    assert found.devices["good_one"].plugin == "zgood"
    assert [model.name for model in found.cost_models] == ["good-model"]
    (record,) = caplog.records
    for part in (name, f"autoplan-{name} 1.5", message):
        assert part in record.getMessage()


def test_strict_mode_raises_with_the_original_error(install):
    points = install("broken", BAD["import"][0])
    with pytest.raises(PluginError, match=r"broken \(autoplan-broken 1.5\): ImportError: libzig"):
        load(points, strict=True)


def test_two_plugins_that_claim_a_name_are_both_named(install):
    code = "@autoplan.hookimpl\ndef autoplan_devices():\n    yield device('shared')\n    yield device('{0}_own')"
    install("second", code.format("second"))
    points = install("first", code.format("first"))
    found = load(points)
    assert sorted(found.devices) == ["first_own", "second_own"]
    for plugin in found.plugins:
        assert "'shared' is claimed by first (autoplan-first 1.5) and second" in plugin.error
        assert plugin.devices == (f"{plugin.name}_own",)
    with pytest.raises(PluginError, match=r"claimed by first .* and second .*; uninstall one"):
        found.find("shared")
    with pytest.raises(PluginError, match="claimed by"):
        load(points, strict=True)


def test_plugins_load_in_the_order_of_their_names(install):
    for name in ("c", "a", "b"):
        points = install(
            name, f"@autoplan.hookimpl\ndef autoplan_devices():\n    yield device('d_{name}')"
        )
    assert [plugin.name for plugin in load(reversed(points)).plugins] == ["a", "b", "c"]


def test_the_built_in_plugins_load():
    found = registry()
    built_in = {
        plugin.name: plugin for plugin in found.plugins if plugin.distribution == "autoplan"
    }
    assert sorted(built_in) == ["cpu", "gpu", "ipu", "npu", "tpu"]
    assert all(plugin.error is None and plugin.devices for plugin in built_in.values())
    assert registry() is found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu", "cpu"),
        ("A100", "a100_sxm4_80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100_sxm4_40gb"),
        ("NVIDIA H200", "h200_sxm"),
        ("bow", "ipu_bow"),
        ("a1000", None),
    ],
)
def test_names_and_aliases_are_found(text, name):
    found = registry().find(text)
    assert (found.name if found else None) == name


def test_no_alias_means_two_devices():
    claimed = {}
    for profile in registry().devices.values():
        for alias in (profile.name, *profile.aliases):
            assert registry().find(alias) is profile, f"{alias}: also {claimed.get(alias)}"
            claimed[alias] = profile.name


def test_every_figure_of_a_built_in_profile_has_an_origin():
    for profile in registry().devices.values():
        for field in ("memory_bytes", "bytes_per_s", "gather_bytes_per_s", "launch_seconds"):
            value = getattr(profile, field)
            if value is not None:
                assert profile.figures[field].value == value, (profile.name, field)
        for dtype, value in profile.flop_per_s.items():
            assert profile.figures[f"flop_per_s.{dtype}"].value == value
        for key, figure in profile.figures.items():
            assert figure.how, (profile.name, key)
            assert figure.source or (figure.how == "assumed" and figure.note), (profile.name, key)


def test_loading_the_plugins_imports_no_torch():
    code = "import sys; from autoplan.plugins import registry; registry(); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
