"""The graphs of the benchmark, each made from a seed or read from the shared data."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch_geometric.data import Data, HeteroData

from autoplan.datasets import tu_graphs
from autoplan.errors import AutoplanError

NODES, EDGES, FEW_EDGES = 60_000, 700_000, 140_000
FEATURES, CLASSES, COMMUNITIES = 256, 16, 64
RELATIONS = 8
GRAPHS_PER_STEP = 256

_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
_INSIDE = 0.8
"""Share of edges that stay in their community."""
_SKEW = 1.6
"""Ends are drawn at ``u ** _SKEW`` of their community, u uniform: a power law of expected degrees."""
_ISOLATED = 0.01
_DUPLICATES = 1_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a community graph: nodes, directed edges, features of a node, classes."""

    nodes: int = NODES
    edges: int = EDGES
    features: int = FEATURES
    classes: int = CLASSES


def community(sizes: Sizes | None = None, *, seed: int = 0) -> Data:
    """A directed graph of 64 communities with skewed degrees, isolated nodes and duplicate edges.

    Returns:
        ``x`` (float32 [N, features]), ``edge_index`` (int64 [2, E]), ``y`` (int64 [N], follows the community) and
        ``train_mask`` (half of the nodes).
    """
    sizes = sizes or Sizes()
    rng = np.random.default_rng(seed)
    groups, edges = _community_edges(sizes.nodes, sizes.nodes, sizes.edges, rng)
    return Data(
        x=torch.from_numpy(rng.standard_normal((sizes.nodes, sizes.features), dtype=np.float32)),
        edge_index=torch.from_numpy(edges),
        y=torch.from_numpy(groups % sizes.classes),
        train_mask=torch.from_numpy(rng.random(sizes.nodes) < 0.5),
    )


def relational(sizes: Sizes | None = None, *, seed: int = 0, empty: int | None = None) -> Data:
    """`community` with ``edge_type`` (int64 [E]): one of eight relations, of unequal frequency; ``empty`` never occurs."""
    graph = community(sizes, seed=seed)
    rng = np.random.default_rng(seed + 1)
    share = np.arange(RELATIONS, 0, -1, dtype=np.float64)
    if empty is not None:
        share[empty] = 0
    kinds = rng.choice(RELATIONS, graph.num_edges, p=share / share.sum())
    graph.edge_type = torch.from_numpy(kinds.astype(np.int64))
    return graph


def heterogeneous(sizes: Sizes | None = None, *, seed: int = 0, empty: bool = False) -> HeteroData:
    """Two node types (two thirds, one third) and four relations that share the edges; the first type has the labels.

    ``empty`` leaves the last relation without edges.
    """
    sizes = sizes or Sizes()
    rng = np.random.default_rng(seed)
    counts = {"paper": 2 * sizes.nodes // 3, "author": sizes.nodes - 2 * sizes.nodes // 3}
    graph = HeteroData()
    for name, count in counts.items():
        graph[name].x = torch.from_numpy(
            rng.standard_normal((count, sizes.features), dtype=np.float32)
        )
    relations = (
        ("paper", "cites", "paper", 0.4),
        ("author", "writes", "paper", 0.25),
        ("paper", "written_by", "author", 0.25),
        ("author", "knows", "author", 0.1),
    )
    for source, name, target, share in relations:
        edges = int(share * sizes.edges) if not (empty and name == "knows") else 0
        _, ends = _community_edges(counts[source], counts[target], edges, rng)
        graph[source, name, target].edge_index = torch.from_numpy(ends)
    labels = _group(counts["paper"], np.arange(counts["paper"])) % sizes.classes
    graph["paper"].y = torch.from_numpy(labels)
    graph["paper"].train_mask = torch.from_numpy(rng.random(counts["paper"]) < 0.5)
    return graph


def amazon_cs(*, seed: int = 0) -> Data:
    """Amazon computers, both directions of each edge; half of the nodes, drawn from the seed, are trained on.

    Raises:
        AutoplanError: the data is not there.
    """
    stored = np.load(_file("amazon_cs", "graph.npz"))
    nodes = len(stored["y"])
    shape = (nodes, nodes)
    ones = np.ones(len(stored["adj_indices"]))
    adjacency = csr_matrix((ones, stored["adj_indices"], stored["adj_indptr"]), shape)
    source, target = (adjacency + adjacency.T).nonzero()
    features = csr_matrix(
        (stored["x_data"], stored["x_indices"], stored["x_indptr"]), tuple(stored["x_shape"])
    )
    training = np.random.default_rng(seed).random(nodes) < 0.5
    return Data(
        x=torch.from_numpy(features.toarray().astype(np.float32)),
        edge_index=torch.from_numpy(np.stack([source, target]).astype(np.int64)),
        y=torch.from_numpy(stored["y"].astype(np.int64)),
        train_mask=torch.from_numpy(training),
    )


def nci1() -> list[Data]:
    """The 4,110 molecules of NCI1. Raises AutoplanError when the data is not there."""
    return tu_graphs(_file("tu_graphs", "NCI1.txt.gz"))


def _file(*parts: str) -> Path:
    path = Path(os.environ.get("AUTOPLAN_DATA", _DATA)).joinpath(*parts)
    if not path.is_file():
        raise AutoplanError(
            f"there is no {path}; set AUTOPLAN_DATA to the folder that has {'/'.join(parts)}, or leave this graph out"
        )
    return path


def _group(count: int, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    return nodes * COMMUNITIES // count


def _community_edges(
    sources: int, targets: int, edges: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The targets' communities, and [2, edges] in an order drawn at random."""
    duplicates = min(_DUPLICATES, edges // 20)
    drawn = edges - duplicates
    group = rng.integers(0, COMMUNITIES, drawn)
    other = np.where(rng.random(drawn) < _INSIDE, group, rng.integers(0, COMMUNITIES, drawn))
    ends = np.stack([_ends(sources, other, rng), _ends(targets, group, rng)])
    if drawn:
        ends = np.concatenate([ends, ends[:, rng.integers(0, drawn, duplicates)]], axis=1)
    order = rng.permutation(ends.shape[1])
    return _group(targets, np.arange(targets, dtype=np.int64)), ends[:, order]


def _ends(count: int, group: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A node of each community; the last nodes of each have no edges."""
    first = -(-group * count // COMMUNITIES)
    last = -(-(group + 1) * count // COMMUNITIES)
    within = rng.random(len(group)) ** _SKEW * (1 - _ISOLATED)
    ends = first + (within * (last - first)).astype(np.int64)
    return np.minimum(ends, count - 1)


GRAPHS: dict[str, Callable[[], Data | HeteroData | list[Data]]] = {
    "community": community,
    "community-0.14M": lambda: community(Sizes(edges=FEW_EDGES)),
    "relations": relational,
    "relations-0.14M": lambda: relational(Sizes(edges=FEW_EDGES)),
    "types": heterogeneous,
    "types-0.14M": lambda: heterogeneous(Sizes(edges=FEW_EDGES)),
    "amazon_cs": amazon_cs,
    "nci1": nci1,
}
"""By name: what makes the graph."""
