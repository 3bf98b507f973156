"""What is timed: for each side, a function that does one training step (or goes on to the next one)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader

import autoplan
from benchmarks.steps import dense, hand
from benchmarks.steps.graphs import GRAPHS_PER_STEP
from benchmarks.steps.models import make_model
from benchmarks.steps.protocol import SIDES
from benchmarks.steps.timing import Clock

LEARNING_RATE = 0.01

Graph: TypeAlias = Data | HeteroData | list[Data]


def forward(model: nn.Module, graph: Any) -> Tensor:
    """The model's output, with the arguments that its graph has."""
    if isinstance(graph, HeteroData):
        out = model(graph.x_dict, graph.edge_index_dict)
    elif "batch" in graph:
        out = model(graph.x, graph.edge_index, graph.batch)
    elif "edge_type" in graph:
        out = model(graph.x, graph.edge_index, graph.edge_type)
    else:
        out = model(graph.x, graph.edge_index)
    assert isinstance(out, Tensor)
    return out


def cross_entropy(out: Tensor, graph: Any) -> Tensor:
    """Over the training nodes; over all graphs of a batch."""
    labelled = graph["paper"] if isinstance(graph, HeteroData) else graph
    if "batch" in graph:
        return functional.cross_entropy(out, labelled.y)
    return functional.cross_entropy(out[labelled.train_mask], labelled.y[labelled.train_mask])


def steps(side: str, model_name: str, graph: Graph, clock: Clock) -> None:
    """Runs steps of a side for as long as the clock asks for them; see `Clock`.

    Raises:
        LookupError: no such side, or this side has nothing for this model.
    """
    if side == "autoplan":
        _steps_of_autoplan(make_model(model_name, graph), graph, clock)
    elif side == "plain":
        _drive(_plain(make_model(model_name, graph), graph), clock)
    elif side == "hand":
        with_big_blocks_kept()
        model = make_model(model_name, graph)
        _drive(_optimised(hand.lowered(model_name, model, graph), model, _batches(graph)), clock)
    elif side == "dense":
        with_big_blocks_kept()
        ceiling = dense.Ceiling(dense.products(model_name, graph))
        optimizer = torch.optim.Adam(ceiling.parameters(), LEARNING_RATE)

        def step() -> None:
            optimizer.zero_grad()
            ceiling.run()
            optimizer.step()

        _drive(step, clock)
    else:
        raise LookupError(f"there is no side {side!r}; there are {', '.join(SIDES)}")


def with_big_blocks_kept() -> None:
    """Makes glibc keep big freed blocks instead of giving them back, so that they are not paged in anew at each use.

    Of the hand-lowered versions and the ceilings only. Another C library is left as it is.
    """
    import ctypes

    trim_threshold, top_pad, most_mapped = -1, -2, -4
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(most_mapped, 0)
        mallopt(trim_threshold, -1)  # never
        mallopt(top_pad, 64 << 20)


def _batches(graph: Graph) -> Iterator[Any]:
    """What each step is on: the whole graph, or the next 256 of many in an order drawn at random."""
    if not isinstance(graph, list):
        return itertools.repeat(graph)
    torch.manual_seed(0)
    loader = DataLoader(graph, batch_size=GRAPHS_PER_STEP, shuffle=True)
    return itertools.chain.from_iterable(itertools.repeat(loader))


def _plain(model: nn.Module, graph: Graph) -> Callable[[], None]:
    return _optimised(lambda batch: forward(model, batch), model, _batches(graph))


def _optimised(
    out_of: Callable[[Any], Tensor], model: nn.Module, batches: Iterator[Any]
) -> Callable[[], None]:
    """A step as everyone writes it, with Adam."""
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)

    def step() -> None:
        batch = next(batches)
        optimizer.zero_grad()
        loss = cross_entropy(out_of(batch), batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _drive(step: Callable[[], None], clock: Clock) -> None:
    while clock.another():
        step()


def _steps_of_autoplan(model: nn.Module, graph: Graph, clock: Clock) -> None:
    """The public path: `optimize`, then `train`, held between its steps by torch's hook after each update."""
    batch_size = GRAPHS_PER_STEP if isinstance(graph, list) else None
    loss = cross_entropy if isinstance(graph, HeteroData) else None
    plan = autoplan.optimize(
        model, graph, "1xcpu", batch_size=batch_size, loss=loss, strategy="single"
    )

    class Enough(Exception):  # noqa: N818 - it is no error
        pass

    def after_update(*_: object) -> None:
        if not clock.another():
            raise Enough

    from torch.optim.optimizer import register_optimizer_step_post_hook

    hook = register_optimizer_step_post_hook(after_update)
    try:
        clock.another()
        with suppress(Enough):
            plan.train(model, graph, epochs=10**6, lr=LEARNING_RATE, progress=False)
    finally:
        hook.remove()
