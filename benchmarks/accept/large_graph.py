"""Traces a graph of ten million edges in a process of its own, and prints what that took as JSON (torch).

The graph is filled piece by piece and a small one is traced first, so that what grows afterwards is what tracing takes.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from autoplan.trace.step import trace_step

NODES, EDGES, FEATURES, CLASSES = 1_000_000, 10_000_000, 16, 5
PIECE = 100_000


def filled(shape: tuple[int, ...], below: int, generator: torch.Generator) -> Tensor:
    """Random ids, made a piece at a time along the longest dimension."""
    made = torch.empty(shape, dtype=torch.int64)
    along = shape.index(max(shape))
    for piece in torch.split(made, PIECE, dim=along):
        piece.random_(0, below, generator=generator)
    return made


def random_graph(nodes: int, edges: int, *, by_rows: bool = False) -> Data:
    """Features, classes, a mask and weighted edges; ``by_rows``: the edges are a view of a list of pairs, as files hold them."""
    generator = torch.Generator().manual_seed(0)
    pairs = (edges, 2) if by_rows else (2, edges)
    ends = filled(pairs, nodes, generator)
    return Data(
        x=torch.empty(nodes, FEATURES).normal_(generator=generator),
        y=filled((nodes,), CLASSES, generator),
        train_mask=torch.empty(nodes, dtype=torch.bool).bernoulli_(0.5, generator=generator),
        edge_index=ends.t() if by_rows else ends,
        edge_weight=torch.empty(edges).uniform_(generator=generator),
    )


def resident_bytes() -> int:
    """Of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    """Prints one JSON object: bytes of the graph, bytes over it, seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--by-rows", action="store_true")
    by_rows = parser.parse_args().by_rows
    torch.set_num_threads(1)
    graph = random_graph(NODES, EDGES, by_rows=by_rows)
    model = GCN(FEATURES, 16, 3, CLASSES)
    trace_step(model, random_graph(300, 900, by_rows=by_rows))
    before, started = resident_bytes(), time.process_time()
    step = trace_step(model, graph)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {
                "graph_bytes": sum(value.nbytes for _, value in graph),
                "over_bytes": peak - before,
                "seconds": seconds,
                "reason": step.reason,
            }
        )
    )


if __name__ == "__main__":
    main()
