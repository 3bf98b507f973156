"""Every convolution and model of PyG is either tried (`tests/execute/test_every_layer.py`) or lacks a package here."""

import pytest
from torch_geometric.nn import conv, models

from tests.layers.registry import CASES, CONVERSIONS, LACKING


@pytest.mark.parametrize("module", [conv, models])
def test_none_is_left_out(module) -> None:
    assert set(module.__all__) - CASES.keys() - LACKING.keys() == CONVERSIONS & set(module.__all__)


def test_no_others_are_listed() -> None:
    known = {*conv.__all__, *models.__all__}
    assert not {*CASES, *LACKING} - known
    assert not CASES.keys() & LACKING.keys()


@pytest.mark.parametrize("name", LACKING)
def test_a_package_is_lacking(name: str) -> None:
    package, ask = LACKING[name]
    with pytest.raises(ImportError, match=package):
        ask()


def test_heavy_ops_of_nine_in_ten_are_shared_out() -> None:
    """What `partly` says of each is checked where it runs."""
    general = [case for case in CASES.values() if not case.follows]
    assert sum(not case.partly for case in general) >= 0.9 * len(general)
    assert len(general) >= len(CASES) - 2
