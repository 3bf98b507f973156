"""Plans whose code names float32, or makes tensors of the default dtype, are checked and verified in float64 all the same."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GCNConv

import autoplan
from tests.integration.graphs import awkward_graph

WEIGHTS = [1.0, 2.0, 0.5, 3.0]
ARRAY = np.array(WEIGHTS, dtype=np.float32)


def weighted(out, graph, weight):
    rows = graph.train_mask
    return F.cross_entropy(out[rows], graph.y[rows], weight=weight)


def literal(out, graph):
    return weighted(out, graph, torch.tensor([1.0, 2.0, 0.5, 3.0]))


def captured_list(out, graph):
    return weighted(out, graph, torch.tensor(WEIGHTS))


def numpy_float32(out, graph):
    return weighted(out, graph, torch.from_numpy(ARRAY))


def named_dtype(out, graph):
    return weighted(out, graph, torch.tensor(WEIGHTS, dtype=torch.float32))


def converted(out, graph):
    return weighted(out.float(), graph, (graph.y.bincount(minlength=4) + 1).float())


def by_default(out, graph):
    return weighted(out, graph, 1 / (graph.y.bincount(minlength=4) + 1))


NAMED = {numpy_float32, named_dtype, converted}
"""Plain PyTorch cannot run these in float64."""
LOSSES = [literal, captured_list, numpy_float32, named_dtype, converted, by_default]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_class_weights_made_inside_the_loss(loss) -> None:
    torch.manual_seed(0)
    model, graph = GCNConv(8, 4), awkward_graph()
    plan = autoplan.optimize(model, graph, "2xcpu", loss=loss, strategy="data")

    result = autoplan.verify(plan, model, graph, steps=2)

    assert result.ok, str(result)
    assert (result.eager_bound > result.bound) == (loss in NAMED)
    assert ("in the model's own dtype" in str(result)) == (loss in NAMED)
    assert torch.get_default_dtype() == torch.float32
    expected = loss(model(graph.x, graph.edge_index), graph).detach()
    torch.testing.assert_close(plan.step(model, graph).loss, expected)


def test_stages_are_checked_likewise() -> None:
    model, graph = GCNConv(8, 4), awkward_graph()
    plan = autoplan.optimize(model, graph, "2xcpu", loss=named_dtype, strategy="model")
    assert autoplan.verify(plan, model, graph, steps=1).ok


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(8, 4)

    def forward(self, x, edge_index):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.conv(x, edge_index).float()


def test_what_cannot_be_checked_is_not_told_as_rejected() -> None:
    with pytest.raises(autoplan.errors.InfeasibleError) as error:
        autoplan.optimize(Mixed(), awkward_graph(), "2xcpu", strategy="data")
    assert "could not be checked: in float64 this model is another program" in str(error.value)
    assert "rejected" not in str(error.value)
