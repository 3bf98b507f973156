"""Graphs of a single node each, as a list or as PyG's Batch: labels are the graphs', and steps are plain PyTorch's."""

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Batch, Data

import autoplan

from .many import Classifier


@pytest.mark.parametrize("given", [list, Batch.from_data_list], ids=["list", "batch"])
def test_labels_are_of_the_graphs(given) -> None:
    torch.manual_seed(0)
    loop = torch.zeros(2, 1, dtype=torch.long)
    graphs = [Data(x=torch.randn(1, 5), edge_index=loop, y=torch.tensor([i % 3])) for i in range(8)]
    model = Classifier(5, 3, dropout=0.0)
    plan = autoplan.optimize(model, given(graphs), "2xcpu", strategy="data")

    loss = plan.step(model, given(graphs), seed=0).loss

    whole = Batch.from_data_list(graphs)
    expected = F.cross_entropy(model(whole.x, whole.edge_index, whole.batch), whole.y)
    torch.testing.assert_close(loss, expected.detach())
