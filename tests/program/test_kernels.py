from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from autoplan.execute.threads import run_ranks
from autoplan.opgraph import NODE
from autoplan.partition.halo import build_shards
from autoplan.program import kernels
from autoplan.program.context import RankContext
from autoplan.program.kernel_info import KernelInfo
from autoplan.program.kernels import KERNELS

aten = torch.ops.aten
NODES = 17
# rank 2 owns one row, rank 3 none
OWNER = np.array([0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 2, 0, 0, 1, 1, 0, 0])


def on_ranks(work, parts=4, step=0):
    """work(context, owned ids) on every rank; results in rank order."""
    shards = build_shards(OWNER if parts == 4 else OWNER * 0, {}, {}, parts=parts)

    def rank_main(communicator):
        context = RankContext.from_shard(shards[communicator.rank], communicator, seed=9, step=step)
        return work(context, context.keys(NODE, "O"))

    return run_ranks(parts, rank_main)


def info(operator, dim=0, rows=NODES, keys=None, op=3):
    return KernelInfo(op=op, func=str(operator), dim=dim, rows=rows, keys=keys)


def assert_close(first, second):
    assert torch.allclose(first, second, rtol=0, atol=1e-12, equal_nan=True)


def check_loss(operator, kernel, args_of, state, rows=NODES):
    """The kernel's loss over ranks and its gradients equal the recorded op's on the whole."""
    whole = torch.randn(NODES, 5, dtype=torch.float64, requires_grad=True)
    expected = operator(*args_of(whole, torch.arange(NODES)))
    expected = expected[0] if isinstance(expected, tuple) else expected
    expected.backward()

    def work(context, ids):
        mine = whole.detach()[ids].requires_grad_()
        loss = KERNELS[kernel](context, info(operator, rows=rows), *args_of(mine, ids))
        loss = loss[0] if isinstance(loss, tuple) else loss
        loss.backward()
        return loss.detach(), ids, mine.grad

    results = on_ranks(work)
    losses = torch.stack([loss for loss, _, _ in results])
    # in R each rank differentiates the whole loss: a factor of the number of ranks
    factor = 1 if state == "S" else len(results)
    assert_close(
        losses.sum() if state == "S" else losses,
        expected.detach().expand_as(losses) if state == "R" else expected.detach(),
    )
    for _, ids, gradient in results:
        assert_close(gradient, whole.grad[ids] * factor)


def check_counted(operator, kernel, args_of):
    """The targets of all rows on each rank: the parts add up without a word between ranks."""
    whole = torch.randn(NODES, 5, dtype=torch.float64, requires_grad=True)
    expected = operator(*args_of(whole))
    expected = expected[0] if isinstance(expected, tuple) else expected
    expected.backward()

    def work(context, ids):
        mine = whole.detach()[ids].requires_grad_()
        known = info(operator, keys=ids).at(keys=ids, whole_keys=torch.arange(NODES))
        loss = KERNELS[kernel](context, known, *args_of(mine))
        loss = loss[0] if isinstance(loss, tuple) else loss
        loss.backward()
        return loss.detach(), ids, mine.grad

    results = on_ranks(work)
    assert_close(sum(loss for loss, _, _ in results), expected.detach())
    for _, ids, gradient in results:
        assert_close(gradient, whole.grad[ids])


LABELS = torch.tensor([2, -100, 4, 0, 1, 1, -100, 3, 2, 2, 4, 1, 0, 0, -100, 2, 1])
WEIGHT = torch.tensor([0.5, 2.0, 1.0, 0.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("reduction", [1, 2])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("ignore", [-100, 2])
def test_nll_loss(reduction, weight, ignore):
    labels = LABELS.clamp(min=0) if ignore == 2 else LABELS
    check_loss(
        aten.nll_loss_forward.default,
        "nll_loss",
        lambda x, ids: (x.log_softmax(1), labels[ids], weight, reduction, ignore),
        "R",
    )


def test_nll_loss_without_any_label_is_what_torch_gives():
    nothing = torch.full((NODES,), -100)
    for reduction in (1, 2):
        check_loss(
            aten.nll_loss_forward.default,
            "nll_loss",
            lambda x, ids, reduction=reduction: (x, nothing[ids], None, reduction, -100),
            "R",
        )


@pytest.mark.parametrize("reduction", [1, 2])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_nll_loss_counted(reduction, weight):
    check_counted(
        aten.nll_loss_forward.default,
        "nll_loss_counted",
        lambda x: (x.log_softmax(1), LABELS, weight, reduction, -100),
    )


TARGET = torch.rand(NODES, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
MEAN_LOSSES = {
    "mse": (aten.mse_loss.default, lambda x, ids: (x, TARGET[ids])),
    "mse sum": (aten.mse_loss.default, lambda x, ids: (x, TARGET[ids], 2)),
    "smooth l1": (aten.smooth_l1_loss.default, lambda x, ids: (x, TARGET[ids], 1, 0.5)),
    "huber": (aten.huber_loss.default, lambda x, ids: (x, TARGET[ids])),
    "bce": (aten.binary_cross_entropy.default, lambda x, ids: (x.sigmoid(), TARGET[ids], WEIGHT)),
    "bce with logits": (
        aten.binary_cross_entropy_with_logits.default,
        lambda x, ids: (x, TARGET[ids], TARGET[ids] + 1, WEIGHT, 1),
    ),
}


@pytest.mark.parametrize("name", ["mse", "smooth l1", "bce"])
def test_mean_losses_counted(name):
    operator, args_of = MEAN_LOSSES[name]
    check_counted(operator, "mean_loss_counted", lambda x: args_of(x, torch.arange(NODES)))


@pytest.mark.parametrize("name", MEAN_LOSSES)
@pytest.mark.parametrize("rows", [NODES, None])
def test_mean_losses(name, rows):
    operator, args_of = MEAN_LOSSES[name]
    check_loss(operator, "mean_loss", args_of, "S", rows)


@pytest.mark.parametrize("dim", [[0], [0, 1], [-2], None])
@pytest.mark.parametrize("rows", [NODES, None])
def test_mean_over_rows(dim, rows):
    whole = torch.randn(NODES, 5, dtype=torch.float64)

    def work(context, ids):
        mine = whole[ids].requires_grad_()
        part = kernels.mean_over_rows(context, info(aten.mean.dim, rows=rows), mine, dim, True)
        part.sum().backward()
        return part.detach(), mine.grad

    results = on_ranks(work)
    expected = whole.mean(dim, keepdim=True)
    assert_close(sum(part for part, _ in results), expected)
    for _, gradient in results:
        assert_close(gradient, torch.full_like(gradient, expected.numel() / whole.numel()))


def test_mean_along_a_later_dimension():
    whole = torch.randn(3, NODES, dtype=torch.float64)

    def work(context, ids):
        return kernels.mean_over_rows(context, info(aten.mean.dim, dim=1), whole[:, ids], [1])

    assert_close(sum(on_ranks(work)), whole.mean(1))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("rows", [NODES, None])
@pytest.mark.parametrize("shape", [(NODES, 5), (NODES, 5, 3)])
@pytest.mark.parametrize("running", [True, False])
def test_batch_norm(affine, rows, shape, running):
    whole = (3 + 2 * torch.randn(shape, dtype=torch.float64)).requires_grad_()
    cotangent = torch.randn(shape, dtype=torch.float64)
    parameters = [torch.randn(5, dtype=torch.float64) for _ in range(2)] if affine else [None] * 2

    def state():
        if not running:
            return [None, None]
        return [torch.full((5,), v, dtype=torch.float64) for v in (0.5, 2.0)]

    operator = aten.native_batch_norm.default
    buffers = state()
    learned = [None if p is None else p.clone().requires_grad_() for p in parameters]
    expected, mean, scale = operator(whole, *learned, *buffers, True, 0.3, 1e-5)
    (expected * cotangent).sum().backward()

    def work(context, ids):
        mine = whole.detach()[ids].requires_grad_()
        own = [None if p is None else p.clone().requires_grad_() for p in parameters]
        own_buffers = state()
        output, own_mean, own_scale = kernels.sync_batch_norm(
            context, info(operator, rows=rows), mine, *own, *own_buffers, True, 0.3, 1e-5
        )
        (output * cotangent[ids]).sum().backward()
        assert_close(output, expected[ids])
        assert_close(own_mean, mean)
        assert_close(own_scale, scale)
        assert_close(mine.grad, whole.grad[ids])
        if running:
            for found, wanted in zip(own_buffers, buffers, strict=True):
                assert_close(found, wanted)
        return [None if p is None else p.grad for p in own]

    gradients = on_ranks(work)
    if affine:
        for position, parameter in enumerate(learned):
            assert_close(sum(g[position] for g in gradients), parameter.grad)


def test_batch_norm_in_evaluation_is_local():
    whole = torch.randn(NODES, 5, dtype=torch.float64)
    statistics = torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    args = (None, None, *statistics, False, 0.1, 1e-5)
    operator = aten.native_batch_norm.default
    expected = operator(whole, *args)[0]

    def work(context, ids):
        output, *_ = kernels.sync_batch_norm(context, info(operator), whole[ids], *args)
        assert_close(output, expected[ids])

    on_ranks(work)


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (aten.bernoulli_.float, (0.4,)),
        (aten.bernoulli.p, (0.4,)),
        (aten.bernoulli.default, ()),
        (aten.bernoulli_.Tensor, "tensor"),
    ],
)
def test_keyed_bernoulli(operator, args):
    probabilities = torch.full((NODES, 6), 0.4, dtype=torch.float64)

    def work(context, ids):
        tensor = probabilities[ids].clone()
        given = (probabilities[ids],) if args == "tensor" else args
        result = kernels.keyed_bernoulli(context, info(operator, keys=ids), tensor, *given)
        assert (result is tensor) == operator._schema.name.endswith("_")
        return ids, result

    ((_, alone),) = on_ranks(work, parts=1)
    assert set(alone.unique().tolist()) == {0.0, 1.0}
    for ids, kept in on_ranks(work):
        assert torch.equal(kept, alone[ids])
    ((_, later),) = on_ranks(work, parts=1, step=1)
    assert not torch.equal(alone, later)


def test_bernoulli_without_a_sharded_dimension():
    def work(context, ids):
        operator = aten.bernoulli_.float
        pooled = kernels.keyed_bernoulli(context, info(operator, dim=None), torch.zeros(2, 40), 0.5)
        scalar = kernels.keyed_bernoulli(context, info(operator, dim=None), torch.tensor(0.0), 1.0)
        assert scalar == 1
        return pooled

    results = on_ranks(work)
    assert all(torch.equal(result, results[0]) for result in results)
    assert 0.2 < results[0].mean() < 0.8


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (aten.rand.default, ([50],)),
        (aten.randn_like.default, (torch.zeros(50),)),
        (aten.randperm.default, (50,)),
        (aten.randint.low, (3, 900, [50])),
        (aten.multinomial.default, (torch.ones(50), 20)),
        (aten.native_dropout.default, (torch.ones(50), 0.5, True)),
    ],
)
def test_other_random_ops_are_equal_on_all_ranks(operator, args):
    def work(context, ids):
        result = kernels.seeded_random(context, info(operator, dim=None), *args)
        return result[0] if isinstance(result, tuple) else result

    before = torch.random.get_rng_state()
    results = on_ranks(work)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(result, results[0]) for result in results)
    assert not torch.equal(results[0], on_ranks(work, step=1)[0])


def test_local_calls_the_recorded_op():
    x = torch.randn(4, 3)
    assert torch.equal(KERNELS["local"](None, info(aten.relu.default), x), F.relu(x))
