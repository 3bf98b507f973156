"""A rank's inputs: the graph's tensors in the states that its program wants them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from autoplan.errors import PlanError
from autoplan.opgraph import NODE
from autoplan.partition.halo import IntArray, Shard
from autoplan.program.rank_program import InputKey, RankInput


def load(
    wanted: Iterable[RankInput], tensors: Mapping[str, torch.Tensor], shard: Shard
) -> dict[InputKey, torch.Tensor]:
    """Slices the whole graph's tensors for one rank.

    Args:
        wanted: what the rank's programs read; repeats are loaded once.
        tensors: by graph attribute, with all rows.
        shard: the rank's rows.

    Returns:
        By (attribute, state): in R the tensor itself; in O its owned rows, in H owned then halo rows, copied; positions
        are local numbers in O.

    Raises:
        PlanError: the graph lacks an attribute, or positions are wanted in a state that they cannot be in.
    """
    loaded: dict[InputKey, torch.Tensor] = {}
    for one in wanted:
        key = (one.attribute, one.state)
        if key in loaded:
            continue
        if one.attribute not in tensors:
            raise PlanError(
                f"the plan's program reads graph.{one.attribute}, which this graph lacks (it has {sorted(tensors)})"
            )
        loaded[key] = _in_state(one, tensors[one.attribute], shard)
    return loaded


def _in_state(one: RankInput, tensor: torch.Tensor, shard: Shard) -> torch.Tensor:
    if one.state == "R" or one.axis is None or one.dim is None:
        return tensor
    if one.index is not None:
        return _local_positions(one, tensor, shard)
    rows = shard.rows(one.axis)
    if one.state == "H":
        if one.axis != NODE:
            raise PlanError(
                f"graph.{one.attribute} lies along {one.axis!r}, which has no halo rows"
            )
        rows = np.concatenate([rows, shard.halo_nodes])
    return tensor.detach().index_select(one.dim, _tensor(rows))


def _local_positions(one: RankInput, tensor: torch.Tensor, shard: Shard) -> torch.Tensor:
    """Positions into the nodes, in local numbers, for the rows that the rank owns."""
    assert one.axis is not None
    if one.state == "O" and one.axis in shard.edge_index:
        return _tensor(shard.edge_index[one.axis]).to(tensor.dtype)
    if one.state == "O" and one.axis in shard.index_values:
        return _tensor(shard.index_values[one.axis]).to(tensor.dtype)
    raise PlanError(
        f"graph.{one.attribute} holds positions along {one.axis!r} and cannot be loaded in state {one.state}"
    )


def _tensor(rows: IntArray) -> torch.Tensor:
    return torch.from_numpy(np.array(rows, dtype=np.int64))
