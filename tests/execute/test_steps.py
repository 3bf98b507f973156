"""Parts cut out of a collection are the parts of the same batch, put together by PyG and cut as one graph."""

from __future__ import annotations

from dataclasses import asdict, fields

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from autoplan.execute.batches import BatchOrder
from autoplan.execute.inputs import shard_inputs
from autoplan.execute.steps import CollectionSteps, FixedSteps, cut_parts
from autoplan.opgraph import EDGE, GRAPH, NODE, IndexInto
from autoplan.partition.closed import closed_owner, units_of
from autoplan.partition.halo import Shard, build_shards, gather_order
from autoplan.program.rank_program import RankInput
from tests.execute.test_collection import collection, graphs

INPUTS = (
    RankInput("x", "O", 0, NODE, None),
    RankInput("x", "R", 0, NODE, None),
    RankInput("x", "H", 0, NODE, None),
    RankInput("edge_index", "O", 1, EDGE, IndexInto((NODE,), ("src", "dst"))),
    RankInput("edge_index", "R", 1, EDGE, IndexInto((NODE,), ("src", "dst"))),
    RankInput("batch", "O", 0, NODE, IndexInto((GRAPH,), ("any",))),
    RankInput("y", "O", 0, GRAPH, None),
)


def shards_of(batch: Data, parts: int) -> tuple[Shard, ...]:
    edges = {EDGE: batch.edge_index.numpy()}
    units = units_of(batch.num_nodes, edges, batch.batch.numpy(), batch.num_graphs)
    owner = closed_owner(units, edges, parts)
    return build_shards(owner.nodes, edges, {}, parts=parts, closed=True, graph_owner=owner.graphs)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("chosen", [[0, 1, 2, 3, 4], [3, 0, 4], [1], [2, 4]])
def test_parts_are_those_of_the_batch(chosen: list[int], parts: int) -> None:
    batch = Batch.from_data_list([graphs()[number] for number in chosen])
    shards = shards_of(batch, parts)
    attributes = {name: batch[name] for name in ("x", "edge_index", "batch", "y")}

    found = cut_parts(
        collection(), np.array(chosen), parts, range(parts), INPUTS, gathered=(NODE, GRAPH)
    )

    assert len(found) == parts
    for part, shard in zip(found, shards, strict=True):
        for field in fields(Shard):
            if field.name in ("edge_index", "index_values"):
                continue
            found_value, expected = (getattr(s, field.name) for s in (part.shard, shard))
            if field.name == "nodes":
                found_value, expected = asdict(found_value[NODE]), asdict(expected[NODE])
            np.testing.assert_equal(found_value, expected, field.name)
        plain = [read for read in INPUTS if read.attribute != "batch"]
        for key, tensor in shard_inputs(plain, attributes, shard).items():
            assert torch.equal(part.inputs[key], tensor), key
        owned = batch.batch[torch.from_numpy(shard.nodes["node"].owned)].numpy()
        assert (
            part.inputs["batch", "O"].tolist() == np.searchsorted(shard.graph_rows, owned).tolist()
        )
        for axis in (NODE, GRAPH):
            np.testing.assert_array_equal(part.gathered[axis], gather_order(shards, axis))


def test_a_rank_gets_its_parts_of_every_step() -> None:
    steps = CollectionSteps(collection(), BatchOrder(5, 2, seed=4), 6, (2, 3), INPUTS)
    for step in range(6):
        parts = steps.parts(step)
        assert [part.shard.rank for part in parts] == [2, 3]
        assert all(part.shard.parts == 6 for part in parts)
        chosen = steps.order.batch(step)
        whole = Batch.from_data_list([graphs()[number] for number in chosen])
        assert torch.equal(parts[0].inputs["edge_index", "R"], whole.edge_index)


def test_fixed_steps_give_the_very_same_parts() -> None:
    held = cut_parts(collection(), np.arange(5), 2, (0,), INPUTS)
    steps = FixedSteps(held)
    assert steps.parts(3)[0] is steps.parts(0)[0] is held[0]
