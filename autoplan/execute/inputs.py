"""A rank's share of the graph's tensors, as its programs read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from autoplan.errors import PlanError
from autoplan.opgraph import GRAPH, NODE
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
        By (attribute, state), without gradients: the tensor itself in R, else copies of its owned (O) or owned and halo (H) rows. Positions
        are local in O.

    Raises:
        PlanError: the graph lacks an attribute.
    """
    numbers: NodeNumbers | None = None
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
            cut[key] = tensor
            continue
        rows = shard.rows(wanted.axis)
        if wanted.state == "H":
            rows = np.concatenate([rows, shard.halo_nodes])
        mine = tensor.index_select(wanted.dim, torch.tensor(rows, device=tensor.device))
        if wanted.index is not None and wanted.index.axis == GRAPH:
            mine = local_graphs(mine, shard)
        elif wanted.index is not None:
            numbers = numbers or NodeNumbers(shard)
            mine = numbers.local(mine, wanted)
        cut[key] = mine
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


class NodeNumbers:
    """Translates a rank's global node numbers into local ones: owned rows first, then halo rows."""

    def __init__(self, shard: Shard) -> None:
        """Sorts the shard's nodes: nothing here is as long as the graph."""
        nodes = torch.tensor(np.concatenate([shard.owned_nodes, shard.halo_nodes]))
        self._sorted, self._local = nodes.sort()
        self._rank = shard.rank

    def local(self, numbers: torch.Tensor, wanted: RankInput) -> torch.Tensor:
        """Local numbers of nodes that this rank owns or reads.

        Raises:
            PlanError: a node that this rank does not have, or positions along another axis than the nodes.
        """
        if wanted.index is None or wanted.index.axis != NODE:
            raise PlanError(
                f"graph.{wanted.attribute} holds positions that are not nodes; only R can serve them"
            )
        flat = numbers.reshape(-1).to("cpu", torch.int64)
        places = torch.searchsorted(self._sorted, flat).clamp(max=max(len(self._sorted) - 1, 0))
        if flat.numel() and not (len(self._sorted) and torch.equal(self._sorted[places], flat)):
            raise PlanError(
                f"graph.{wanted.attribute} names nodes that rank {self._rank} neither owns nor reads; "
                "plan again for this graph"
            )
        local = self._local[places] if flat.numel() else flat
        return local.reshape(numbers.shape).to(numbers.device, numbers.dtype)
