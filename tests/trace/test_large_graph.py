"""Tracing makes nothing as long as the graph's edges, whatever their layout (`make accept` traces ten million of them)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import GCN

from autoplan.trace.step import trace_step
from benchmarks.accept.large_graph import CLASSES, FEATURES, random_graph

NODES, EDGES = 30_000, 500_000


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that any op makes in memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.op = 0, ""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {leaf.untyped_storage().data_ptr() for leaf in args if isinstance(leaf, Tensor)}
        for made in result if isinstance(result, list | tuple) else [result]:
            if isinstance(made, Tensor) and made.layout == torch.strided:
                own = made.untyped_storage()
                if own.data_ptr() not in given and own.nbytes() > self.bytes:
                    self.bytes, self.op = own.nbytes(), str(func)
        return result


@pytest.mark.parametrize("by_rows", [False, True], ids=["rows-of-ends", "list-of-pairs"])
def test_nothing_is_made_for_each_edge(by_rows: bool) -> None:
    graph = random_graph(NODES, EDGES, by_rows=by_rows)
    with Largest() as largest:
        step = trace_step(GCN(FEATURES, 8, 2, CLASSES), graph)
    assert step.program is not None, step.reason
    one_end = 8 * EDGES
    assert 0 < largest.bytes < one_end / 3, largest.op
