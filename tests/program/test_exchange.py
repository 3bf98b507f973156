from __future__ import annotations

import numpy as np
import pytest
import torch

from autoplan.errors import PlanError
from autoplan.execute.threads import run_ranks
from autoplan.opgraph import EDGE, NODE
from autoplan.partition.halo import build_shards
from autoplan.program import exchange
from autoplan.program.communicator import LocalCommunicator
from autoplan.program.context import RankContext

NODES = 23

# owners of the nodes: uneven; in the last, rank 1 owns nothing and rank 3 has no edge
OWNERS = {
    1: np.zeros(NODES, dtype=np.int64),
    2: np.array([0] * 5 + [1] * 18),
    3: np.random.default_rng(1).integers(0, 3, NODES),
    4: np.array([0, 2, 0, 2, 2] * 4 + [3, 3, 2]),
}


def shards_of(parts):
    rng = np.random.default_rng(7)
    edges = rng.integers(0, 20, (2, 61))
    edges[1, :40] = rng.integers(0, 3, 40)
    return build_shards(OWNERS[parts], {EDGE: edges}, {}, parts=parts)


def on_ranks(parts, work):
    """work(context) on every rank of the partition; results in rank order."""
    shards = shards_of(parts)

    def rank_main(communicator):
        context = RankContext.from_shard(shards[communicator.rank], communicator)
        context.prepare((NODE, EDGE))
        return work(context)

    return run_ranks(parts, rank_main)


def global_rows(shape, dim, rows, dtype=torch.float64):
    size = list(shape)
    size.insert(dim, rows)
    values = torch.arange(int(np.prod(size)), dtype=torch.float64).sin().mul(9)
    return values.reshape(size).to(dtype)


EXCHANGES = {
    "halo": (lambda c, t, d: exchange.halo_exchange(c, t, NODE, d), NODE, "O", "H"),
    "gather nodes": (lambda c, t, d: exchange.all_gather(c, t, NODE, d), NODE, "O", "R"),
    "gather edges": (lambda c, t, d: exchange.all_gather(c, t, EDGE, d), EDGE, "O", "R"),
    "own": (lambda c, t, d: exchange.own_rows(c, t, NODE, d), NODE, "R", "O"),
    "own edges": (lambda c, t, d: exchange.own_rows(c, t, EDGE, d), EDGE, "R", "O"),
    "local": (lambda c, t, d: exchange.local_rows(c, t, NODE, d), NODE, "R", "H"),
    "drop": (lambda c, t, d: exchange.drop_halo(c, t, NODE, d), NODE, "H", "O"),
}


def in_state(context, axis, state, whole, dim):
    return whole.index_select(dim, context.keys(axis, state))


@pytest.mark.parametrize("parts", OWNERS)
@pytest.mark.parametrize("name", EXCHANGES)
def test_rows_arrive_as_they_lie_in_the_whole(name, parts):
    function, axis, source, target = EXCHANGES[name]

    def work(context):
        rows = context.axes[axis].total
        for shape, dim in (((), 0), ((3,), 0), ((3,), 1), ((2, 0), 1), ((2, 3), 2)):
            for dtype in (torch.float64, torch.float32, torch.int64, torch.bool):
                whole = global_rows(shape, dim, rows, dtype)
                result = function(context, in_state(context, axis, source, whole, dim), dim)
                assert result.dtype == dtype
                assert result.is_contiguous()
                assert torch.equal(result, in_state(context, axis, target, whole, dim))

    on_ranks(parts, work)


@pytest.mark.parametrize("parts", OWNERS)
@pytest.mark.parametrize("name", EXCHANGES)
@pytest.mark.parametrize("dim", [0, 1])
def test_backward_is_the_transposed_map(name, parts, dim):
    """<A x, y> = <x, A^T y>, summed over ranks, and A^T y depends linearly on y through A again."""
    function, axis, source, target = EXCHANGES[name]

    def work(context):
        generator = torch.Generator().manual_seed(context.communicator.rank)
        shape = [4, 4]
        shape[dim] = context.axes[axis].rows(source)
        x = torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)
        shape[dim] = context.axes[axis].rows(target)
        y = torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)
        forward = function(context, x, dim)
        (transposed,) = torch.autograd.grad(forward, x, y, create_graph=True)
        z = torch.randn(x.shape, dtype=torch.float64, generator=generator)
        (twice,) = torch.autograd.grad(transposed, y, z)
        assert torch.allclose(twice, function(context, z, dim), rtol=0, atol=1e-12)
        return torch.stack([(forward * y).sum(), (x * transposed).sum()]).detach()

    left, right = torch.stack(on_ranks(parts, work)).sum(0)
    assert left.item() == pytest.approx(right.item(), abs=1e-10)


@pytest.mark.parametrize("parts", OWNERS)
def test_all_reduce_is_its_own_adjoint(parts):
    def work(context):
        rank = context.communicator.rank
        x = torch.full((2, 2), float(rank + 1), dtype=torch.float64, requires_grad=True)
        total = exchange.all_reduce(context, x.t())
        assert torch.equal(total, torch.full((2, 2), parts * (parts + 1) / 2, dtype=torch.float64))
        total.backward(torch.full((), float(rank), dtype=torch.float64).expand(2, 2))
        return x.grad

    for gradient in on_ranks(parts, work):
        assert torch.equal(gradient, torch.full((2, 2), parts * (parts - 1) / 2).double())


def test_expanded_and_transposed_cotangents():
    """``sum()`` hands an expanded scalar to the exchange's backward."""

    def work(context):
        owned = context.axes[NODE].owned
        x = torch.ones(owned, 3, dtype=torch.float64, requires_grad=True)
        exchange.halo_exchange(context, x, NODE).sum().backward()
        exchange.all_gather(context, x, NODE).t().sum().backward()
        exchange.halo_exchange(context, x.t(), NODE, 1).sum().backward()
        return context.keys(NODE, "O"), x.grad

    shards = shards_of(3)
    readers = torch.zeros(NODES, dtype=torch.float64)
    for shard in shards:
        readers[shard.nodes["node"].halo] += 1
    for ids, gradient in on_ranks(3, work):
        assert torch.equal(gradient, (2 * (1 + readers[ids]) + 3).unsqueeze(1).expand(-1, 3))


def test_integers_and_tensors_without_gradient_stay_out_of_autograd():
    def work(context):
        owned = context.axes[NODE].owned
        assert not exchange.halo_exchange(context, torch.ones(owned), NODE).requires_grad
        with torch.no_grad():
            weight = torch.ones(owned, requires_grad=True)
            assert not exchange.all_gather(context, weight, NODE).requires_grad

    on_ranks(2, work)


def test_wrong_rows_and_a_missing_order_are_plan_errors():
    context = RankContext.from_shard(shards_of(1)[0], LocalCommunicator())
    with pytest.raises(PlanError, match="22 rows along dimension 0, this rank owns 23"):
        exchange.halo_exchange(context, torch.ones(22), NODE)
    with pytest.raises(PlanError, match="prepare"):
        exchange.all_gather(context, torch.ones(NODES), NODE)


def test_nothing_is_exchanged_for_the_halo_of_a_closed_partition():
    class Silent:
        rank, size = 0, 2

    shards = build_shards(np.array([0, 0, 1]), {EDGE: np.array([[0], [1]])}, {}, closed=True)
    context = RankContext.from_shard(shards[0], Silent())
    rows = torch.randn(2, 3, requires_grad=True)
    assert exchange.halo_exchange(context, rows, NODE) is rows
