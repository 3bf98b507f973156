"""A rank's share of the graph's tensors, as its programs read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from autoplan.errors import PlanError
from autoplan.opgraph import GRAPH
from autoplan.partition.halo import Shard
from autoplan.program.rank_program import InputKey, RankInput


def shard_inputs(
    inputs: Iterable[RankInput], attributes: Mapping[str, torch.Tensor], shard: Shard
) -> dict[InputKey, torch.Tensor]:
    """Cuts the whole graph's tensors for one rank.

    Args:
        inputs: what the rank's programs read; several programs may name one input.
        attributes: by name, the tensors of the whole graph.
        shard: the rank's rows.

    Returns:
        By (attribute, state), without gradients: the tensor itself in R, or a copy where a program writes over it, else copies of its
        owned (O) or owned and halo (H) rows. Positions are local in O.

    Raises:
        PlanError: the graph lacks an attribute.
    """
    numbers = LocalNumbers(shard)
    inputs = tuple(inputs)
    written = {(each.attribute, each.state) for each in inputs if each.written}
    cut: dict[InputKey, torch.Tensor] = {}
    for wanted in inputs:
        key = (wanted.attribute, wanted.state)
        if key in cut:
            continue
        tensor = attributes.get(wanted.attribute)
        if tensor is None:
            raise PlanError(
                f"the plan reads graph.{wanted.attribute}, which this graph does not have; it has {', '.join(attributes)}"
            )
        # a gradient of the graph's own tensors is nobody's: it must not be left on the user's graph
        tensor = tensor.detach()
        if wanted.state == "R" or wanted.dim is None or wanted.axis is None:
            cut[key] = tensor.clone() if key in written else tensor
            continue
        with_halo = wanted.state == "H"
        rows = shard.local_rows(wanted.axis) if with_halo else shard.rows(wanted.axis)
        mine = tensor.index_select(wanted.dim, torch.tensor(rows, device=tensor.device))
        cut[key] = mine if wanted.index is None else numbers.local(mine, wanted)
    return cut


def local_graphs(numbers: torch.Tensor, shard: Shard) -> torch.Tensor:
    """Numbers of graphs among the graphs of a shard; unchanged where the partition does not cut that axis.

    Raises:
        PlanError: a graph that this rank does not own.
    """
    if shard.graph_rows is None:
        return numbers
    owned = torch.tensor(shard.graph_rows, device=numbers.device)
    places = torch.searchsorted(owned, numbers.to(torch.int64)).clamp(max=max(len(owned) - 1, 0))
    if numbers.numel() and not (len(owned) and torch.equal(owned[places], numbers.to(torch.int64))):
        raise PlanError(
            f"rank {shard.rank} owns nodes of graphs that it does not own; pack whole graphs (partition.closed)"
        )
    return places.to(numbers.dtype)


class LocalNumbers:
    """Translates a rank's global numbers into local ones: of nodes, owned rows first, then halo rows; of graphs, owned ones."""

    def __init__(self, shard: Shard) -> None:
        """Nothing here is as long as the graph; a node type's rows are sorted when they are first asked for."""
        self._shard = shard
        self._sorted: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def local(self, numbers: torch.Tensor, wanted: RankInput) -> torch.Tensor:
        """Local numbers of rows that this rank owns or reads.

        Raises:
            PlanError: a row that this rank does not have, or positions along another axis than nodes or graphs.
        """
        assert wanted.index is not None
        axes = wanted.index.axes
        if wanted.index.axis is not None:
            return self._along(axes[0], numbers, wanted.attribute)
        ends = zip(axes, numbers, strict=True)
        return torch.stack([self._along(axis, end, wanted.attribute) for axis, end in ends])

    def _along(self, axis: str, numbers: torch.Tensor, attribute: str) -> torch.Tensor:
        if axis == GRAPH:
            return local_graphs(numbers, self._shard)
        if axis not in self._shard.nodes:
            raise PlanError(
                f"graph.{attribute} holds positions that are not nodes; only R can serve them"
            )
        if axis not in self._sorted:
            nodes = torch.tensor(self._shard.local_rows(axis))
            ordered, local = nodes.sort()
            self._sorted[axis] = ordered, local
        ordered, local = self._sorted[axis]
        flat = numbers.reshape(-1).to("cpu", torch.int64)
        places = torch.searchsorted(ordered, flat).clamp(max=max(len(ordered) - 1, 0))
        if flat.numel() and not (len(ordered) and torch.equal(ordered[places], flat)):
            raise PlanError(
                f"graph.{attribute} names nodes that rank {self._shard.rank} neither owns nor reads; "
                "plan again for this graph"
            )
        found = local[places] if flat.numel() else flat
        return found.reshape(numbers.shape).to(numbers.device, numbers.dtype)
