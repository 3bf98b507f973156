"""What a plan is made for: one graph, or many graphs of which a step takes all or some (torch)."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, default_collate
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader as GraphLoader
from torch_geometric.loader.dataloader import Collater

from autoplan.errors import PlanError, TraceError
from autoplan.execute.batches import BatchOrder
from autoplan.execute.collection import GraphCollection
from autoplan.graphspec import GraphSpec
from autoplan.plan import BatchUse
from autoplan.planner.arguments import whole_number
from autoplan.planner.collate import collate, put_together
from autoplan.planner.generated import generated_graph
from autoplan.planner.workload import StepRequest
from autoplan.trace.scope import AnyGraph


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The data of a plan.

    Attributes:
        whole: everything as one graph: what is recorded from, evaluated, predicted and verified where a step takes all.
        typical: the graph of the step that is priced: ``whole``, or of the full batches of epoch 0 with seed 0 the
            one with most nodes and edges.
        collection: the graphs one by one, where a list of them was given.
        batch_size: of the graphs in a step.
        hints: by attribute, what its rows count, as far as the graphs one by one tell.
        kind: class of the graphs of a list.
        spec: of a graph that is not here; then ``whole`` is a small one that was generated for it.
    """

    whole: AnyGraph
    typical: AnyGraph
    collection: GraphCollection | None = None
    batch_size: int = 1
    hints: Mapping[str, str] | None = None
    kind: type[Data] = Data
    spec: GraphSpec | None = None

    @property
    def streamed(self) -> bool:
        """Whether a step takes some of the graphs only, so that every step has another graph."""
        return self.collection is not None and self.batch_size < len(self.collection)

    @property
    def use(self) -> BatchUse | None:
        """How a plan says it; None for one graph."""
        if self.collection is None:
            return None
        order = self.order(0)
        return BatchUse("graph", order.graphs, order.batch_size, order.steps_per_epoch)

    def request(self, request: StepRequest) -> StepRequest:
        """The user's request with what is known of the attributes; the user's own word counts."""
        if not self.hints:
            return request
        return replace(request, inputs={**self.hints, **(request.inputs or {})})

    def order(self, seed: int) -> BatchOrder:
        """Which graphs each step takes. Only of a list of graphs."""
        assert self.collection is not None
        return BatchOrder(len(self.collection), self.batch_size, seed)

    def graph(self, step: int, seed: int) -> AnyGraph:
        """The graph of a step (from 0, counted over all epochs)."""
        if self.collection is None or not self.streamed:
            return self.whole
        return put_together(self.collection, self.order(seed).batch(step), self.kind)


def source_of(
    graph: object, batch_size: int | None = None, inputs: Mapping[str, Any] | None = None
) -> Source:
    """What the user gave, checked.

    Args:
        graph: a `Data`, a `HeteroData`, a PyG `Batch`, a sequence or data set of `Data`, PyG's `DataLoader` of them, or a
            `GraphSpec`.
        batch_size: graphs in a step, None for all, or as many as a loader takes; of many graphs only. More than there are
            mean all. Which graphs a step takes is drawn anew in every epoch, also where a loader does not shuffle.
        inputs: what the user says of attributes.

    Raises:
        TraceError: no graph, no graphs, or graphs that do not go together; names which and why.
        PlanError: a batch size that is no whole number of at least 1, one for a single graph, or another than the loader's.
    """
    size = None if batch_size is None else whole_number("batch_size", batch_size, 1)
    if isinstance(graph, DataLoader):
        graph, size = _loaded(graph, size)
    if isinstance(graph, Data | HeteroData) and size is None:
        return Source(graph, graph)
    if isinstance(graph, GraphSpec):
        if size is not None:
            raise PlanError(
                f"batch_size is for many graphs, but {graph.name} is one, which every step takes whole; leave batch_size out"
            )
        generated = generated_graph(graph)
        return Source(generated, generated, spec=graph)
    graphs = _graphs(graph)
    collection, hints = collate(graphs, inputs)
    everything = np.arange(len(graphs))
    kind = type(graphs[0])
    whole = put_together(collection, everything, kind)
    size = len(graphs) if size is None else min(size, len(graphs))
    if size == len(graphs):
        return Source(whole, whole, collection, size, hints, kind)
    order = BatchOrder(len(graphs), size, seed=0)
    # the last one has no more graphs than the others, and perhaps a single one, which cannot be shared out
    batches = [order.batch(step) for step in range(len(graphs) // size)]
    work = [int(collection.weights[batch].sum()) for batch in batches]
    typical = put_together(collection, batches[int(np.argmax(work))], kind)
    return Source(whole, typical, collection, size, hints, kind)


def source_as_planned(
    graph: object, use: BatchUse | None, inputs: Mapping[str, Any] | None = None
) -> Source:
    """What the user gave for a plan.

    Args:
        graph: see `source_of`.
        use: what the plan says of graphs.
        inputs: see `source_of`.

    Raises:
        PlanError: one graph for a plan of many, or many for a plan of one.
        TraceError: see `source_of`.
    """
    many = use is not None and use.unit == "graph"
    one = isinstance(graph, Data | HeteroData)
    if use is not None and many and one and not isinstance(graph, Batch):
        raise PlanError(
            f"the plan was made for a list of {use.units} graphs and here is one {type(graph).__name__}, not in a list; "
            "give the list of graphs"
        )
    source = source_of(graph, batch_size_of(use), inputs)
    if not many and source.collection is not None:
        count = len(source.collection)
        remedy = "plan for the list with autoplan.optimize"
        if count == 1:
            remedy = f"give the graph itself, not in a list, or {remedy}"
        raise PlanError(
            f"the plan was made for one graph and here is a list of {count} graph{'' if count == 1 else 's'}; {remedy}"
        )
    return source


def batch_size_of(use: BatchUse | None) -> int | None:
    """The batch size of a plan; None where a step takes everything."""
    if use is None or use.unit != "graph" or use.batch_size >= use.units:
        return None
    return use.batch_size


def _graphs(graph: object) -> list[Data]:
    """The graphs one by one. Raises TraceError, or PlanError for a batch size where there is one graph."""
    if isinstance(graph, Batch):
        try:
            return list(graph.to_data_list())
        except RuntimeError as error:
            raise TraceError(
                "this Batch cannot be taken apart, as it was not made by Batch.from_data_list; give the list of graphs"
            ) from error
    if isinstance(graph, Data | HeteroData):
        raise PlanError(
            f"batch_size is for many graphs, but one {type(graph).__name__} was given, which every step takes whole; leave batch_size out, "
            "or give a list of graphs"
        )
    if (
        not isinstance(graph, Sized)
        or not hasattr(graph, "__getitem__")
        or isinstance(graph, str | bytes | Mapping | torch.Tensor)
    ):
        raise TraceError(
            f"the graph is a {type(graph).__name__}; give a torch_geometric.data.Data with x and edge_index, or a list "
            "or data set of them"
        )
    if not len(graph):
        raise TraceError("the list of graphs is empty; give at least one graph")
    return [graph[number] for number in range(len(graph))]


def _loaded(loader: DataLoader[Any], batch_size: int | None) -> tuple[object, int]:
    """The data set of PyG's own loader of whole graphs, and how many of them a step takes.

    Raises:
        TraceError: a loader that does anything else, with what to give instead.
        PlanError: another batch size is asked for.
    """
    reason = _strange(loader)
    if reason is not None:
        raise TraceError(reason)
    size = loader.batch_size
    assert size is not None
    graphs = len(loader.dataset)  # type: ignore[arg-type]
    if batch_size is not None and min(batch_size, graphs) != min(size, graphs):
        raise PlanError(
            f"the loader takes {size} graphs in a step and {batch_size} are asked for; give the loader alone, or "
            f"loader.dataset and batch_size={batch_size}"
        )
    return loader.dataset, size


def _strange(loader: DataLoader[Any]) -> str | None:
    """What a loader does that a plan would not do, with the remedy."""
    name = type(loader).__name__
    if isinstance(getattr(loader, "data", None), Data | HeteroData):
        return (
            f"the graph is a {name}, which samples from one graph; sampling is not planned yet: give the graph itself, "
            "loader.data"
        )
    together = loader.collate_fn
    if type(loader) is not GraphLoader or not isinstance(together, Collater):
        collates = together is not default_collate
        hint = ", which puts graphs together in a way of its own"
        if not collates:
            hint = ", which cannot put graphs together (torch_geometric.loader.DataLoader does)"
    elif type(loader.sampler) not in (RandomSampler, SequentialSampler) or not loader.batch_size:
        hint = " with a sampler of its own"
    elif loader.drop_last:
        hint = " with drop_last=True, and a plan takes the last graphs, too"
    elif together.follow_batch or together.exclude_keys:
        hint = " with follow_batch or exclude_keys, which a plan does not follow"
    else:
        return None
    size = f"batch_size={loader.batch_size}" if loader.batch_size else "batch_size=..."
    return (
        f"the graph is a {name}{hint}; give its data set and the number of graphs in a step: "
        f"optimize(model, loader.dataset, devices, {size})"
    )
