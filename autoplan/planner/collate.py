"""Many graphs as one collection: checked one against the other, and put one after the other (torch).

What comes out of a collection equals what `torch_geometric.data.Batch` makes of the same graphs, with one addition: lists of
nodes (``train_idx``) are shifted like edges, for else they would name nodes of the first graph only.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from autoplan.errors import TraceError
from autoplan.execute.collection import CollatedAttribute, GraphCollection
from autoplan.opgraph import EDGE, GRAPH, NODE
from autoplan.partition.ownership import IntArray
from autoplan.trace.attributes import describe, is_node_list, is_relation

_DERIVED = ("num_nodes", "ptr")


def collate(
    graphs: Sequence[Data], inputs: Mapping[str, Any] | None = None
) -> tuple[GraphCollection, dict[str, str]]:
    """Puts graphs one after the other.

    Attributes that are neither tensors nor numbers (names, SMILES) are left out: no model computes with them.

    Args:
        graphs: at least one; every one a homogeneous graph of its own. They are not changed.
        inputs: what the user says of attributes (see `GraphSchema.of`).

    Returns:
        The collection, and by attribute the axis that its rows count, where the graphs one by one leave only one reading.

    Raises:
        TraceError: a graph's attributes, dtypes or widths are not the first one's, or it names nodes that it does not
            have; the message names graph and attribute.
    """
    asked = dict(inputs or {})
    values = [_values(number, graph) for number, graph in enumerate(graphs)]
    _check_alike(values)
    if "edge_index" not in values[0]:
        raise TraceError(
            f"the graphs have no edge_index (they have {sorted(values[0])}); set graph.edge_index of each to an "
            "int64 tensor [2, E], sources first"
        )
    _check_edges([of_graph["edge_index"] for of_graph in values])
    nodes = np.array([_node_count(number, graph) for number, graph in enumerate(graphs)])
    rows: dict[str, IntArray] = {NODE: nodes, GRAPH: np.ones(len(graphs), dtype=np.int64)}
    attributes: dict[str, CollatedAttribute] = {}
    lists: dict[str, str] = {}
    for name in sorted(values[0]):
        own = [of_graph[name] for of_graph in values]
        dim = _dim(graphs[0], name, own[0])
        _check_widths(name, dim, own)
        counts = np.array([value.size(dim) for value in own])
        axis = _list_axis(name, own, nodes, asked.get(name))
        if axis is not None:
            _check_nodes(name, own, nodes)
            rows[axis] = counts
            lists[name] = axis
        shifts = nodes if axis is not None else _shifts(name, graphs, own)
        starts = np.concatenate([[0], np.cumsum(counts)])
        joined = torch.cat([value.detach() for value in own], dim).contiguous()
        joined.requires_grad_(any(value.requires_grad for value in own))
        attributes[name] = CollatedAttribute(joined, dim, starts, shifts)
    hints = {
        name: axis
        for name, attribute in attributes.items()
        if name not in lists and (axis := _only_axis(attribute, rows)) is not None
    }
    return GraphCollection(attributes, rows), hints


def put_together(collection: GraphCollection, which: IntArray, kind: type[Data]) -> Data:
    """Some graphs as one, of the class that PyG's loaders give: with ``batch``, ``ptr`` and ``num_graphs``.

    Args:
        collection: all graphs.
        which: [B] the numbers of those to put together, in this order.
        kind: class of the graphs.
    """
    batch = Batch(_base_cls=kind)
    for name, attribute in collection.attributes.items():
        tensor = collection.tensor(name, which).detach()
        batch[name] = tensor.requires_grad_(attribute.values.requires_grad)
    counts = collection.rows[NODE][which]
    batch.num_nodes = int(counts.sum())
    batch.batch = collection.tensor("batch", which)
    batch.ptr = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
    batch._num_graphs = len(which)
    data: Data = batch
    return data


def _values(number: int, graph: object) -> dict[str, Tensor]:
    """A graph's tensors by name; numbers as tensors, values without dimensions with one row."""
    if isinstance(graph, Batch):
        raise TraceError(
            f"graph {number} of the list is itself a Batch of {graph.num_graphs}; give its graphs: batch.to_data_list()"
        )
    if isinstance(graph, HeteroData):
        raise TraceError(
            f"graph {number} of the list is a HeteroData, of which lists are not taken apart; give them as one: "
            "torch_geometric.data.Batch.from_data_list(graphs)"
        )
    if not isinstance(graph, Data):
        raise TraceError(
            f"graph {number} of the list is a {type(graph).__name__}; every one must be a torch_geometric.data.Data"
        )
    found: dict[str, Tensor] = {}
    for name, value in graph.to_dict().items():
        if name in _DERIVED:
            continue
        if name == "batch":
            raise TraceError(
                f"graph {number} of the list has a batch vector; each entry is one graph: remove it, or give the "
                "single graphs"
            )
        if isinstance(value, int | float):
            found[name] = torch.tensor([value])
        elif isinstance(value, Tensor):
            if value.layout != torch.strided:
                raise TraceError(
                    f"{name} of graph {number} is a sparse tensor ({value.layout}); give edge_index (and edge_weight) "
                    "instead"
                )
            plain = value.as_subclass(Tensor)
            found[name] = plain if plain.dim() else plain.view(1)
    return found


def _check_alike(values: Sequence[Mapping[str, Tensor]]) -> None:
    """Raises TraceError where a graph is not like the first: attributes, dtypes, sizes besides its own rows."""
    first = values[0]
    for number, own in enumerate(values):
        for name in sorted({*first} ^ {*own}):
            having, lacking = (0, number) if name in first else (number, 0)
            raise TraceError(
                f"graph {lacking} has no {name}, which graph {having} has; all graphs need the same attributes"
            )
        for name, tensor in own.items():
            wanted = first[name]
            if tensor.dtype != wanted.dtype or tensor.dim() != wanted.dim():
                raise _unlike(name, number, tensor, wanted)


def _unlike(name: str, number: int, found: Tensor, wanted: Tensor) -> TraceError:
    return TraceError(
        f"{name} of graph {number} is {describe(found)}, that of graph 0 is {describe(wanted)}; graphs may differ in "
        "their rows only"
    )


def _check_widths(name: str, dim: int, own: Sequence[Tensor]) -> None:
    """Raises TraceError where graphs differ in another dimension than the one along which they are put together."""
    wanted = (*own[0].shape[:dim], *own[0].shape[dim + 1 :])
    for number, tensor in enumerate(own):
        if (*tensor.shape[:dim], *tensor.shape[dim + 1 :]) != wanted:
            raise _unlike(name, number, tensor, own[0])


def _node_count(number: int, graph: Data) -> int:
    with warnings.catch_warnings():
        # PyG's advice to set num_nodes: an error that says the same follows where it matters
        warnings.simplefilter("ignore")
        count = graph.num_nodes
    if count is None:
        raise TraceError(
            f"graph {number} does not tell its number of nodes; give it x, with a row for each, or num_nodes"
        )
    return int(count)


def _dim(graph: Data, name: str, value: Tensor) -> int:
    """The dimension along which the graphs lie one after the other: what PyG says."""
    said = graph.__cat_dim__(name, value, graph._store)
    if not isinstance(said, int):
        raise TraceError(
            f"{name} is stacked in a way of its own (__cat_dim__ gives {said!r}); only concatenation along one "
            "dimension is known"
        )
    return said % value.dim()


def _list_axis(name: str, own: Sequence[Tensor], nodes: IntArray, asked: object) -> str | None:
    """The axis of an attribute that lists nodes or pairs of nodes; None of any other."""
    if name == "edge_index":
        return EDGE
    if asked in (NODE, GRAPH, EDGE, "constant"):
        return None
    if is_relation(name, own[0], asked):
        return f"edge:{name}"
    if not is_node_list(name, own[0], asked):
        return None
    if asked is None and all(value.numel() == 1 for value in own):
        if any(int(value) >= count for value, count in zip(own, nodes, strict=True)):
            return None  # a number of the graph itself, such as its place in a data set
        raise TraceError(
            f"{name} has one entry for each graph: it could name a node, or be a value of the graph; say which: "
            f"inputs={{'{name}': 'index'}} or inputs={{'{name}': 'graph'}}"
        )
    return f"index:{name}"


def _check_edges(own: Sequence[Tensor]) -> None:
    for number, value in enumerate(own):
        if value.dtype != torch.int64 or value.dim() != 2 or value.size(0) != 2:
            raise TraceError(
                f"edge_index of graph {number} is {describe(value)}; it must be int64 [2, E], sources first"
            )


def _check_nodes(name: str, own: Sequence[Tensor], nodes: IntArray) -> None:
    """Raises TraceError where a graph names a node that it does not have: put together, it would be another graph's."""
    for number, (value, count) in enumerate(zip(own, nodes, strict=True)):
        if not value.numel():
            continue
        low, high = (int(end) for end in torch.aminmax(value))
        if low < 0 or high >= count:
            bad = low if low < 0 else high
            raise TraceError(
                f"{name} of graph {number} holds the node id {bad}, but that graph has {count} nodes "
                f"(ids 0 to {count - 1})"
            )


def _shifts(name: str, graphs: Sequence[Data], own: Sequence[Tensor]) -> IntArray | None:
    """What PyG adds to an attribute's values when it puts graphs together; None for nothing."""
    said = []
    for graph, value in zip(graphs, own, strict=True):
        shift = graph.__inc__(name, value, graph._store) if value.numel() else 0
        if not isinstance(shift, int) and not (isinstance(shift, Tensor) and shift.numel() == 1):
            raise TraceError(
                f"{name} is shifted by several numbers for each graph (__inc__ gives {shift!r}); only one is known"
            )
        said.append(int(shift))
    return np.array(said) if any(said) else None


def _only_axis(attribute: CollatedAttribute, rows: Mapping[str, IntArray]) -> str | None:
    """The one axis of which every graph has as many rows as of the attribute; None where there is none or several."""
    counts = np.diff(attribute.starts)
    found = [axis for axis, own in rows.items() if np.array_equal(own, counts)]
    return found[0] if len(found) == 1 and attribute.dim == 0 else None
