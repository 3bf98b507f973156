"""The halo model of `GraphSpec` beside METIS on real graphs: modelled over measured, of the cut and of the halo.

Run: ``python benchmarks/halo_model.py DATA`` where DATA has a folder with ``graph.npz`` (``adj_indptr``, ``adj_indices``) for each
graph. Edges are taken in both directions; parts have at least 100 nodes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from autoplan.graphspec import GraphSpec
from autoplan.partition.measure import measure
from autoplan.partition.metis import partition_nodes
from autoplan.partition.model import halo_rows

PARTS = (2, 4, 8, 16, 32)
LEAST_NODES = 100


def compare(path: Path) -> list[tuple[int, float, float]]:
    """For each number of parts: modelled over measured cut, and halo."""
    stored = np.load(path)
    starts = stored["adj_indptr"]
    nodes = len(starts) - 1
    pairs = np.stack([np.repeat(np.arange(nodes), np.diff(starts)), stored["adj_indices"]])
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1).astype(np.int64)
    spec = GraphSpec(nodes=nodes, edges=edges.shape[1], features=1)
    found = []
    for parts in PARTS:
        if nodes / parts < LEAST_NODES:
            continue
        cut = measure(partition_nodes(edges, nodes, parts), {"edge": edges}, parts=parts)
        halo = sum(shard.halo for shard in cut.shards) / parts
        modelled = spec.cut_share(parts) * spec.total_edges
        found.append(
            (parts, modelled / cut.cut_edges, halo_rows(spec, "node", nodes, parts) / halo)
        )
    return found


def main(directory: str) -> None:
    """Prints a line for each graph and number of parts."""
    for path in sorted(Path(directory).glob("*/graph.npz")):
        for parts, cut, halo in compare(path):
            print(f"{path.parent.name:16} {parts:3} parts  cut {cut:5.2f}  halo {halo:5.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
