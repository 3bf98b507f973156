from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BROKEN = {
    "import": ("print('hello')\nraise ImportError('libzig.so.4')", "ImportError: libzig.so.4"),
    "syntax": ("def broken(:", "SyntaxError"),
    "hook": (
        "import autoplan\n@autoplan.hookimpl\ndef autoplan_devices():\n    raise OSError('no driver')",
        "OSError: no driver",
    ),
    "nonsense": (
        "import autoplan\n"
        "from autoplan.device import DeviceProfile, Figure\n"
        "@autoplan.hookimpl\n"
        "def autoplan_devices():\n"
        "    nan = Figure(float('nan'), 'measured', '')\n"
        "    yield DeviceProfile('odd', 'npu', 'Odd', figures={'clock': nan})\n",
        "the figure clock is nan",
    ),
}


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the broken plugins are installed."""
    for name, (code, _) in BROKEN.items():
        (tmp_path / f"broken_{name}.py").write_text(code, encoding="utf-8")
        info = tmp_path / f"autoplan_{name}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: autoplan-{name}\nVersion: 1.5\n", encoding="utf-8"
        )
        (info / "entry_points.txt").write_text(
            f"[autoplan]\n{name} = broken_{name}\n", encoding="utf-8"
        )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autoplan", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("strict", ["0", "1"])
def test_broken_plugins_are_listed_with_version_and_error(installed, strict: str) -> None:
    done = run({**installed, "AUTOPLAN_STRICT_PLUGINS": strict}, "plugins", "--json")
    assert done.returncode == 0, done.stderr
    listed = {each["name"]: each for each in json.loads(done.stdout)["plugins"]}
    for name, (_, error) in BROKEN.items():
        assert listed[name]["distribution"] == f"autoplan-{name}"
        assert listed[name]["version"] == "1.5"
        assert listed[name]["devices"] == []
        assert error in listed[name]["error"]
    assert listed["cpu"]["error"] is None
    assert "cpu" in listed["cpu"]["devices"]
    assert "hello" in done.stderr


def test_broken_plugins_take_no_device_of_others_with_them(installed) -> None:
    done = run(installed, "devices", "--json")
    assert done.returncode == 0, done.stderr
    names = {each["name"] for each in json.loads(done.stdout)["devices"]}
    assert {"cpu", "h200_sxm", "tpu_v4"} <= names
    done = run(installed, "devices", "odd")
    assert done.returncode == 2
    assert "Plugins that failed: hook, import, nonsense, syntax (see `autoplan plugins`)" in (
        done.stderr
    )
    assert "Traceback" not in done.stderr


def test_all_is_well_in_this_environment(command) -> None:
    done = command("plugins")
    assert (done.code, done.err) == (0, "")
    assert "gpu      autoplan" in done.out
