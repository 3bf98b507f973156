from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoplan.search.fingerprint import (
    devices_fingerprint,
    digest,
    graph_fingerprint,
    model_fingerprint,
)
from tests.search.small import cluster, gcn, profile


def test_order_of_filling_does_not_matter():
    assert digest({"a": 1, "b": 2.5}) == digest({"b": 2.5, "a": 1})


def test_the_hash_seed_does_not_matter():
    root = Path(__file__).resolve().parents[2]
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.search.small import gcn\n"
        "from autoplan.search.fingerprint import model_fingerprint\n"
        "print(model_fingerprint(gcn()))\n"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_a_model_is_its_program_and_shapes():
    assert model_fingerprint(gcn()) == model_fingerprint(gcn())
    assert model_fingerprint(gcn()) != model_fingerprint(gcn(hidden=17))
    graph = gcn()
    moved = replace(graph, ops=tuple(replace(op, where="other.py:9") for op in graph.ops))
    assert model_fingerprint(moved) == model_fingerprint(graph)


def test_a_graph_is_its_attributes_sizes_and_content():
    form = {"x": ("float32", (10, 4))}
    one = graph_fingerprint(form, {"node": 10, "edge": 20}, "abc")
    assert one == graph_fingerprint(form, {"edge": 20, "node": 10}, "abc")
    assert one != graph_fingerprint(form, {"node": 10, "edge": 21}, "abc")
    assert one != graph_fingerprint(form, {"node": 10, "edge": 20}, "abd")


def test_devices_are_profiles_memory_and_links():
    assert devices_fingerprint(cluster(2)) == devices_fingerprint(cluster(2))
    assert devices_fingerprint(cluster(2)) != devices_fingerprint(cluster(3))
    assert devices_fingerprint(cluster(2)) != devices_fingerprint(cluster(2, latency=1.0))
    renamed = cluster(2, kind=profile(title="another title"))
    assert devices_fingerprint(cluster(2)) == devices_fingerprint(renamed)


def test_what_is_not_data_is_refused():
    with pytest.raises(TypeError, match="object"):
        digest(object())
