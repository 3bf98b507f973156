"""What `import autoplan` offers, and what it must not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import autoplan


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_the_public_names_are_sorted_and_complete() -> None:
    assert autoplan.__all__ == sorted(autoplan.__all__)
    assert set(autoplan.__all__) == {
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
    }
    assert set(autoplan.__all__) <= set(dir(autoplan))


def test_importing_autoplan_imports_no_torch() -> None:
    done = run("import autoplan, sys; assert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_names_that_are_data_import_no_torch() -> None:
    names = ["Cluster", "DeviceProfile", "GraphStats", "OpGraph", "errors", "trace"]
    done = run(
        f"import autoplan, sys; [getattr(autoplan, n) for n in {names}]; assert 'torch' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = autoplan.optimise


def test_trace_is_callable_before_and_after_the_package_is_imported() -> None:
    assert callable(autoplan.trace)
    import autoplan.trace as package

    assert package is autoplan.trace


def test_the_version_is_that_of_the_distribution() -> None:
    assert autoplan.__version__[0].isdigit()
